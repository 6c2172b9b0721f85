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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import nn

from nearfar.config.verbs import ExportConfig
from nearfar.disk import disk_errors
from nearfar.encoder import encoder_folder
from nearfar.encoder.classifier import Classifier, Item
from nearfar.encoder.classifier_folder import read_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.exported import FILES, IDS, MASK, Feeds, Format, Outputs, open_graph, openvino_errors
from nearfar.encoder.folder_checks import holds_classifier
from nearfar.encoder.padded_graph import ClassifierGraph, EncoderGraph
from nearfar.encoder.pretrained import PreTrainedTokenizerBase, opening, reason
from nearfar.encoder.prompts import InferenceSettings
from nearfar.encoder.ragged import uses_token_types
from nearfar.types import NearfarError, Precision

EMBEDDING, LOGITS = "sentence_embedding", "logits"
OPTIMUM_OUTPUT = "last_hidden_state"
"""Name under which optimum's classes, which sentence-transformers uses, read the output of an encoder."""
TYPES = "token_type_ids"
ATTRIBUTES = {IDS: "ids", MASK: "attention_mask", TYPES: "type_ids"}
"""Input of a graph -> the attribute of a tokenizer's encoding that has its values."""
EXTERNAL = 1_500_000_000
"""Bytes of weights from which they are written to a file of their own; an ONNX file holds up to 2 GB."""
LEVELS, WEIGHT_LIMIT = 256, 64
"""Number of values of int8 activations, and the largest quantized weight."""
TOKENS = 4096
"""Maximum number of tokens in a batch, padding included."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """An encoder or a classifier to export."""

    graph: nn.Module
    """Token ids, mask (and token types) -> outputs."""
    compute: Callable[[Sequence[Item], Precision], Outputs]
    """The outputs of items as nearfar computes them. Items of an encoder are single texts, without the prompt."""
    config: Any
    """transformers' config of the model."""
    tokenizer: PreTrainedTokenizerBase
    inputs: tuple[str, ...]
    output: str
    width: int
    max_length: int
    prompt: str = ""
    """Put before each text before it is tokenised."""
    pooling: str | None = None
    normalized: bool | None = None
    labels: tuple[str, ...] | None = None
    """None for an encoder; empty for regression."""
    inference: InferenceSettings | None = None
    """Of an encoder: its prompts and similarity."""


def open_source(folder: Path, config: ExportConfig) -> Source:
    """Open the model in a folder, in fp32 on the CPU.

    Raises:
        NearfarError: a model that :meth:`nearfar.Encoder.from_pretrained` or
            :meth:`nearfar.Classifier.from_pretrained` refuses; a pooling for a classifier; a pooling that leaves out
            the tokens of prompts.
    """
    if holds_classifier(folder):
        if config.pooling is not None:
            raise NearfarError(f"--pooling {config.pooling}: {folder} is a classifier, whose head pools.")
        return _open_classifier(folder, config)
    encoder = Encoder.from_pretrained(folder, pooling=config.pooling, max_length=config.max_length, device="cpu")
    with opening(folder):  # a second time, because an Encoder changes the modules of its backbone
        parts = encoder_folder.read(folder, dtype=torch.float32, pooling=config.pooling)
    if not parts.inference.include_prompt:
        raise NearfarError(
            f"{folder}: its Pooling module leaves out the tokens of prompts (include_prompt false), whose number is "
            "not an input of the graph, so it cannot be exported."
        )
    return Source(
        graph=EncoderGraph(parts),
        compute=lambda items, precision: encoder.encode([text for (text,) in items], precision=precision),
        config=parts.backbone.config,
        tokenizer=parts.tokenizer,
        inputs=(IDS, MASK),
        output=EMBEDDING,
        width=encoder.dim,
        max_length=encoder.max_length,
        prompt=encoder.resolve_prompt(),
        pooling=encoder.pooling,
        normalized=encoder.normalizes,
        inference=parts.inference,
    )


def _open_classifier(folder: Path, config: ExportConfig) -> Source:
    classifier = Classifier.from_pretrained(folder, max_length=config.max_length, device="cpu")
    with opening(folder):
        parts = read_classifier(folder, label_names=None, regression=False, dropout=None)
    return Source(
        graph=ClassifierGraph(parts.model),
        compute=lambda items, precision: classifier.predict(items, precision=precision),
        config=parts.model.config,
        tokenizer=parts.tokenizer,
        inputs=(IDS, MASK, TYPES) if uses_token_types(classifier.backbone) else (IDS, MASK),
        output=LOGITS,
        width=max(1, len(classifier.label_names)),
        max_length=classifier.max_length,
        labels=classifier.label_names,
    )


@torch.no_grad()
def write_onnx(source: Source, file: Path, *, opset: int | None, metadata: Mapping[str, str]) -> int:
    """Write the graph of a model; batch size and length are dynamic. Returns the version of the operator set.

    The graph of an encoder has a second output, :data:`OPTIMUM_OUTPUT`, with the same embeddings.

    Raises:
        NearfarError: torch cannot export the architecture, or not to this version; the file cannot be written.
    """
    from onnxscript import ir

    inputs = {name: torch.ones(2, 8, dtype=torch.long) for name in source.inputs}
    inputs[MASK][1, 6:] = 0
    with quiet_exporter():
        try:
            program = torch.onnx.export(
                source.graph,
                (),
                kwargs=inputs,
                dynamo=True,
                verbose=False,
                output_names=[source.output],
                dynamic_shapes={key: {0: "batch", 1: "length"} for key in inputs},
                opset_version=opset,
            )
        except Exception as error:  # whatever a tracer raises inside the code of an architecture
            name, version = type(source.config).__name__.removesuffix("Config"), f", opset {opset}" if opset else ""
            raise NearfarError(
                f"{name}: torch {torch.__version__} cannot export this architecture to ONNX{version} "
                f"({_root_reason(error)})."
            ) from error
    assert program is not None
    graph = program.model.graph
    if source.output == EMBEDDING:
        vectors = graph.outputs[0]
        second = ir.Value(name=OPTIMUM_OUTPUT, shape=vectors.shape, type=vectors.type)
        graph.append(ir.Node("", "Identity", [vectors], outputs=[second]))
        graph.outputs.append(second)
    program.model.metadata_props.clear()
    program.model.metadata_props.update(metadata)
    program.model.producer_name, program.model.producer_version = "nearfar", None
    size = sum(weight.numel() * weight.element_size() for weight in source.graph.parameters())
    with disk_errors(file):
        program.save(str(file), external_data=size > EXTERNAL)
    return int(graph.opset_imports[""])


