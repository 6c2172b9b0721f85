"""Speed on a GPU against sentence-transformers: training, encoding, share of the peak, and attention by backend.

    make bench-gpu                          runs everything, in at most nine minutes, and generates the page
    python benchmarks/gpu.py run            writes benchmarks/results/gpu.json
    python benchmarks/gpu.py attention      attention only; prints, and writes only with `--into`
    python benchmarks/gpu.py report         fills its place in docs/gpu-speed.md from that file alone

Encoders have random weights and a synthetic vocabulary; rows are synthetic sentences as long as SNLI's. Nothing is
loaded from the hub or a data folder. All sides of a model size are interleaved by block in one process. Without a GPU,
the script prints a message and measures nothing; `--device cpu --small` runs on any machine, as a test, and writes only
with `--into`.
"""

import argparse
import logging
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import common
import gpu_attention
import gpu_page
import numpy as np
import torch
from gpu_models import SHAPES, SMALL, Shape, SyntheticTexts, shuffled, tokens_of, write_model
from gpu_systems import NearfarRun, SentenceTransformersRun, check
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from torch import nn
from training_systems import peak
from transformers.utils.logging import disable_progress_bar

from nearfar import Encoder, InfoNceConfig, SbertConfig, SclConfig, SgOpt1Config
from nearfar.types import LABEL_NAMES

NO_GPU = "There is no GPU: torch sees no CUDA device, so nothing was measured."
PRECISIONS = ("fp32", "bf16")
PARTS = {"attention": 0.1, "MiniLM-L6, 6 x 384": 0.3, "BERT-medium, 8 x 512": 0.6, "BERT-base, 12 x 768": 1.0}
"""Fraction of the total time after which a part starts no further round."""
MORE = 1.2
"""Rows generated per row used, because batches grouped by premise are not all full."""


class Plan(NamedTuple):
    """The amount of measurement, and the device."""

    device: str
    rounds: int
    steps: int
    batch_size: int
    encoded: int
    """Texts per round of encoding."""


