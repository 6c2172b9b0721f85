"""Graphs of a model: traced to ONNX by torch, converted to OpenVINO, quantized to int8, and run by their runtimes.

In int8, weights of matrix products are stored symmetric, with one scale per output channel, and use 7 of the 8 bits.
x86 processors without VNNI add two products of an activation (0 to 255) and a weight in 16 bits, and saturate at
32,767; 2 * 255 * 64 is smaller, so the integer products are exact on every processor. Embedding matrices stay in fp32.

ONNX Runtime computes the range of the activations for each batch. For OpenVINO, a FakeQuantize operation gives it, from
which the CPU plugin computes the product in int8. There is one range per input of a product: the mean over calibration
texts of the smallest and of the largest value, so that a single outlier does not widen it.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from nearfar.commands.export.source import EMBEDDING, IDS, MASK, TYPES, Outputs, Source
from nearfar.disk import disk_errors
from nearfar.encoder.classifier import Item
from nearfar.encoder.pretrained import reason
from nearfar.types import NearfarError

Format = Literal["onnx", "openvino"]
FILES: dict[Format, str] = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}
"""Format -> the name of its graph, which is what sentence-transformers looks for."""
OPTIMUM_OUTPUT = "last_hidden_state"
"""Name under which optimum's classes, which sentence-transformers uses, read the output of an encoder."""
EXTERNAL = 1_500_000_000
"""Bytes of weights from which they are written to a file of their own; an ONNX file holds up to 2 GB."""
LEVELS, WEIGHT_LIMIT = 256, 64
"""Number of values of int8 activations, and the largest quantized weight."""
TOKENS = 4096
"""Maximum number of tokens in a batch, padding included."""
Feeds = Mapping[str, NDArray[np.int64]]
Range = tuple[float, float]


def write_onnx(source: Source, file: Path, *, opset: int | None, metadata: Mapping[str, str]) -> int:
    """Write the graph of a model; batch size and length are dynamic. Returns the version of the operator set.

    The graph of an encoder has a second output, :data:`OPTIMUM_OUTPUT`, with the same embeddings.

    Raises:
        NearfarError: torch cannot export the architecture, or not to this version; the file cannot be written.
    """
    from onnxscript import ir

    example = torch.ones(2, 8, dtype=torch.long)
    inputs = {name: example.clone() for name in source.inputs}
    inputs[MASK][1, 6:] = 0
    chosen: dict[str, Any] = {} if opset is None else {"opset_version": opset}
    name = type(source.config).__name__.removesuffix("Config")
    with quiet_exporter():
        try:
            with torch.no_grad():
                program = torch.onnx.export(
                    source.graph,
                    (),
                    kwargs=inputs,
                    dynamo=True,
                    verbose=False,
                    output_names=[source.output],
                    dynamic_shapes={key: {0: "batch", 1: "length"} for key in inputs},
                    **chosen,
                )
        except Exception as error:  # whatever a tracer raises inside the code of an architecture
            version = "" if opset is None else f", opset {opset}"
            raise NearfarError(
                f"{name}: torch {torch.__version__} cannot export this architecture to ONNX{version} "
                f"({_root_reason(error)})."
            ) from error
    assert program is not None
    graph = program.model.graph
    if source.output == EMBEDDING:
        vectors = graph.outputs[0]
        alias = ir.Node("", "Identity", [vectors])
        second = alias.outputs[0]
        second.name, second.shape = OPTIMUM_OUTPUT, vectors.shape
        if vectors.dtype is not None:
            second.dtype = vectors.dtype
        graph.append(alias)
        graph.outputs.append(second)
    program.model.metadata_props.clear()
    program.model.metadata_props.update(metadata)
    program.model.producer_name, program.model.producer_version = "nearfar", None
    size = sum(one.numel() * one.element_size() for one in source.graph.parameters())
    with disk_errors(file):
        program.save(str(file), external_data=size > EXTERNAL)
    return int(graph.opset_imports[""])


