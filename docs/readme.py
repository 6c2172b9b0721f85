"""Fill the numbers of README.md from committed result files: ``python docs/readme.py``; ``--check`` only compares."""

import json
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TABLES = ROOT / "studies" / "results" / "tables"
TRAINING = ROOT / "benchmarks" / "results" / "training.json"
DEMO = ROOT / "studies" / "results" / "demo"
ENCODING = ROOT / "benchmarks" / "results" / "encoding.json"
GPU = ROOT / "benchmarks" / "results" / "gpu.json"
RAW, TRAINED = "masked language model", "all-MiniLM-L6-v2"
MNRL = "MultipleNegativesRankingLoss"
AVERAGE = "average:seven tasks, SICK-R test"


class Recipe(NamedTuple):
    """A line of the table of recipes."""

    study: str
    kind: str
    """Kind of rows."""
    start: str
    ours: str
    """The row of nearfar in the study."""
    theirs: str
    """The row of sentence-transformers."""
    loss: str
    """The loss of the latter."""
    column: str = AVERAGE


RECIPES = (
    Recipe("recipes-triplets", "NLI rows", RAW, "all-labels", "mnrl", f"{MNRL}, no dropout"),
    Recipe(
        "recipes-nli-sentences",
        "NLI rows and sentences",
        RAW,
        "recipe-sentences",
        "mnrl-tension",
        f"{MNRL} and Contrastive Tension, no dropout",
    ),
    Recipe("recipes-nli-minilm", "NLI rows", TRAINED, "average", "mnrl", MNRL),
    Recipe("recipes-triplets", "triplets", RAW, "recipe", "mnrl", f"{MNRL}, no dropout"),
    Recipe("recipes-triplets-minilm", "triplets", TRAINED, "recipe", "mnrl", MNRL),
    Recipe("recipes-pairs-sentences", "pairs of captions", RAW, "recipe", "mnrl", f"{MNRL}, no dropout"),
    Recipe("recipes-pairs-minilm", "pairs of captions", TRAINED, "recipe", "mnrl", MNRL),
    Recipe(
        "recipes-pairs-sentences", "pairs and sentences", RAW, "recipe-sentences", "mnrl-simcse", f"{MNRL} and SimCSE"
    ),
    Recipe(
        "recipes-pairs-sentences-minilm", "pairs and sentences", TRAINED, "recipe", "mnrl-simcse", f"{MNRL} and SimCSE"
    ),
    Recipe("recipes-scored", "scored pairs", RAW, "recipe", "peer", "CoSENTLoss, no dropout"),
    Recipe("recipes-scored-minilm", "scored pairs", TRAINED, "recipe", "peer", "CoSENTLoss"),
    Recipe("recipes-labels", "labelled questions (accuracy)", RAW, "recipe", "semi-hard", "BatchSemiHard", "trec"),
    Recipe(
        "recipes-labels-minilm",
        "labelled questions (accuracy)",
        TRAINED,
        "recipe",
        "semi-hard",
        "BatchSemiHard",
        "trec",
    ),
    Recipe("recipes-sentences", "sentences alone", RAW, "recipe", "tension", "Contrastive Tension"),
    Recipe("recipes-sentences-minilm", "sentences alone", TRAINED, "recipe", "simcse", "SimCSE"),
    Recipe("recipes-teacher", "sentences and a teacher", RAW, "distill", "embed-distill", "EmbedDistillLoss"),
    Recipe("recipes-teacher-nli", "NLI rows and a teacher", RAW, "distill", "embed-distill", "EmbedDistillLoss"),
    Recipe(
        "students-narrow",
        "sentences and a teacher",
        "static, 256 dimensions",
        "same-width",
        "embed-distill",
        "EmbedDistillLoss",
    ),
)
TRAINING_ROWS = (
    ("pairs", "sbert bf16", "SoftmaxLoss bf16", "train, same loss and rows"),
    ("triplets", "simcse-sup bf16", "MultipleNegativesRankingLoss bf16", "train on triplets"),
)
GPU_ROWS = (("MiniLM-L6, 6 x 384", "info-nce bf16", "MultipleNegativesRankingLoss bf16", "train on triplets"),)
ENCODING_ROWS = (
    ("short", "nearfar bf16", "sentence-transformers fp32", "encode short texts, defaults of both"),
    ("short", "nearfar bf16", "sentence-transformers bf16", "encode short texts"),
    ("long", "nearfar bf16", "sentence-transformers bf16", "encode long texts"),
)


def main() -> int:
    """Write README.md, or with ``--check`` say whether it is up to date."""
    text = README.read_text(encoding="utf-8")
    filled = fill(text)
    if "--check" in sys.argv[1:]:
        return int(filled != text)
    README.write_text(filled, encoding="utf-8")
    return 0