def main() -> None:
    """Run or report."""
    options = arguments()
    if options.command != "report":
        if options.device == "cuda" and not torch.cuda.is_available():
            print(NO_GPU)
            return
        if options.device == "cuda" and torch.cuda.device_count() > 1:
            raise SystemExit("Several GPUs are visible; the peer's trainer would use all. Set CUDA_VISIBLE_DEVICES=0.")
        disable_progress_bar()
        logging.getLogger("torch.fx").setLevel(logging.ERROR)
    trial = options.command == "attention"
    common.finish(options, gpu_page.PAGE, run, gpu_page.body, trial=trial)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "attention", "report"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", dest="quick", action="store_true", help="a tiny encoder and a step or two")
    parser.add_argument("--minutes", type=float, default=8.0, help="start no round after this time; 8")
    parser.add_argument("--batch-size", type=int, help="64, or with --small 6")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write to this folder, not to results and docs")
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure."""
    started = time.monotonic()
    small, device = options.quick, options.device
    shapes = SMALL if small else SHAPES
    plan = Plan(device, rounds=1, steps=2, batch_size=6, encoded=24) if small else Plan(device, 5, 15, 64, 8192)
    plan = plan._replace(batch_size=options.batch_size or plan.batch_size)
    torch.set_float32_matmul_precision("highest")  # no TF32
    found = common.record(small=small, **plan._asdict(), peak={}, shapes={})

    def until(part: str) -> float:
        return started + 60 * options.minutes * PARTS.get(part, 1.0)

    size = 128 if small else 8192
    found["peak"] = {name: peak(gpu_attention.DTYPES[name], device, size, repeats=10) for name in PRECISIONS}
    sizes = {"texts": 8 if small else 2 * plan.batch_size, "rounds": plan.rounds, "calls": 1 if small else 20}
    found["attention"] = gpu_attention.measure(shapes, device=device, until=until("attention"), **sizes)
    for name, shape in shapes.items() if options.command == "run" else ():
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of the peer's dependencies
            model = write_model(Path(folder), shape)
            training = train(model, shape, plan, until(name))
            encoding = encode(model, shape, plan, until(name))
        found["shapes"][name] = {**shape._asdict(), "training": training, "encoding": encoding}
        if device == "cuda":
            torch.cuda.empty_cache()
    found["minutes"] = (time.monotonic() - started) / 60
    return found


def train(model: Path, shape: Shape, plan: Plan, until: float) -> dict[str, Any]:
    """Blocks of all sides on the same rows."""
    pair, triplet = ("premise", "hypothesis", "label"), ("anchor", "positive", "negative")
    labelled = ("sentence1", "sentence2", "label")  # the peer's names
    texts, size = SyntheticTexts(shape), plan.batch_size
    count = round(MORE * (1 + plan.rounds) * (plan.steps + 1) * size)
    by_premise = texts.by_premise(count)
    pairs, triplets = shuffled(by_premise), texts.triplets(count)
    sentences = list(dict.fromkeys((texts.sentence("premise"),) for _ in range(count)))
    twice = [(text, text) for (text,) in sentences]
    given: dict[str, Any] = {"output": "unused", "model": str(model), "device": plan.device, "batch_size": size}
    given |= {"train_max_length": None, "epochs": 1}
    ours: dict[str, Any] = {"shape": shape, "steps": plan.steps}
    peer = SentenceTransformer(str(model), device=plan.device)
    theirs: dict[str, Any] = {**ours, "model": peer, "batch_size": size, "device": plan.device}
    sides: dict[str, Any] = {}
    for precision in PRECISIONS:
        settings, bf16 = {**given, "precision": precision}, precision == "bf16"
        alike = {"order": "rows", "head_layers": 1}
        sides[f"sbert {precision}"] = NearfarRun(SbertConfig(**settings, **alike), pair, pairs, **ours)
        sides[f"SoftmaxLoss {precision}"] = SentenceTransformersRun(_softmax, labelled, pairs, bf16=bf16, **theirs)
        contrast = InfoNceConfig(**settings, negative_column="negative")
        sides[f"info-nce {precision}"] = NearfarRun(contrast, triplet, triplets, **ours)
        sides[f"MultipleNegativesRankingLoss {precision}"] = SentenceTransformersRun(
            _ranking, triplet, triplets, bf16=bf16, **theirs
        )
        sides[f"scl {precision}"] = NearfarRun(SclConfig(**settings), pair, by_premise, **ours)
        guided = SgOpt1Config(**settings, views="0-0", dropout=0.0)  # the recipe for sentences
        sides[f"sg-opt1 {precision}"] = NearfarRun(guided, ("text",), sentences, **ours)
        sides[f"SimCSE {precision}"] = SentenceTransformersRun(_ranking, triplet[:2], twice, bf16=bf16, **theirs)
        sides[f"info-nce {precision}, without graphs"] = NearfarRun(contrast, triplet, triplets, graphs=False, **ours)
    measured = common.run_interleaved(sides, plan.rounds, until=until)
    check(measured)
    speeds = {side: round(median(block.rows / block.seconds for block in blocks)) for side, blocks in measured.items()}
    print("rows per second", speeds, flush=True)
    return {side: [block._asdict() for block in blocks] for side, blocks in measured.items()}


def _softmax(model: SentenceTransformer) -> nn.Module:
    width = model.get_embedding_dimension()
    assert width is not None
    return losses.SoftmaxLoss(model, width, num_labels=len(LABEL_NAMES))


def _ranking(model: SentenceTransformer) -> nn.Module:
    return losses.MultipleNegativesRankingLoss(model)  # its default scale of 20 is info-nce's temperature of 0.05


def encode(model: Path, shape: Shape, plan: Plan, until: float) -> dict[str, Any]:
    """Seconds of each round of encoding new premises, and the lowest cosine to the peer's fp32 vectors."""
    drawn, count = SyntheticTexts(shape), plan.encoded
    texts = [[drawn.sentence("premise") for _ in range(count)] for _ in range(1 + plan.rounds)]
    ours = Encoder.from_pretrained(model, device=plan.device)
    peers = {
        precision: SentenceTransformer(str(model), device=plan.device, model_kwargs={"dtype": dtype})
        for precision, dtype in gpu_attention.DTYPES.items()
    }
    vectors: dict[str, Any] = {}

    def side(name: str, precision: str) -> Any:
        def encode_round(number: int) -> float:
            started = time.perf_counter()
            if name == "nearfar":
                found = ours.encode(texts[number], precision=precision)
            else:
                found = peers[precision].encode(texts[number], show_progress_bar=False)
            seconds = time.perf_counter() - started  # vectors are on the CPU, so no synchronisation is needed
            vectors[f"{name} {precision}"] = np.asarray(found, dtype=np.float32)
            return seconds

        return encode_round

    sides = {f"{name} {p}": side(name, p) for name in ("nearfar", common.PEER) for p in PRECISIONS}
    seconds = common.run_interleaved(sides, plan.rounds, until=until)
    reference = vectors[f"{common.PEER} fp32"]
    lowest = {name: float(common.cosines(found, reference).min()) for name, found in vectors.items()}
    tokens = sum(map(tokens_of, texts[0])) / count
    print("encoding", {name: f"{count / median(each):,.0f}/s" for name, each in seconds.items()}, flush=True)
    operations = shape.operations([tokens_of(text) for text in texts[0]])
    return {"texts": count, "mean_tokens": tokens, "operations": operations, "seconds": seconds, "lowest": lowest}


if __name__ == "__main__":
    main()
