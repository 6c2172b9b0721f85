"""Converts an ONNX graph to OpenVINO, and quantizes it to int8 with activation ranges from calibration texts.

Each matrix product with constant weights gets a FakeQuantize operation on both inputs, which OpenVINO's CPU plugin turns
into int8 arithmetic. Weights are symmetric with one scale per output channel. Activations have one range per matrix,
the mean over calibration texts of the smallest and largest value, so that a single outlier does not widen it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.disk import disk_errors

LEVELS, WEIGHT_LEVELS = 256, 255
"""Number of values of int8 activations, and of symmetric int8 weights."""
Range = tuple[float, float]


def write_openvino(source: Path, file: Path, *, feeds: Sequence[Mapping[str, NDArray[np.int64]]] | None = None) -> None:
    """Convert an ONNX file to ``file`` (.xml, with the weights in .bin beside it).

    With ``feeds``, the inputs of one calibration text each, matrix products are quantized to int8.

    Raises:
        NearfarError: a file cannot be written.
    """
    import openvino

    model = openvino.Core().read_model(source)
    if feeds is not None:
        quantize(model, activation_ranges(source, feeds))
    with disk_errors(file):
        openvino.save_model(model, file, compress_to_fp16=False)


def activation_ranges(source: Path, feeds: Sequence[Mapping[str, NDArray[np.int64]]]) -> list[Range]:
    """The range of the activations of each quantized matrix product of an ONNX file, in order."""
    import openvino

    model = openvino.Core().read_model(source)
    outputs = len(model.outputs)
    model.add_outputs([product.input_value(0) for product, _ in _products(model)])
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    lows, highs = [], []
    for feed in feeds:
        found = request.infer(dict(feed))
        activations = [found[number] for number in range(outputs, len(found))]
        lows.append([float(one.min()) for one in activations])
        highs.append([float(one.max()) for one in activations])
    means = np.minimum(np.mean(lows, axis=0), 0), np.maximum(np.mean(highs, axis=0), 0)
    return [(float(low), float(high)) for low, high in zip(*means, strict=True)]


def quantize(model: Any, ranges: Sequence[Range]) -> None:
    """Quantize the matrix products of a model in place; ``ranges`` are those of :func:`activation_ranges`."""
    from openvino import opset13 as ops

    for (product, weights), (low, high) in zip(list(_products(model)), ranges, strict=True):
        bounds = [ops.constant(np.array(bound, dtype=np.float32)) for bound in (low, high, low, high)]
        activations = ops.fake_quantize(product.input_value(0), *bounds, LEVELS)
        matrix = weights.data
        in_axis = 1 if product.get_attributes()["transpose_b"] else 0
        largest = np.abs(matrix).max(axis=in_axis, keepdims=True).astype(np.float32)
        bounds = [ops.constant(bound) for bound in (-largest, largest, -largest, largest)]
        quantized = ops.fake_quantize(product.input_value(1), *bounds, WEIGHT_LEVELS)
        product.input(0).replace_source_output(activations.output(0))
        product.input(1).replace_source_output(quantized.output(0))
    model.validate_nodes_and_infer_types()


def _products(model: Any) -> Iterator[tuple[Any, Any]]:
    """The matrix products of a model with a constant matrix, in order, and these constants."""
    for operation in model.get_ordered_ops():
        if operation.get_type_name() == "MatMul":
            weights = operation.input_value(1).get_node()
            if weights.get_type_name() == "Constant" and len(weights.shape) == 2:
                yield operation, weights