def quantize_onnx(source: Path, file: Path) -> None:
    """Quantize the weights of matrix products of an ONNX file to int8, and their activations batch by batch."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    large = sum(part.stat().st_size for part in source.parent.glob(f"{source.name}*")) > EXTERNAL
    with quiet_exporter(), disk_errors(file):
        quantize_dynamic(
            source,
            file,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=True,
            use_external_data_format=large,
        )


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence warnings and log messages of the exporters; problems are raised as errors, or found by comparison."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _root_reason(error: BaseException) -> str:
    """The first line of the first cause: torch wraps it in instructions for a report."""
    while error.__cause__ is not None:
        error = error.__cause__
    assert isinstance(error, Exception)
    return reason(error)


@contextmanager
def openvino_errors(file: Path) -> Iterator[None]:
    """Turn OpenVINO's error for a file that it cannot read into a :class:`NearfarError` that names ``file``."""
    try:
        yield
    except RuntimeError as error:  # its message has lines of its own source code first
        reason = str(error).strip().splitlines()[-1].strip()
        raise NearfarError(f"{file}: OpenVINO cannot read it ({reason}).") from error


def write_openvino(source: Path, file: Path, *, feeds: Sequence[Feeds] | None = None) -> None:
    """Convert an ONNX file to ``file`` (.xml, with the weights in .bin beside it).

    With ``feeds``, the inputs of one calibration text each, matrix products are quantized to int8.

    Raises:
        NearfarError: a file cannot be written.
    """
    import openvino

    with openvino_errors(source):
        model = openvino.Core().read_model(source)
    if feeds is not None:
        quantize(model, activation_ranges(source, feeds))
    with disk_errors(file):
        try:
            openvino.save_model(model, file, compress_to_fp16=False)
        except RuntimeError as error:  # its message has the line of its own source code first
            raise OSError(str(error).strip().splitlines()[-1]) from error


def activation_ranges(source: Path, feeds: Sequence[Feeds]) -> list[Range]:
    """The range of the activations of each quantized matrix product of an ONNX file, in order."""
    import openvino

    with openvino_errors(source):
        model = openvino.Core().read_model(source)
    inputs = [product.input_value(0) for product, _ in _products(model)]
    names = [_name(one) for one in inputs]
    distinct = dict(zip(names, inputs, strict=True))  # queries, keys and values have the same input
    outputs = len(model.outputs)
    model.add_outputs(list(distinct.values()))
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    lows, highs = [], []
    for feed in feeds:
        found = request.infer(dict(feed))
        activations = [found[outputs + number] for number in range(len(distinct))]
        lows.append([float(one.min()) for one in activations])
        highs.append([float(one.max()) for one in activations])
    low, high = np.minimum(np.mean(lows, axis=0), 0), np.maximum(np.mean(highs, axis=0), 0)
    ranges = {name: (float(low[number]), float(high[number])) for number, name in enumerate(distinct)}
    return [ranges[name] for name in names]


def _name(value: Any) -> str:
    """The name of an output of an operation."""
    return f"{value.get_node().get_friendly_name()}:{value.get_index()}"


def quantize(model: Any, ranges: Sequence[Range]) -> None:
    """Quantize the matrix products of a model in place; ``ranges`` are those of :func:`activation_ranges`."""
    from openvino import opset13 as ops

    for (product, weights), (low, high) in zip(list(_products(model)), ranges, strict=True):
        matrix = weights.data
        in_axis = 1 if product.get_attributes()["transpose_b"] else 0
        scale = np.abs(matrix).max(axis=in_axis, keepdims=True).astype(np.float32) / WEIGHT_LIMIT
        rounded = np.rint(np.divide(matrix, scale, out=np.zeros_like(matrix), where=scale > 0)).astype(np.int8)
        dequantized = ops.multiply(ops.convert(ops.constant(rounded), "f32"), ops.constant(scale))
        product.input(1).replace_source_output(dequantized.output(0))
        if low < high:
            bounds = [ops.constant(np.array(bound, dtype=np.float32)) for bound in (low, high, low, high)]
            activations = ops.fake_quantize(product.input_value(0), *bounds, LEVELS)
            product.input(0).replace_source_output(activations.output(0))
    model.validate_nodes_and_infer_types()


