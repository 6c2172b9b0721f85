"""Converts an ONNX graph to OpenVINO, and quantizes it to int8.

Weights of matrix products are stored as int8, symmetric, with one scale per output channel. A FakeQuantize operation on
the activations gives their range, from which OpenVINO's CPU plugin computes the product in int8. There is one range per
input of a product: the mean over calibration texts of the smallest and of the largest value, so that a single outlier
does not widen it.

Weights use 7 of the 8 bits. x86 processors without VNNI add two products of an activation (0 to 255) and a weight in 16
bits, and saturate at 32,767; 2 * 255 * 64 is smaller, so the integer products are exact on every processor.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.disk import disk_errors
from nearfar.types import NearfarError

LEVELS, WEIGHT_LIMIT = 256, 64
"""Number of values of int8 activations, and the largest quantized weight."""
Range = tuple[float, float]


@contextmanager
def openvino_errors(file: Path) -> Iterator[None]:
    """Turn OpenVINO's error for a file that it cannot read into a :class:`NearfarError` that names ``file``."""
    try:
        yield
    except RuntimeError as error:  # its message has lines of its own source code first
        reason = str(error).strip().splitlines()[-1].strip()
        raise NearfarError(f"{file}: OpenVINO cannot read it ({reason}).") from error


def write_openvino(source: Path, file: Path, *, feeds: Sequence[Mapping[str, NDArray[np.int64]]] | None = None) -> None:
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


def activation_ranges(source: Path, feeds: Sequence[Mapping[str, NDArray[np.int64]]]) -> list[Range]:
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