def fill(text: str) -> str:
    """Replace what is between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` by the generated table of that name.

    Raises:
        ValueError: a table has no such place.
    """
    for name, lines in (("demo", demo()), ("recipes", recipes()), ("speed", speed())):
        block = "\n".join([f"<!-- {name} -->", *lines, f"<!-- end of {name} -->"])
        text, found = re.subn(f"<!-- {name} -->.*?<!-- end of {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"README.md must have one block <!-- {name} --> ... <!-- end of {name} -->.")
    return text


def demo() -> list[str]:
    """What training gains in the demo, and the time that it takes."""
    runs = {file.stem: _load(file) for file in sorted(DEMO.glob("*.json"))}
    tests = {name: run["comparison"]["tasks"]["held-out"] for name, run in runs.items()}
    found = tests["fp32-1"]
    better = sum(test["low"] > 0 for test in tests.values())
    longest = max(run["processor_seconds"] for name, run in runs.items() if name.startswith("fp32")) / 60
    interval = f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"
    text = (
        f"MRR@10 x 100 on {found['pairs']:,} held-out queries: {found['second']:.2f} before, {found['first']:.2f} "
        f"after; difference and 95% interval {interval}, above zero in {better} of {len(tests)} "
        f"[demos](docs/demo.md); p {found['p']:.4f}. Without AVX-512 a demo took at most {longest:.1f} minutes of "
        "processor time."
    )
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def recipes() -> list[str]:
    """The score and time of each recipe, beside those of a loss of sentence-transformers on the same rows."""
    rows = []
    for study, kind, start, ours, theirs, loss, column in RECIPES:
        table = _load(TABLES / study / "study.json")
        scores = {group["row"]: group["scores"][column]["mean"] for group in table["groups"]}
        seconds = {group["row"]: group["scores"]["seconds"]["mean"] for group in table["groups"]}
        (found,) = (
            one
            for one in table["comparisons"]
            if (one["first"], one["second"], one["column"]) == (ours, theirs, column)
        )
        interval = f"{found['difference']:+.2f} [{found['pairs']['low']:+.2f}, {found['pairs']['high']:+.2f}]"
        p_values = [f"{found[test]['p_holm']:.4f}" for test in ("pairs", "seeds")]
        page = f"[{kind}](docs/tables/{study}.md)"
        time = f"{seconds[ours] / seconds[theirs]:.2f}"
        rows.append((page, start, f"{scores[theirs]:.2f} ({loss})", f"{scores[ours]:.2f}", interval, *p_values, time))
    names = ("rows", "start", "sentence-transformers", "nearfar")
    header = (*names, "difference [95% interval]", "p, rows", "p, seeds", "time")
    return _table(header, rows)


def speed() -> list[str]:
    """Speed relative to sentence-transformers: median over rounds, with the lowest and highest round."""
    groups, kinds = _load(TRAINING)["groups"], _load(ENCODING)["kinds"]
    rows = []
    for group, ours, theirs, what in TRAINING_ROWS:
        sides = {
            name: [one["rows"] / one["seconds"] for one in groups[group]["sides"][name]] for name in (ours, theirs)
        }
        rows.append(_speed_row(what, ours, theirs, sides))
    on_gpu = _load(GPU)
    for encoder, ours, theirs, what in GPU_ROWS:
        blocks = on_gpu["shapes"][encoder]["training"]
        sides = {name: [one["rows"] / one["seconds"] for one in blocks[name]] for name in (ours, theirs)}
        where = on_gpu["hardware"]["accelerator"]
        rows.append(_speed_row(f"{what}, [on an {where}](docs/gpu-speed.md)", ours, theirs, sides))
    for kind, ours, theirs, what in ENCODING_ROWS:
        texts, seconds = kinds[kind]["texts"], kinds[kind]["seconds"]
        rows.append(
            _speed_row(what, ours, theirs, {name: [texts / s for s in seconds[name]] for name in (ours, theirs)})
        )
    return _table(("job", "nearfar", "sentence-transformers", "times as fast [min, max]"), rows)


def _speed_row(what: str, ours: str, theirs: str, sides: dict[str, list[float]]) -> tuple[str, ...]:
    times = [a / b for a, b in zip(sides[ours], sides[theirs], strict=True)]
    cells = [f"{median(sides[name]):,.0f}/s ({_label(name)})" for name in (ours, theirs)]
    return what, *cells, f"{median(times):.2f} [{min(times):.2f}, {max(times):.2f}]"


def _label(side: str) -> str:
    library, _, precision = side.rpartition(" ")
    return precision if library in ("nearfar", "sentence-transformers") else f"`{library}`, {precision}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def _load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    sys.exit(main())
