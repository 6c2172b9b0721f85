"""Fill the numbers of README.md from committed result files: ``python docs/readme.py``; ``--check`` only compares."""

import json
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from nearfar.commands.demo import HOLD_OUT
from nearfar.config.values import flag
from nearfar.data.catalog import find
from nearfar.evaluation.render import to_text
from nearfar.evaluation.results import ComparisonResult
from nearfar.runs.held_out import before_after

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DEMO = ROOT / "studies" / "results" / "demo" / "fp32-1.json"
CLAIMS = ROOT / "studies" / "results" / "readme" / "claims.json"
BENCHMARKS = ROOT / "benchmarks" / "results"
PEER, MNRL = "sentence-transformers", "MultipleNegativesRankingLoss"
SHAPE = "MiniLM-L6, 6 x 384"


def main() -> int:
    """Write README.md, or with ``--check`` say whether it is up to date."""
    text = README.read_text(encoding="utf-8")
    filled = fill(text)
    if "--check" in sys.argv[1:]:
        return int(filled != text)
    README.write_text(filled, encoding="utf-8")
    return 0


def fill(text: str) -> str:
    """Replace what is between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` by the generated lines of that name.

    Raises:
        ValueError: a block is not there once.
    """
    for name, lines in (
        ("terminal", terminal()),
        ("claims", claims(_load(CLAIMS) if CLAIMS.exists() else [])),
        ("speed", speed()),
    ):
        block = "\n".join([f"<!-- {name} -->", *lines, f"<!-- end of {name} -->"])
        text, count = re.subn(f"<!-- {name} -->.*?<!-- end of {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"README.md must have one block <!-- {name} --> ... <!-- end of {name} -->.")
    return text


def terminal() -> list[str]:
    """What the demo's training reads and prints: two of the pairs, the command, and the table of a committed run."""
    rows = find("microworld-paraphrases")[0].rows(("anchor", "positive"))
    pairs = ["\t".join(map(str, values)) for _, values in islice(rows, 2)]
    settings = {"data": "demo/pairs.tsv", "hold_out": HOLD_OUT, "precision": "fp32", "output": "demo/mine"}
    flags = [word for name, value in settings.items() for word in (flag(name), str(value))]
    train = shlex.join(["nearfar", "train", *flags])  # the demo's settings, beside its run
    table = before_after(ComparisonResult.from_dict(_load(DEMO)["comparison"]))
    printed = to_text(replace(table, notes=[]), width=100)
    return ["```console", "$ head -3 demo/pairs.tsv", "anchor\tpositive", *pairs, f"$ {train}", printed, "```"]


def claims(measured: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each kind of rows that was measured for this page.

    Scores are those without training, with sentence-transformers and with nearfar. The lead of nearfar is that over
    sentence-transformers where at least as many of its settings were tried or it is ahead, else that over no training.
    """
    header = (
        "your rows",
        "judged by",
        "no training",
        PEER,
        "nearfar",
        "nearfar's lead [95%]",
        "settings tried: theirs, nearfar",
        "looks at the test",
    )
    return _table(header, map(_claim, measured), left=2)


def _claim(row: dict[str, Any]) -> tuple[str, ...]:
    scores = (f"{row[side]:.2f}" for side in ("start", "peer", "ours"))
    fair = row["verdict"] is not None
    over, tested = ("", row) if fair else ("over no training ", row["versus_start"])
    lead = f"{tested['difference']:+.2f} [{tested['low']:+.2f}, {tested['high']:+.2f}] {tested['verdict']}"
    tried = f"{row['settings_peer']}, {row['settings_ours']}"
    place = f"[{row['rows']}]({row['page']})"
    return place, row["metric"], *scores, f"{over}{lead.replace('-', '−')}", tried, str(row["looks"])


def speed() -> list[str]:
    """Speed relative to sentence-transformers, each at its fastest precision: median over rounds, [lowest, highest]."""
    training, gpu, encoding = (_load(BENCHMARKS / f"{name}.json") for name in ("training", "gpu", "encoding"))
    triplets, card = training["groups"]["triplets"]["sides"], gpu["hardware"]["accelerator"]
    jobs = (
        ("[train](docs/training-speed.md) on triplets, two cores", triplets, "simcse-sup", MNRL),
        (f"[train](docs/gpu-speed.md) on triplets, {card}", gpu["shapes"][SHAPE]["training"], "info-nce", MNRL),
        *(
            (f"[encode](docs/encoding-speed.md) {kind} texts, two cores", _rounds(block), "nearfar", PEER)
            for kind, block in encoding["kinds"].items()
        ),
    )
    rows = []
    for job, rounds, ours, theirs in jobs:
        (fast, precision), (slow, peers) = _fastest(rounds, ours), _fastest(rounds, theirs)
        times = [a / b for a, b in zip(fast, slow, strict=True)]
        sides = (f"{median(slow):,.0f} ({peers})", f"{median(fast):,.0f} ({precision})")
        rows.append((job, *sides, f"{median(times):.2f} [{min(times):.2f}, {max(times):.2f}]"))
    return _table(("rows or texts a second", PEER, "nearfar", "times as fast [min, max]"), rows)


def _rounds(block: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """The rounds of an encoding benchmark in the form of those of training: rows and seconds."""
    return {
        side: [{"rows": block["texts"], "seconds": one} for one in times] for side, times in block["seconds"].items()
    }


def _fastest(rounds: dict[str, list[dict[str, float]]], library: str) -> tuple[list[float], str]:
    """Rows a second in each round, and the precision, of the fastest ``library PRECISION`` with the most rounds."""
    most = max(map(len, rounds.values()))
    speeds = {
        side.removeprefix(f"{library} "): [one["rows"] / one["seconds"] for one in blocks]
        for side, blocks in rounds.items()
        if side.startswith(f"{library} ") and "," not in side and len(blocks) == most
    }
    best = max(speeds, key=lambda precision: median(speeds[precision]))
    return speeds[best], best


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    rule = [*["---"] * left, *["---:"] * (len(header) - left)]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def _load(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