def _products(model: Any) -> Iterator[tuple[Any, Any]]:
    """The matrix products of a model with a constant matrix, in order, and these constants."""
    for operation in model.get_ordered_ops():
        if operation.get_type_name() == "MatMul":
            weights = operation.input_value(1).get_node()
            if weights.get_type_name() == "Constant" and len(weights.shape) == 2:
                yield operation, weights


class ExportedModel:
    """An exported folder.

    Args:
        folder: the folder.
        kind: the format of the graph.
        threads: number of threads.
        native: compute in the precision that the runtime chooses on this processor, as OpenVINO does with bf16;
            otherwise in fp32.
    """

    def __init__(self, folder: Path, kind: Format, *, threads: int, native: bool = False) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.padding = (self.tokenizer.padding or {}).get("pad_id", 0)
        self.tokenizer.no_padding()  # batches are padded here, after they are sorted by length
        self._run, self.inputs = _open(folder / FILES[kind], kind, threads=threads, native=native)

    def compute(self, items: Sequence[Item], *, prompt: str = "") -> Outputs:
        """The outputs [items, width] in the order of ``items``, one or two texts each."""
        encodings = self.tokenizer.encode_batch(_prompted(items, prompt))
        order = sorted(range(len(items)), key=lambda row: -len(encodings[row].ids))
        outputs: dict[int, NDArray[np.float32]] = {}
        start = 0
        while start < len(order):
            length = len(encodings[order[start]].ids)
            rows = order[start : start + max(1, TOKENS // length)]
            feeds = {name: np.zeros((len(rows), length), dtype=np.int64) for name in (IDS, MASK, TYPES)}
            feeds[IDS][:] = self.padding
            for place, row in enumerate(rows):
                size = len(encodings[row].ids)
                feeds[IDS][place, :size], feeds[TYPES][place, :size] = encodings[row].ids, encodings[row].type_ids
                feeds[MASK][place, :size] = 1
            outputs |= zip(rows, self._run({name: feeds[name] for name in self.inputs}), strict=True)
            start += len(rows)
        return np.stack([outputs[row] for row in range(len(items))]).astype(np.float32)


def single_feeds(folder: Path, items: Sequence[Item], source: Source) -> list[dict[str, NDArray[np.int64]]]:
    """The inputs of each item alone, tokenised by the files of ``folder``."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    feeds = []
    for encoding in tokenizer.encode_batch(_prompted(items, source.prompt)):
        values = {IDS: encoding.ids, MASK: encoding.attention_mask, TYPES: encoding.type_ids}
        feeds.append({name: np.array([values[name]], dtype=np.int64) for name in source.inputs})
    return feeds


def _prompted(items: Sequence[Item], prompt: str) -> list[str | tuple[str, ...]]:
    """What a tokenizer takes: a text, or a pair."""
    return [prompt + item[0] if len(item) == 1 else item for item in items]


def _open(
    file: Path, kind: Format, *, threads: int, native: bool
) -> tuple[Callable[[Feeds], NDArray[np.float32]], list[str]]:
    """A function that runs the graph, and the names of its inputs."""
    if kind == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_outputs()[0].name
        return lambda feeds: session.run([name], dict(feeds))[0], [one.name for one in session.get_inputs()]
    import openvino

    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if not native:
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    with openvino_errors(file):
        request = openvino.Core().compile_model(file, "CPU", settings).create_infer_request()
    names = [one.get_any_name() for one in request.model_inputs]
    return lambda feeds: request.infer(dict(feeds))[0].copy(), names
