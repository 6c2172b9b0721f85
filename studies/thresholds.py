"""How often the bound of nearfar threshold is exceeded: 1,000 random draws of judged queries from real sets.

    python studies/thresholds.py run       does what is missing from studies/results/thresholds
    python studies/thresholds.py report    fills the table of the guide from the result files only

`run` needs NEARFAR_DATA. The pairs of a set are scored once, by all-MiniLM-L6-v2. A draw is a random part of the
queries, without replacement; the true share of wrong hits at the threshold that is chosen on it is that of all queries
of the set. Beside it stands the lowest threshold at which the drawn queries show no larger share than is asked for.
"""

import argparse
import json
import os
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import ROOT, filled, load, results_of, table

from nearfar import Encoder, ThresholdConfig
from nearfar.commands.threshold import read_judged
from nearfar.data.rows import load_nli
from nearfar.disk import write_text
from nearfar.evaluation.results import provenance
from nearfar.evaluation.thresholds import Candidates, ThresholdSearch, what_is_shown
from nearfar.types import ENTAILMENT

RESULTS = results_of("thresholds")
GUIDE = ROOT / "docs" / "guides" / "use.md"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DRAWS, CONFIDENCE = 1000, 0.95


class Source(NamedTuple):
    """A judged set, and what is asked of it."""

    title: str
    spec: str
    right_from: float | None
    """The lowest score of a right pair; None for NLI rows, of which those of entailment are right."""
    asked: tuple[tuple[float, int], ...]
    """Errors, each with the number of queries of a draw."""


SOURCES = {
    "mrpc": Source("MRPC, paraphrases", "{data}/senteval/MRPC/train.tsv", 1, ((0.1, 1000), (0.2, 300), (0.2, 1000))),
    "stsb": Source("STS-B, score of 3 or more", "stsb:dev+test", 3, ((0.1, 1000), (0.2, 300), (0.2, 1000))),
    "snli": Source("SNLI, entailed hypotheses of a premise", "snli:test", None, ((0.3, 1000),)),
}


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report"))
    if parser.parse_args().command == "run":
        RESULTS.mkdir(parents=True, exist_ok=True)
        for name, source in SOURCES.items():
            file = RESULTS / f"{name}.json"
            if not file.exists():
                write_text(file, json.dumps(measure(source, draws=DRAWS), indent=1) + "\n")
    report()


def candidates_of(source: Source, encoder: Encoder) -> Candidates:
    """The pairs of a set with their cosines."""
    if source.right_from is None:
        rows = [(row.premise, row.hypothesis, row.label == ENTAILMENT) for row in load_nli(source.spec).rows]
    else:
        spec = source.spec.format(data=os.environ["NEARFAR_DATA"])
        config = ThresholdConfig(model=MODEL, output="t.json", pairs=spec, right_from=source.right_from)
        rows = list(read_judged(spec, config))
    texts = list(dict.fromkeys(text for first, second, _ in rows for text in (first, second)))
    place, vectors = {text: number for number, text in enumerate(texts)}, encoder.encode(texts, normalize=True)
    sides = [vectors[[place[row[side]] for row in rows]].astype(np.float64) for side in (0, 1)]
    queries = pd.factorize(np.array([first for first, _, _ in rows], object))[0]
    return Candidates(queries, np.einsum("pd,pd->p", *sides), np.array([right for _, _, right in rows]))


def measure(source: Source, *, draws: int) -> dict[str, Any]:
    """The result of a set."""
    every = candidates_of(source, Encoder.from_pretrained(MODEL))
    return {
        **provenance().to_dict(),
        **{"model": MODEL, "title": source.title, "draws": draws, "confidence": CONFIDENCE},
        **{"queries": int(every.queries.max()) + 1, "pairs": len(every.queries), "right": float(every.right.mean())},
        "asked": [exceeded(every, error, queries, draws=draws) for error, queries in source.asked],
    }


def exceeded(every: Candidates, error: float, queries: int, *, draws: int) -> dict[str, Any]:
    """In which share of the draws a threshold is found, and in which it lets through more wrong hits than asked for."""
    count, rng = int(every.queries.max()) + 1, np.random.default_rng(0)
    shares, shown, plain = [], [], []
    for seed in range(draws):
        drawn = every.of_queries(rng.permutation(count)[:queries])
        search = ThresholdSearch(drawn, CONFIDENCE, seed)
        if chosen := search.choose(error):
            truth = what_is_shown(every, chosen[0])
            shares.append(truth.share)
            shown.append(truth.shown / count)
        seen = ((step, what_is_shown(drawn, step)) for step in search.thresholds[::-1].tolist())
        lowest = next((step for step, now in seen if now.shown and now.share <= error), None)
        plain.append(lowest is not None and what_is_shown(every, lowest).share > error)
    return {
        **{"error": error, "queries": queries, "found": len(shares) / draws},
        "exceeded": sum(share > error for share in shares) / draws,
        "share": float(np.mean(shares)) if shares else None,
        "shown": float(np.mean(shown)) if shown else None,
        "exceeded_without_a_test": sum(plain) / draws,
    }


def report() -> None:
    """Fill the table of the guide."""
    write_text(GUIDE, fill(GUIDE.read_text(encoding="utf-8")))


def fill(text: str) -> str:
    """Replace what is between ``<!-- thresholds -->`` and ``<!-- end of thresholds -->`` by the table."""
    header = [
        "set",
        "error",
        "queries",
        "found",
        "exceeded",
        "true share",
        "queries that show hits",
        "no test: exceeded",
    ]
    rows = []
    for name in SOURCES:
        result = load(RESULTS / f"{name}.json")
        for one in result["asked"]:
            parts = (one["found"], one["exceeded"], one["share"], one["shown"], one["exceeded_without_a_test"])
            cells = ["" if part is None else f"{part:.1%}" for part in parts]
            rows.append([result["title"], f"{one['error']:.0%}", f"{one['queries']:,}", *cells])
    return filled(text, "thresholds", table(header, rows), GUIDE)


if __name__ == "__main__":
    main()
