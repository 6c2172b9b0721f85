"""Graphs of a model: traced to ONNX by torch, converted to OpenVINO, quantized to int8, and run by their runtimes.

In int8, weights of matrix products are stored symmetric, with one scale per output channel, and use 7 of the 8 bits.
x86 processors without VNNI add two products of an activation (0 to 255) and a weight in 16 bits, and saturate at
32,767; 2 * 255 * 64 is smaller, so the integer products are exact on every processor. Embedding matrices stay in fp32.

ONNX Runtime computes the range of the activations for each batch. For OpenVINO, a FakeQuantize operation gives it, from
which the CPU plugin computes the product in int8. There is one range per input of a product: the mean over calibration
texts of the smallest and of the largest value, so that a single outlier does not widen it.

:class:`nearfar.Encoder` computes ragged batches by functions of its own, which no other runtime has.
:class:`EncoderGraph` computes the same by transformers' own padded forward pass, as a classifier's model does.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from nearfar.disk import disk_errors
from nearfar.encoder import encoder_folder
from nearfar.encoder.classifier import Classifier, Item
from nearfar.encoder.classifier_folder import read_classifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.encoder_folder import EMBEDDING, EncoderComponents
from nearfar.encoder.exported import IDS, MASK, TYPES, Feeds, Outputs, openvino_errors, refuse_graph
from nearfar.encoder.folder_checks import holds_classifier
from nearfar.encoder.pooling import TokenPooling
from nearfar.encoder.pretrained import reason
from nearfar.encoder.ragged import uses_token_types
from nearfar.types import NearfarError

LOGITS = "logits"
OPTIMUM_OUTPUT = "last_hidden_state"
"""Name under which optimum's classes, which sentence-transformers uses, read the output of an encoder."""
EXTERNAL = 1_500_000_000
"""Bytes of weights from which they are written to a file of their own; an ONNX file holds up to 2 GB."""
LEVELS, WEIGHT_LIMIT = 256, 64
"""Number of values of int8 activations, and the largest quantized weight."""


