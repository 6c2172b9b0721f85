"""Encoding speed against sentence-transformers in fp32, bf16 and on OpenVINO, for short and long texts.

    python benchmarks/encoding.py run       writes benchmarks/results/encoding.json
    python benchmarks/encoding.py report    fills its place in docs/encoding-speed.md from that file alone

If NEARFAR_DATA is set, short texts are SNLI premises and long texts are joined Wikipedia sentences; otherwise both are
from microworld. All sides are interleaved within a round, in one process, on new texts in each round, the peer with its
default batch size; their vectors are compared. OpenVINO runs in a process of its own: `--openvino PYTHON` names the
interpreter of an environment with sentence-transformers[openvino]. If OpenVINO is not installed, this side is skipped,
which the result file records. Then what no transformer takes part in, on the same texts: tokenising, and a static
encoder. With `--quick`, results are printed, and written only with `--into`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
from nearfar.encoder.encoder_folder import static_components
from nearfar.encoder.weights import locate

PAGE = common.Page("encoding", "encoding-speed")
LONG = 256
"""Maximum number of tokens of a long text; the model's limit."""
REFERENCE = "sentence-transformers fp32"
MIN_COSINE = 0.999
COMPARED = (REFERENCE, "sentence-transformers bf16", "sentence-transformers OpenVINO")
REPETITIONS = 15
"""How often each sentence of microworld-text occurs, each time with another number."""
Encoded = tuple[NDArray[np.float32], float]
"""Vectors, and the seconds of encoding."""
Encode = Callable[[list[str]], Encoded]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all sides on both kinds of text."""
    rounds, python = options.rounds, options.openvino
    ours = Encoder.from_pretrained(MODEL, device="cpu")
    found = common.record(model=MODEL, rounds=rounds, kinds={})
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
            found["kinds"][kind] = measure(sides, texts, getattr(options, kind), rounds, REFERENCE)
            for name, cosine in found["kinds"][kind]["lowest_cosine"].items():
                if cosine < MIN_COSINE:
                    raise SystemExit(f"a vector of {name} has a cosine of {cosine:.5f} to {REFERENCE}'s")
            found["kinds"][kind]["mean_tokens"] = mean(map(len, ours.tokenize(texts[:1000]).ids))
            seconds = {name: round(median(each), 2) for name, each in found["kinds"][kind]["seconds"].items()}
            print(kind, seconds, flush=True)
    sizes = {kind: 10 * getattr(options, kind) for kind in pool}
    found["light"] = {kind: light_work(ours, texts, sizes[kind], rounds) for kind, texts in pool.items()}
    return found


def light_work(encoder: Encoder, texts: list[str], size: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Texts per second of each side in each round: of tokenising, and of a static encoder, which is not compared."""
    vectors = encoder.backbone.get_input_embeddings().weight.detach().numpy()
    static = Encoder(static_components(vectors, encoder.tokenizer, normalize=True))
    with tempfile.TemporaryDirectory() as folder:
        static.save_pretrained(folder)
        peer = SentenceTransformer(folder, device="cpu")
    work: dict[str, dict[str, Callable[[list[str]], object]]] = {
        "tokenising": {
            "nearfar": encoder.tokenize,
            "transformers": partial(encoder.tokenizer, truncation=True, max_length=encoder.max_length),
        },
        "static encoder": {
            "nearfar": partial(static.encode, precision="fp32"),
            "sentence-transformers": partial(peer.encode, show_progress_bar=False),
        },
    }

    def rate(compute: Callable[[list[str]], object], number: int) -> float:
        used = [texts[place % len(texts)] for place in range(number * size, (number + 1) * size)]
        return size / common.timed(lambda _: compute(used))(number)

    return {
        name: common.run_interleaved({side: partial(rate, compute) for side, compute in sides.items()}, rounds)
        for name, sides in work.items()
    }


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


def measure(sides: dict[str, Encode], texts: list[str], size: int, rounds: int, reference: str) -> dict[str, Any]:
    """Seconds of each round by side, and the lowest cosine of a side's vectors to the reference's."""
    if len(texts) < size:
        raise SystemExit(f"{size} texts are needed, but there are only {len(texts)}.")
    used = [[texts[place % len(texts)] for place in range(n * size, (n + 1) * size)] for n in range(rounds + 1)]
    vectors: dict[str, NDArray[np.float32]] = {}

    def encode(name: str, number: int) -> float:
        encoded, seconds = sides[name](used[number])
        if number == 0:
            vectors[name] = encoded
        return seconds

    seconds = common.run_interleaved({name: partial(encode, name) for name in sides}, rounds)
    lowest = {name: float(common.cosines(own, vectors[reference]).min()) for name, own in vectors.items()}
    return {"texts": size, "seconds": seconds, "lowest_cosine": lowest}


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


def name_openvino(parser: argparse.ArgumentParser) -> None:
    """Add the flag ``--openvino``."""
    parser.add_argument("--openvino", default=sys.executable, metavar="PYTHON", help="interpreter for OpenVINO")


def versions_of_openvino(found: dict[str, Any]) -> str:
    """The versions of OpenVINO's packages, or that it is not installed."""
    known = found["openvino"]
    return known if isinstance(known, str) else ", ".join(f"{name} {value}" for name, value in known.items())


def tables(found: dict[str, Any], references: Sequence[str]) -> list[str]:
    """What was encoded, and the speed of each side, alone and relative to the sides that are named."""
    lines, rows = [], []
    references = [one for one in references if all(one in kind["seconds"] for kind in found["kinds"].values())]
    for kind, measured in found["kinds"].items():
        count, length, seconds = measured["texts"], measured["mean_tokens"], measured["seconds"]
        lines.append(f"- {kind}: {count:,} texts per round, {length:.0f} tokens on average")
        for side, each in seconds.items():
            times = ["" if side == one else common.spread(common.ratios(seconds[one], each)) for one in references]
            rows.append((kind, side, f"{count / median(each):,.0f}", *times, f"{measured['lowest_cosine'][side]:.4f}"))
    header = ("texts", "side", "texts/s", *(f"times as fast as {one}" for one in references), "lowest cosine")
    return [*lines, "", *common.table(header, rows, words=2)]


def body(found: dict[str, Any]) -> list[str]:
    """The speed of each side."""
    lines = [*tables(found, COMPARED), "", f"OpenVINO with its default settings: {versions_of_openvino(found)}."]
    rows = [
        (
            kind,
            name,
            peer,
            *(f"{median(one):,.0f}" for one in (ours, theirs)),
            common.spread(common.ratios(ours, theirs)),
        )
        for kind, work in found.get("light", {}).items()
        for name, ((_, ours), (peer, theirs)) in ((name, sides.items()) for name, sides in work.items())
    ]
    header = ("texts", "work", "peer", "nearfar, texts/s", "peer, texts/s", "times as fast")
    return [*lines, "", *common.table(header, rows, words=3)] if rows else lines


if __name__ == "__main__":
    common.main(
        PAGE,
        __doc__,
        run,
        body,
        common.ROUNDS,
        common.Sizes("short", "short texts per round", 4000, 1500),
        common.Sizes("long", "long texts per round", 300, 100),
        more=name_openvino,
    )