def quantize_onnx(source: Path, file: Path) -> None:
    """Quantize the weights of matrix products of an ONNX file to int8, and their activations batch by batch."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    size = sum(part.stat().st_size for part in source.parent.glob(f"{source.name}*"))
    with quiet_exporter(), disk_errors(file):
        quantize_dynamic(
            source,
            file,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=True,
            use_external_data_format=size > EXTERNAL,
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


def write_openvino(source: Path, file: Path, *, feeds: Sequence[Feeds] | None = None) -> None:
    """Convert an ONNX file to ``file`` (.xml, with the weights in .bin beside it).

    With ``feeds``, the inputs of one calibration text each, matrix products are quantized to int8.

    Raises:
        NearfarError: a file cannot be read or written.
    """
    import openvino

    with openvino_errors(source):
        model = openvino.Core().read_model(source)
    if feeds is not None:
        _quantize(model, _activation_ranges(model.clone(), feeds))
    with disk_errors(file):
        try:
            openvino.save_model(model, file, compress_to_fp16=False)
        except RuntimeError as error:  # its message has the line of its own source code first
            raise OSError(str(error).strip().splitlines()[-1]) from error


def _activation_ranges(model: Any, feeds: Sequence[Feeds]) -> list[tuple[float, float]]:
    """The range of the activations of each quantized matrix product, in order; ``model`` gets further outputs."""
    import openvino

    inputs = [product.input_value(0) for product, _ in _products(model)]
    names = [f"{value.get_node().get_friendly_name()}:{value.get_index()}" for value in inputs]
    distinct = dict(zip(names, inputs, strict=True))  # queries, keys and values have the same input
    outputs = len(model.outputs)
    model.add_outputs(list(distinct.values()))
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    extremes = []
    for feed in feeds:
        results = request.infer(dict(feed))
        activations = [results[outputs + number] for number in range(len(distinct))]
        extremes.append([(values.min(), values.max()) for values in activations])
    means = np.array(extremes, dtype=np.float64).mean(axis=0).tolist()
    ranges = {name: (min(low, 0.0), max(high, 0.0)) for name, (low, high) in zip(distinct, means, strict=True)}
    return [ranges[name] for name in names]


def _quantize(model: Any, ranges: Sequence[tuple[float, float]]) -> None:
    """Quantize the matrix products of a model in place; ``ranges`` are those of :func:`_activation_ranges`."""
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
        self.tokenizer, self.padding = _open_tokenizer(folder)
        self._run, self.inputs = open_graph(folder / FILES[kind], kind, threads=threads, native=native)

    def compute(self, items: Sequence[Item], *, prompt: str = "") -> Outputs:
        """The outputs [items, width] in the order of ``items``, one or two texts each."""
        encodings = _encode(self.tokenizer, items, prompt)
        order = sorted(range(len(items)), key=lambda row: -len(encodings[row].ids))
        outputs: dict[int, Outputs] = {}
        while order:
            rows = order[: max(1, TOKENS // len(encodings[order[0]].ids))]
            feeds = _feeds([encodings[row] for row in rows], self.inputs, padding=self.padding)
            outputs |= zip(rows, self._run(feeds), strict=True)
            order = order[len(rows) :]
        return np.stack([outputs[row] for row in range(len(items))]).astype(np.float32)


def single_feeds(folder: Path, items: Sequence[Item], source: Source) -> list[Feeds]:
    """The inputs of each item alone, tokenised by the files of ``folder``."""
    tokenizer, padding = _open_tokenizer(folder)
    encodings = _encode(tokenizer, items, source.prompt)
    return [_feeds([encoding], source.inputs, padding=padding) for encoding in encodings]


def _open_tokenizer(folder: Path) -> tuple[Tokenizer, int]:
    """The tokenizer of an exported folder, without padding, and the id of its padding."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    padding = (tokenizer.padding or {}).get("pad_id", 0)
    tokenizer.no_padding()  # batches are padded here, after they are sorted by length
    return tokenizer, padding


def _encode(tokenizer: Tokenizer, items: Sequence[Item], prompt: str) -> list[Encoding]:
    return tokenizer.encode_batch([prompt + item[0] if len(item) == 1 else item for item in items])


def _feeds(encodings: Sequence[Encoding], names: Sequence[str], *, padding: int) -> Feeds:
    """The inputs of a batch, padded on the right."""
    shape = len(encodings), max(len(encoding.ids) for encoding in encodings)
    feeds = {name: np.full(shape, padding if name == IDS else 0, dtype=np.int64) for name in names}
    for name, values in feeds.items():
        for row, encoding in zip(values, encodings, strict=True):
            row[: len(encoding.ids)] = getattr(encoding, ATTRIBUTES[name])
    return feeds