class Source(NamedTuple):
    """An encoder or a classifier to export."""

    folder: Path
    model: Encoder | Classifier
    graph: nn.Module
    """Token ids, mask (and token types) -> embeddings, or an object with ``logits``."""
    config: Any
    """transformers' config of the model."""
    inputs: tuple[str, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What :class:`nearfar.evaluation.results.ExportResult` says of the model and its graph."""
        model = self.model
        facts: dict[str, Any] = {"max_length": model.max_length, "inputs": list(self.inputs)}
        if isinstance(model, Encoder):
            facts |= {"output": EMBEDDING, "width": model.dim, "pooling": model.pooling}
            return {**facts, "normalized": model.normalizes}
        labels = list(model.label_names)
        return {**facts, "output": LOGITS, "width": max(1, len(labels)), "labels": labels}


def outputs_of(model: Encoder | Classifier, items: Sequence[Item]) -> Outputs:
    """The outputs of items in fp32, by the model or its opened graph. Items of an encoder are single texts."""
    if isinstance(model, Encoder):
        return model.encode([text for (text,) in items], precision="fp32")
    return model.predict(items, precision="fp32")


def open_source(folder: Path, max_length: int | None = None) -> Source:
    """Open the model in a folder, in fp32 on the CPU; ``max_length`` overrides its own.

    Raises:
        NearfarError: a model that :meth:`nearfar.Encoder.from_pretrained` or
            :meth:`nearfar.Classifier.from_pretrained` refuses; a pooling that leaves out the tokens of prompts; an
            exported graph.
    """
    kind = Classifier if holds_classifier(folder) else Encoder
    model: Encoder | Classifier = kind.from_pretrained(folder, max_length=max_length, device="cpu")
    refuse_graph(model.backbone, "exported again")
    # The parts are read a second time, because a model changes the modules of its backbone.
    if isinstance(model, Classifier):
        graph = read_classifier(folder).model.eval()
        graph.set_attn_implementation("eager")
        inputs = (IDS, MASK, TYPES) if uses_token_types(model.backbone) else (IDS, MASK)
        return Source(folder, model, graph, graph.config, inputs)
    parts = encoder_folder.read(folder)
    if not parts.inference.include_prompt:
        raise NearfarError(
            f"{folder}: its Pooling module leaves out the tokens of prompts (include_prompt false), whose number is "
            "not an input of the graph, so it cannot be exported."
        )
    return Source(folder, model, EncoderGraph(parts), parts.backbone.config, (IDS, MASK))


@torch.no_grad()
def write_onnx(source: Source, file: Path, *, opset: int | None) -> int:
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
                output_names=[source.facts["output"]],
                dynamic_shapes={key: {0: "batch", 1: "length"} for key in inputs},
                opset_version=opset,
            )
        except Exception as error:  # whatever a tracer raises inside the code of an architecture
            cause: Any = error
            while cause.__cause__ is not None:  # torch wraps it in instructions for a report
                cause = cause.__cause__
            raise NearfarError(
                f"{source.config.model_type}: torch {torch.__version__} cannot export this architecture to ONNX, opset "
                f"{opset or 'by default'} ({reason(cause)})."
            ) from error
    assert program is not None
    graph = program.model.graph
    if isinstance(source.model, Encoder):
        vectors = graph.outputs[0]
        second = ir.Value(name=OPTIMUM_OUTPUT, shape=vectors.shape, type=vectors.type)
        graph.append(ir.Node("", "Identity", [vectors], outputs=[second]))
        graph.outputs.append(second)
    program.model.metadata_props.clear()
    size = sum(weight.nbytes for weight in source.graph.parameters())
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
    first = len(model.outputs)
    model.add_outputs(list(distinct.values()))
    request = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    extremes = []
    for feed in feeds:
        results = request.infer(dict(feed))
        activations = [results[first + number] for number in range(len(distinct))]
        extremes.append([(values.min(), values.max()) for values in activations])
    means = dict(zip(distinct, np.array(extremes, dtype=np.float64).mean(axis=0).tolist(), strict=True))
    return [(min(means[name][0], 0.0), max(means[name][1], 0.0)) for name in names]


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


def single_feeds(source: Source, items: Sequence[Item]) -> list[Feeds]:
    """The inputs of each item alone."""
    model = source.model
    if isinstance(model, Encoder):
        ids, types = model.tokenize([text for (text,) in items]).ids, None
    else:
        tokens = model.tokenize(items)
        ids, types = tokens.ids, tokens.types
    columns = {IDS: ids, MASK: [[1] * len(row) for row in ids], TYPES: types or [[0] * len(row) for row in ids]}
    return [{name: np.array([columns[name][row]]) for name in source.inputs} for row in range(len(items))]


class EncoderGraph(nn.Module):
    """Token ids and mask -> embeddings: backbone, pooling, the modules after it, and Normalize if the model has it.

    Texts are padded on the right. ``attention_mask`` is 1 for tokens and 0 for padding.
    """

    def __init__(self, parts: EncoderComponents) -> None:
        super().__init__()
        self.backbone = parts.backbone
        self.tail = nn.ModuleList(parts.tail)
        self.normalize = parts.normalize
        self.pooling = parts.pooling
        self.backbone.set_attn_implementation("eager")  # matrix products and a softmax, which runtimes fuse
        self.eval()

    def forward(
        self, input_ids: Int[Tensor, "batch length"], attention_mask: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch dim"]:
        """The embeddings."""
        layers = self.pooling.layers
        output = self.backbone(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True if layers else None
        )
        states = output.last_hidden_state
        if layers:
            states = torch.stack([output.hidden_states[layer] for layer in layers]).mean(0)
        embedding = pool_masked(states, attention_mask, self.pooling.tokens)
        for module in self.tail:
            embedding = module({EMBEDDING: embedding})[EMBEDDING]
        return functional.normalize(embedding, dim=-1) if self.normalize else embedding


def pool_masked(
    states: Float[Tensor, "batch length dim"], mask: Int[Tensor, "batch length"], tokens: TokenPooling
) -> Float[Tensor, "batch dim"]:
    """Pool the tokens whose mask is 1; the same vectors as :func:`nearfar.encoder.pooling.pool`."""
    if tokens == "cls":
        return states[:, 0]
    if tokens == "mean_without_cls":
        mask = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, 1:]], dim=1)
    if tokens in ("lasttoken", "weightedmean"):
        places = mask.cumsum(1) * mask  # 1, 2, ... up to the last token
        mask = places if tokens == "weightedmean" else (places == mask.sum(1, keepdim=True)).to(mask.dtype) * mask
    kept = mask.unsqueeze(-1).to(states.dtype)
    if tokens == "max":
        return (states + (1 - kept) * torch.finfo(states.dtype).min).amax(1)
    return (states * kept).sum(1) / kept.sum(1).clamp(min=1)
