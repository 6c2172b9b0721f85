"""Encoding speed of exported graphs: ONNX and OpenVINO, fp32 and int8, against nearfar and sentence-transformers.

    python benchmarks/export.py run       writes benchmarks/results/export.json
    python benchmarks/export.py report    fills its place in docs/encoding-speed.md from that file alone

The model is exported four times by `nearfar export`. If NEARFAR_DATA is set, short texts are SNLI premises and long
texts are joined Wikipedia sentences; otherwise both are from microworld. All sides are interleaved within a round, on
new texts in each round. Exported graphs are opened as encoders, as in `nearfar export`'s own comparison.
sentence-transformers' OpenVINO backend runs in a process of its own: `--openvino PYTHON` names the interpreter of an
environment with sentence-transformers[openvino]. If it is not installed, this side is skipped, which the result file
records. With `--quick`, results are printed, and written only with `--into`.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import common
from common import MODEL
from encoding import Encode, measure, name_openvino, openvino, tables, texts_by_kind, timed, versions_of_openvino

from nearfar import Encoder, export
from nearfar.encoder.exported import OPENVINO, Format
from nearfar.encoder.precision import cpu_has_bf16

PAGE = common.Page("export", "encoding-speed")
REFERENCE, PEER = "nearfar fp32", "sentence-transformers OpenVINO"
CALIBRATION_TEXTS = 300
GRAPHS: dict[str, tuple[Format, str]] = {
    "ONNX fp32": ("onnx", "none"),
    "ONNX int8": ("onnx", "int8"),
    "OpenVINO fp32": ("openvino", "none"),
    "OpenVINO int8": ("openvino", "int8"),
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Export the model in every format, and measure all sides on both kinds of text."""
    rounds, python = options.rounds, options.openvino
    encoder = Encoder.from_pretrained(MODEL, device="cpu")
    found = common.record(model=MODEL, rounds=rounds, kinds={}, exports={})
    found["command"] = found["command"].replace(python, "PYTHON")  # without the path, which is specific to this machine
    pool, found["data"] = texts_by_kind(encoder)
    sides: dict[str, Encode] = {REFERENCE: timed(partial(encoder.encode, precision="fp32"))}
    if cpu_has_bf16():
        sides["nearfar bf16"] = timed(partial(encoder.encode, precision="bf16"))
    with tempfile.TemporaryDirectory() as folder, openvino(python) as (peer, versions):
        calibration = Path(folder) / "calibration.txt"
        used = [text for texts in pool.values() for text in texts[-CALIBRATION_TEXTS // 2 :]]
        calibration.write_text("\n".join(used) + "\n", encoding="utf-8")
        for name, (kind, quantize) in GRAPHS.items():
            output = Path(folder) / name
            needs = {"calibrate": calibration} if (kind, quantize) == ("openvino", "int8") else {}
            result = export(MODEL, format=kind, quantize=quantize, output=output, **needs)
            found["exports"][name] = {"sides": [side.to_dict() for side in result.sides], "files": result.files}
            found["exports"][name] |= {"metric": result.metric, "evaluated_on": result.evaluated_on}
            hint = OPENVINO.pop("INFERENCE_PRECISION_HINT")  # without it, it computes in bf16 where that is native
            sides[name] = timed(Encoder.from_pretrained(output, device="cpu").encode)
            OPENVINO["INFERENCE_PRECISION_HINT"] = hint
        found["openvino"] = versions or "not installed"
        if peer is not None:
            sides[PEER] = peer
        for kind_of_text, texts in pool.items():
            measured = measure(sides, texts, getattr(options, kind_of_text), rounds, REFERENCE)
            found["kinds"][kind_of_text] = measured
            found["kinds"][kind_of_text]["mean_tokens"] = mean(map(len, encoder.tokenize(texts[:1000]).ids))
            print(
                kind_of_text, {name: round(median(each), 2) for name, each in measured["seconds"].items()}, flush=True
            )
    return found


def body(found: dict[str, Any]) -> list[str]:
    """The speed of each graph, its score and its size."""
    scores = [
        (name, *(f"{one['sides'][side]['score']:.2f}" for side in (1, 0)), f"{sum(one['files'].values()) / 1e6:.0f}")
        for name, one in found["exports"].items()
    ]
    first = next(iter(found["exports"].values()))
    title = f"{first['metric']} on {first['evaluated_on']}"
    lines = [*tables(found, ("nearfar bf16", PEER)), "", *common.table(("graph", title, REFERENCE, "MB"), scores)]
    return [*lines, "", f"{PEER}: {versions_of_openvino(found)}."]


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.ROUNDS,
        common.Sizes("short", "short texts per round", 2000, 500),
        common.Sizes("long", "long texts per round", 200, 50),
        more=name_openvino,
    )
