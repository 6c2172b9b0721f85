"""Encoding speed against sentence-transformers in fp32, bf16 and on OpenVINO, for short and long texts.

    python benchmarks/encoding.py run       writes benchmarks/results/encoding.json
    python benchmarks/encoding.py report    writes docs/encoding-speed.md from that file alone

If NEARFAR_DATA is set, short texts are SNLI premises and long texts are joined Wikipedia sentences; otherwise both are
from microworld. All sides are interleaved within a round, in one process, on new texts in each round, the peer with its
default batch size; their vectors are compared. OpenVINO runs in a process of its own: `--openvino PYTHON` names the
interpreter of an environment with sentence-transformers[openvino]. If OpenVINO is not installed, this side is skipped,
which the result file records. With `--quick`, results are printed, and written only with `--into`.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

import common
import numpy as np
import torch
from common import MODEL
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from nearfar import Encoder
from nearfar.data.rows import load_nli, load_sentences
from nearfar.encoder.weights import locate

PAGE = common.Page("encoding", "encoding-speed", "Encoding speed")
LONG = 256
"""Maximum number of tokens of a long text; the model's limit."""
REFERENCE = "sentence-transformers fp32"
MIN_COSINE = 0.999
BARS = {
    f"short: nearfar bf16, {REFERENCE}": 2.5,
    "short: nearfar bf16, sentence-transformers bf16": 1.5,
    "long: nearfar bf16, sentence-transformers bf16": 1.1,
}
"""Targets for the speed ratio."""
COMPARED = (
    ("nearfar bf16", REFERENCE),
    ("nearfar bf16", "sentence-transformers bf16"),
    ("nearfar bf16", "sentence-transformers OpenVINO"),
    ("nearfar fp32", REFERENCE),
)
REPETITIONS = 15
"""How often each sentence of microworld-text occurs, each time with another number."""
Encoded = tuple[NDArray[np.float32], float]
"""Vectors, and the seconds of encoding."""
Encode = Callable[[list[str]], Encoded]


def main() -> None:
    """Run or report."""
    parser = common.argument_parser(__doc__, rounds="5, or with --quick 3")
    parser.add_argument("--short", type=int, help="short texts per round; 4000, or with --quick 1500")
    parser.add_argument("--long", type=int, help="long texts per round; 300, or with --quick 100")
    parser.add_argument("--openvino", default=sys.executable, metavar="PYTHON", help="interpreter for OpenVINO")
    options = parser.parse_args()
    few = options.quick
    sizes = {"short": options.short or (1500 if few else 4000), "long": options.long or (100 if few else 300)}
    rounds = options.rounds or (3 if few else 5)
    common.finish(options, PAGE, lambda: run(sizes, rounds, options.openvino), body)


def run(sizes: dict[str, int], rounds: int, python: str) -> dict[str, Any]:
    """Measure all sides on both kinds of text."""
    ours = Encoder.from_pretrained(MODEL, device="cpu")
    found = common.record(model=MODEL, rounds=rounds, bars=BARS, kinds={})
    found["command"] = found["command"].replace(python, "PYTHON")  # without the path, which is specific to this machine
    sides: dict[str, Encode] = {
        "nearfar fp32": timed(lambda texts: ours.encode(texts, precision="fp32")),
        "nearfar bf16": timed(lambda texts: ours.encode(texts, precision="bf16")),
        **{f"sentence-transformers {name}": _peer(dtype) for name, dtype in _PRECISIONS.items()},
    }
    pool, found["data"] = texts_by_kind(ours)
    with openvino(python) as (side, versions):
        found["openvino"] = versions or "not installed"
        if side is not None:
            sides["sentence-transformers OpenVINO"] = side
        for kind, texts in pool.items():
            found["kinds"][kind] = _measure(sides, texts, sizes[kind], rounds, ours)
            seconds = {name: round(median(each), 2) for name, each in found["kinds"][kind]["seconds"].items()}
            print(kind, seconds, flush=True)
    return found


_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _peer(dtype: torch.dtype) -> Encode:
    peer = SentenceTransformer(str(locate(MODEL)), device="cpu", model_kwargs={"dtype": dtype})
    return timed(lambda texts: np.asarray(peer.encode(texts, show_progress_bar=False), dtype=np.float32))


def timed(encode: Callable[[list[str]], NDArray[np.float32]]) -> Encode:
    """A side from a function that returns vectors."""

    def run(texts: list[str]) -> Encoded:
        started = time.perf_counter()
        vectors = encode(texts)
        return vectors, time.perf_counter() - started

    return run


