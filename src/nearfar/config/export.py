"""Settings of ``nearfar export``."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from nearfar.config.bounds import File, Length, Output
from nearfar.config.values import Settings
from nearfar.types import NearfarError

Opset = Annotated[int, Meta(ge=18, le=23)]
"""Version of ONNX's operator set; torch's exporter writes 18 and later."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig(Settings):
    """Export an encoder or a classifier as one ONNX or OpenVINO graph, and compare it with the original.

    The graph takes token ids and a mask. It returns pooled embeddings, normalised if the model normalises them, or the
    logits of a classifier. OUTPUT also gets the tokenizer, the config, the comparison (export.json), and a README.md
    with a short example that needs no torch.
    """

    output: Output
    """Folder to write."""
    format: Literal["onnx", "openvino"] = "onnx"
    """Format of the graph: onnx for ONNX Runtime, openvino for OpenVINO."""
    quantize: Literal["none", "int8"] = "none"
    """int8: weights as 8-bit integers, one scale per output channel. onnx computes the scale of activations for each
    batch; openvino takes fixed ranges from calibration texts."""
    calibrate: File | None = None
    """Texts to calibrate the activation ranges of --format openvino --quantize int8 on: a text file with one text per
    line, or a table with the column text. By default the dev rows that the model's run held out."""
    evaluate_on: File | None = None
    """Rows to compare the scores of graph and original on: scored pairs, a file or a name such as stsb:dev; for a
    classifier, labelled rows. By default the rows that the model's run tests on, else STS-B dev, else generated
    pairs."""
    opset: Opset | None = None
    """Version of ONNX's operator set, for --format onnx. By default the one that torch recommends."""
    pooling: str | None = None
    """Override the model's pooling: cls, mean, mean_without_cls, max, first_last, embeddings_last, last_two, layer:K or
    layer:K:max."""
    max_length: Length | None = None
    """Maximum number of tokens in a text; longer texts are truncated. By default the model's own limit."""
    timing: bool = True
    """Measure the texts per second of each side. --no-timing: leave them out, which saves some seconds."""
    force: bool = False
    """Keep the graph even if it differs too much from the original."""
    overwrite: bool = False
    """Replace OUTPUT if it is an earlier export."""

    def __post_init__(self) -> None:
        """Check each value, and the values together."""
        super().__post_init__()
        if self.opset is not None and self.format != "onnx":
            raise NearfarError(f"--opset {self.opset}: is for --format onnx; OpenVINO has its own operators.")
        if self.calibrate is not None and (self.format, self.quantize) != ("openvino", "int8"):
            raise NearfarError(
                f"--calibrate {self.calibrate}: is for --format openvino --quantize int8. No other export needs "
                "calibration; remove the flag."
            )
