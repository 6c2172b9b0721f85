"""Traces a module to ONNX by torch's exporter, and quantizes its weights to int8 for ONNX Runtime."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from nearfar.commands.export.source import EMBEDDING, MASK, Source
from nearfar.disk import disk_errors
from nearfar.encoder.pretrained import reason
from nearfar.types import NearfarError

OPTIMUM_OUTPUT = "last_hidden_state"
"""Name under which optimum's classes, which sentence-transformers uses, read the output of an encoder."""
EXTERNAL = 1_500_000_000
"""Bytes of weights from which they are written to a file of their own; an ONNX file holds up to 2 GB."""


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
        alias = ir.Node("", "Identity", [graph.outputs[0]])
        alias.outputs[0].name = OPTIMUM_OUTPUT
        alias.outputs[0].dtype, alias.outputs[0].shape = graph.outputs[0].dtype, graph.outputs[0].shape
        graph.append(alias)
        graph.outputs.append(alias.outputs[0])
    program.model.metadata_props.clear()
    program.model.metadata_props.update(metadata)
    program.model.producer_name, program.model.producer_version = "nearfar", None
    size = sum(one.numel() * one.element_size() for one in source.graph.parameters())
    with disk_errors(file):
        program.save(str(file), external_data=size > EXTERNAL)
    return int(graph.opset_imports[""])


def quantize_onnx(source: Path, file: Path) -> None:
    """Quantize the weights of matrix products to int8, one scale per output channel; activations dynamically.

    Embedding matrices stay in fp32. Weights use 7 of the 8 bits, so that the integer products are exact on every
    processor; with 8 bits, x86 processors without VNNI saturate, and the graph would differ from the one compared here.
    """
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