def _measure(sides: dict[str, Encode], texts: list[str], size: int, rounds: int, ours: Encoder) -> dict[str, Any]:
    """Seconds of each round by side, and the lowest cosine of a side's vectors to the reference's."""
    if len(texts) < size:
        raise SystemExit(f"{size} texts are needed, but there are only {len(texts)}.")
    used = [[texts[place % len(texts)] for place in range(n * size, (n + 1) * size)] for n in range(rounds + 1)]
    vectors: dict[str, NDArray[np.float32]] = {}

    def side(name: str) -> Callable[[int], float]:
        def encode(number: int) -> float:
            found, seconds = sides[name](used[number])
            if number == 0:
                vectors[name] = found
            return seconds

        return encode

    seconds = common.run_interleaved({name: side(name) for name in sides}, rounds)
    lowest = {name: float(cosines(found, vectors[REFERENCE]).min()) for name, found in vectors.items()}
    for name, cosine in lowest.items():
        if cosine < MIN_COSINE:
            raise SystemExit(f"a vector of {name} has a cosine of {cosine:.5f} to {REFERENCE}'s")
    tokens = mean(len(ids) for ids in ours.tokenize(used[0]).ids)
    return {"texts": size, "mean_tokens": tokens, "seconds": seconds, "lowest_cosine": lowest}


def cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of each row."""
    products: NDArray[np.float32] = (one * other).sum(1)
    return products / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def texts_by_kind(encoder: Encoder) -> tuple[dict[str, list[str]], str]:
    """Distinct short and long texts, shuffled, and a description of their source."""
    if os.environ.get("NEARFAR_DATA"):
        short = list(dict.fromkeys(row.premise for row in load_nli("snli:dev+test+train_partial").rows))
        sentences, source = [row[0] for row in load_sentences("wiki").rows], "premises of SNLI; Wikipedia, joined"
    else:
        numbered = [f"{text} {n}" for n in range(REPETITIONS) for (text,) in load_sentences("microworld-text").rows]
        short, sentences = numbered, numbered
        source = "numbered sentences of microworld; the same, joined"
    long = list(_joined(sentences, [len(ids) - 2 for ids in encoder.tokenize(sentences).ids]))
    pool = {"short": short.copy(), "long": long}
    for texts in pool.values():
        random.Random(0).shuffle(texts)
    return pool, source


def _joined(sentences: Sequence[str], lengths: Sequence[int]) -> Iterator[str]:
    """Long texts: neighbouring sentences joined, up to :data:`LONG` tokens."""
    text: list[str] = []
    tokens = 2
    for sentence, length in zip(sentences, lengths, strict=True):
        if text and tokens + length > LONG:
            yield " ".join(text)
            text, tokens = [], 2
        text.append(sentence)
        tokens += length


@contextmanager
def openvino(python: str) -> Iterator[tuple[Encode | None, dict[str, str] | None]]:
    """OpenVINO's side and its versions; (None, None) if ``python`` lacks OpenVINO for sentence-transformers."""
    probe = [python, "-P", "-c", "import optimum.intel.openvino, sentence_transformers"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        yield None, None
        return
    command = [python, "-P", str(Path(__file__).with_name("openvino_worker.py")), str(locate(MODEL))]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        answers, output = process.stdout, Path(folder) / "vectors.npy"

        def answer() -> Any:
            line = answers.readline()
            if not line:
                raise SystemExit("OpenVINO's process ended")
            return json.loads(line)

        def encode(texts: list[str]) -> Encoded:
            assert process.stdin is not None
            print(json.dumps({"texts": texts, "output": str(output)}), file=process.stdin, flush=True)
            seconds = float(answer())  # measured in the worker, without communication between the processes
            return np.load(output), seconds

        yield encode, answer()
        process.stdin.close()


def body(found: dict[str, Any]) -> list[str]:
    """The text of the page, without title and provenance."""
    lines = [
        common.setting(found),
        "",
        f"Texts: {found['data']}.",
        "",
        "All texts are distinct. Times include tokenisation; the peer uses its default batch size. "
        f"{found['rounds']} interleaved",
        "rounds after a warm-up round. Values are medians over rounds; ratios have their [minimum, maximum]. The",
        f"lowest cosine is over all texts, between a side's vector and that of {REFERENCE}.",
        "",
    ]
    rows, compared = [], []
    for kind, of_kind in found["kinds"].items():
        texts, tokens = of_kind["texts"], of_kind["mean_tokens"]
        for side, seconds in of_kind["seconds"].items():
            speed = texts / median(seconds)
            rows.append(
                (kind, side, f"{speed:,.0f}", f"{speed * tokens:,.0f}", f"{of_kind['lowest_cosine'][side]:.5f}")
            )
        lines.append(f"- {kind}: {texts:,} texts per round, {tokens:.0f} tokens on average")
        for ours, theirs in COMPARED:
            if theirs in of_kind["seconds"]:
                times = common.ratios(of_kind["seconds"][theirs], of_kind["seconds"][ours])
                bar = common.verdict(median(times), found["bars"].get(f"{kind}: {ours}, {theirs}"))
                compared.append((kind, ours, theirs, common.spread(times), bar))
    lines += ["", *common.table(("texts", "nearfar", "peer", "speed ratio", "target"), compared, words=3)]
    lines += ["", *common.table(("texts", "side", "texts/s", "tokens/s", "lowest cosine"), rows, words=2)]
    known = found["openvino"]
    versions_there = known if isinstance(known, str) else ", ".join(f"{name} {value}" for name, value in known.items())
    return [*lines, "", f"OpenVINO with its default settings: {versions_there}."]


if __name__ == "__main__":
    main()
