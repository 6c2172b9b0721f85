"""Encoding speed of exported graphs: ONNX and OpenVINO, fp32 and int8, against nearfar and sentence-transformers.

    python benchmarks/export.py run       writes benchmarks/results/export.json
    python benchmarks/export.py report    writes docs/export-speed.md from that file alone

The model is exported four times by `nearfar export`. If NEARFAR_DATA is set, short texts are SNLI premises and long
texts are joined Wikipedia sentences; otherwise both are from microworld. All sides are interleaved within a round, on
new texts in each round. Exported graphs are opened as encoders, as in `nearfar export`'s own comparison.
sentence-transformers' OpenVINO backend runs in a process of its own: `--openvino PYTHON` names the interpreter of an
environment with sentence-transformers[openvino]. If it is not installed, this side is skipped, which the result file
records. With `--quick`, results are printed, and written only with `--into`.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import common
import numpy as np
from common import MODEL
from encoding import Encode, cosines, openvino, texts_by_kind, timed
from numpy.typing import NDArray

from nearfar import Encoder, export
from nearfar.encoder.exported import Format, GraphBackbone
from nearfar.encoder.precision import cpu_has_bf16

PAGE = common.Page("export", "export-speed", "Speed of exported models")
REFERENCE, PEER = "nearfar fp32", "sentence-transformers OpenVINO"
BARS = {
    f"long: ONNX int8, {REFERENCE}": 1.5,
    f"long: OpenVINO int8, {REFERENCE}": 1.5,
    f"short: OpenVINO fp32, {PEER}": 1.0,
    f"long: OpenVINO fp32, {PEER}": 1.0,
}
"""Targets for the speed ratio."""
CALIBRATION_TEXTS = 300
GRAPHS: dict[str, tuple[Format, str]] = {
    "ONNX fp32": ("onnx", "none"),
    "ONNX int8": ("onnx", "int8"),
    "OpenVINO fp32": ("openvino", "none"),
    "OpenVINO int8": ("openvino", "int8"),
}


def main() -> None:
    """Run or report."""
    parser = common.argument_parser(__doc__, rounds="5, or with --quick 3")
    parser.add_argument("--short", type=int, help="short texts per round; 2000, or with --quick 500")
    parser.add_argument("--long", type=int, help="long texts per round; 200, or with --quick 50")
    parser.add_argument("--openvino", default=sys.executable, metavar="PYTHON", help="interpreter for the peer")
    options = parser.parse_args()
    few = options.quick
    sizes = {"short": options.short or (500 if few else 2000), "long": options.long or (50 if few else 200)}
    rounds = options.rounds or (3 if few else 5)
    common.finish(options, PAGE, lambda: run(sizes, rounds, options.openvino), body)


def run(sizes: dict[str, int], rounds: int, python: str) -> dict[str, Any]:
    """Export the model in every format, and measure all sides on both kinds of text."""
    encoder = Encoder.from_pretrained(MODEL, device="cpu")
    found = common.record(model=MODEL, rounds=rounds, bars=BARS, kinds={}, exports={})
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
            graph = Encoder.from_pretrained(output, device="cpu")
            assert isinstance(graph.backbone, GraphBackbone)
            graph.backbone.use_native_precision()
            sides[name] = timed(graph.encode)
        found["openvino"] = versions or "not installed"
        if peer is not None:
            sides[PEER] = peer
        for kind_of_text, texts in pool.items():
            measured = _measure(sides, texts, sizes[kind_of_text], rounds)
            found["kinds"][kind_of_text] = measured
            found["kinds"][kind_of_text]["mean_tokens"] = mean(map(len, encoder.tokenize(texts[:1000]).ids))
            print(
                kind_of_text, {name: round(median(each), 2) for name, each in measured["seconds"].items()}, flush=True
            )
    return found


def _measure(sides: dict[str, Encode], texts: list[str], size: int, rounds: int) -> dict[str, Any]:
    """Seconds of each round by side, and the lowest cosine of a side's vectors to nearfar's in fp32."""
    if len(texts) < size:
        raise SystemExit(f"{size} texts are needed, but there are only {len(texts)}.")
    used = [[texts[place % len(texts)] for place in range(n * size, (n + 1) * size)] for n in range(rounds + 1)]
    vectors: dict[str, NDArray[np.float32]] = {}

    def seconds(name: str, number: int) -> float:
        found, taken = sides[name](used[number])
        if number == 0:
            vectors[name] = found
        return taken

    measured = common.run_interleaved({name: partial(seconds, name) for name in sides}, rounds)
    lowest = {name: float(cosines(found, vectors[REFERENCE]).min()) for name, found in vectors.items()}
    return {"texts": size, "seconds": measured, "lowest_cosine": lowest}


def body(found: dict[str, Any]) -> list[str]:
    """The text of the page, without title and provenance."""
    lines = [
        common.setting(found),
        "",
        f"Texts: {found['data']}.",
        "",
        f"Times include tokenisation. {found['rounds']} interleaved rounds after a warm-up round. Values are medians",
        "over rounds; ratios have their [minimum, maximum]. The lowest cosine is over all texts, to nearfar in fp32.",
        "OpenVINO runs in its default precision, which is bf16 where the processor has it.",
        "",
    ]
    compared, rows = [], []
    for kind, measured in found["kinds"].items():
        seconds = measured["seconds"]
        lines.append(
            f"- {kind}: {measured['texts']:,} texts per round, {measured['mean_tokens']:.0f} tokens on average"
        )
        for name, each in seconds.items():
            rows.append(
                (kind, name, f"{measured['texts'] / median(each):,.0f}", f"{measured['lowest_cosine'][name]:.5f}")
            )
        for name in GRAPHS:
            for other in (REFERENCE, "nearfar bf16", PEER):
                if other in seconds:
                    times = common.ratios(seconds[other], seconds[name])
                    bar = common.verdict(median(times), found["bars"].get(f"{kind}: {name}, {other}"))
                    compared.append((kind, name, other, common.spread(times), bar))
    lines += ["", *common.table(("texts", "graph", "other side", "speed ratio", "target"), compared, words=3)]
    lines += ["", *common.table(("texts", "side", "texts/s", "lowest cosine"), rows, words=2)]
    scores = [
        (
            name,
            f"{one['sides'][1]['score']:.2f}",
            f"{one['sides'][0]['score']:.2f}",
            f"{sum(one['files'].values()) / 1e6:.0f}",
        )
        for name, one in found["exports"].items()
    ]
    first = next(iter(found["exports"].values()))
    title = f"{first['metric']} on {first['evaluated_on']}"
    lines += ["", *common.table(("graph", title, "nearfar fp32", "MB"), scores)]
    known = found["openvino"]
    versions = known if isinstance(known, str) else ", ".join(f"{name} {value}" for name, value in known.items())
    return [*lines, "", f"{PEER}: {versions}."]


if __name__ == "__main__":
    main()
