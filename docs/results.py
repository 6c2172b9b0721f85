"""Fill the tables on the pages of results from the committed result files: ``python docs/results.py``.

A page has a place for each table, between ``<!-- table: KIND NAME -->`` and ``<!-- end of table -->``; the words around
it are written by hand. Kinds are the functions in :data:`TABLES`. Benchmarks fill theirs by their command ``report``.
"""

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nearfar.disk import write_text
from nearfar.evaluation.render import markdown_text, to_markdown
from nearfar.evaluation.results import StudyComparison, StudyGroup, StudyTable
from nearfar.studies.page import Layout, number, paper_number, scores_table

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RESULTS = ROOT / "studies" / "results"
CHOICES = RESULTS / "choices.csv"
CAMPAIGN = ROOT / "tests" / "campaign" / "results"
PLACE = re.compile(r"<!-- table: (?P<kind>\S+) ?(?P<words>.*?) -->\n.*?<!-- end of table -->", re.DOTALL)
STS, UNSEEN = "average:seven tasks, SICK-R test", "average.unseen_by_all"
CAPTIONS, MNLI = "flickr8k:test", "mnli:dev_matched"
OF_PEER, PEER_MARK = " (sentence-transformers)", " †"
"""How names of rows say that another library trained them, and the mark in its place on a page."""
NO_SCORES = ("seconds", "members", "average")
"""Columns of choices that are not scores of a row."""


class Claim(NamedTuple):
    """A recipe beside the loss of sentence-transformers on the same rows."""

    rows: str
    study: str
    ours: str
    """The row of nearfar in the study."""
    theirs: str
    """The row of sentence-transformers."""
    loss: str
    columns: tuple[str, ...]
    """What such rows are for, then similarity."""
    tried: tuple[str, ...]
    """The choices, without ``recipes-`` and ``-choice``, whose settings were tried for these rows."""
    no_claim: str = ""
    """Why the difference is none; empty for a claim."""


MNRL = "MultipleNegativesRankingLoss"
AFTER = "no claim: its own test decided between settings"
CLAIMS = {
    "all-MiniLM-L6-v2": (
        Claim(
            *("pairs of captions", "recipes-pairs-minilm", "recipe", "mnrl", f"{MNRL}, 2e-5"),
            (CAPTIONS, STS),
            ("pairs-minilm", "pairs-minilm-more"),
        ),
        Claim(
            *("pairs and sentences", "recipes-pairs-sentences-minilm", "recipe", "mnrl-simcse"),
            f"{MNRL} and SimCSE, 1e-5, the lowest tried",
            (CAPTIONS, STS),
            ("pairs-sentences-minilm",),
        ),
        Claim(
            *("NLI rows", "recipes-nli-minilm", "average", "mnrl", f"{MNRL}, 1e-5, the lowest tried"),
            (MNLI, STS),
            ("nli-minilm", "nli-minilm-start"),
        ),
        Claim(
            *("triplets", "recipes-triplets-minilm", "recipe", "mnrl", f"{MNRL}, 5e-5"),
            (MNLI, STS),
            ("triplets-minilm", "triplets-minilm-more"),
            AFTER,
        ),
        Claim(
            *("labelled questions", "recipes-labels-minilm", "recipe", "semi-hard"),
            "BatchSemiHard, 1e-4, the highest tried",
            ("trec", STS),
            ("labels-minilm",),
        ),
        Claim(
            *("scored pairs", "recipes-scored-minilm", "recipe", "peer", "CoSENTLoss, 5e-5"),
            (STS,),
            ("scored-minilm",),
        ),
        Claim(
            *("sentences alone", "recipes-sentences-minilm", "recipe", "simcse", "SimCSE, 1e-5, the lowest tried"),
            (STS,),
            ("sentences-minilm", "sentences-minilm-more"),
        ),
    ),
    "poor": (
        Claim(
            *("pairs of captions", "recipes-pairs-sentences", "recipe", "mnrl", f"{MNRL}, no dropout, one rate"),
            (CAPTIONS, STS),
            ("pairs", "pairs-sentences"),
        ),
        Claim(
            *("pairs and sentences", "recipes-pairs-sentences", "recipe-sentences", "mnrl-simcse"),
            f"{MNRL} and SimCSE, 2e-4",
            (CAPTIONS, STS),
            ("pairs-sentences",),
        ),
        Claim(
            *("NLI rows", "recipes-triplets", "all-labels", "mnrl", f"{MNRL}, no dropout, 2e-4"),
            (MNLI, STS),
            ("nli", "nli-more", "nli-start", "nli-peers"),
        ),
        Claim(
            *("NLI rows and sentences", "recipes-nli-sentences", "recipe-sentences", "mnrl-tension"),
            f"{MNRL} and Contrastive Tension, one setting",
            (MNLI, STS),
            ("nli-more",),
        ),
        Claim(
            *("triplets", "recipes-triplets", "recipe", "mnrl", f"{MNRL}, no dropout, 2e-4"),
            (MNLI, STS),
            ("triplets",),
            AFTER,
        ),
        Claim(
            *("labelled questions", "recipes-labels", "recipe", "semi-hard", "BatchSemiHard, 2e-4"),
            ("trec", STS),
            ("labels", "labels-more"),
        ),
        Claim(
            *("scored pairs", "recipes-scored", "recipe", "peer", "CoSENTLoss, no dropout, 2e-4"), (STS,), ("scored",)
        ),
        Claim(
            *("sentences alone", "recipes-sentences", "recipe", "tension"),
            "Contrastive Tension, 3e-5, the lowest tried",
            (STS,),
            ("sentences", "sentences-more", "sentences-last"),
        ),
        Claim(
            *("sentences and a teacher", "recipes-teacher", "distill", "embed-distill", "EmbedDistillLoss, 1e-3"),
            (STS,),
            ("teacher", "teacher-more", "teacher-average"),
        ),
        Claim(
            *("NLI texts and a teacher", "recipes-teacher-nli", "distill", "embed-distill"),
            "EmbedDistillLoss, 1e-3, not tried on these texts",
            (STS,),
            ("teacher-nli",),
        ),
    ),
}
"""Start -> claims."""


def main() -> None:
    """Fill every page below docs that has places for tables, and copy the plots of the papers' tables beside it."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (filled := fill(text)) != text:
            write_text(page, filled)
    for plot in sorted((RESULTS / "papers").glob("*/*.svg")):
        shutil.copyfile(plot, DOCS / "papers" / f"{plot.parent.name}-{plot.name}")


def fill(text: str) -> str:
    """The page with its tables made anew."""

    def filled(place: re.Match[str]) -> str:
        head = place[0].partition("\n")[0]
        return f"{head}\n\n{TABLES[place['kind']](place['words']).strip()}\n\n<!-- end of table -->"

    return PLACE.sub(filled, text)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(columns) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def study_of(name: str, kind: str = "tables") -> StudyTable:
    """The record of a study."""
    return StudyTable.load(RESULTS / kind / name / "study.json")


def study(words: str) -> str:
    """``NAME[: COLUMN; ...]``: means of the tested columns, or of those named, and below them the tested differences."""
    layout, shown = _shown(words)
    runs = {(group.row, *group.coordinates.items()): group.runs for group in layout.table.groups}
    rows = _means(layout, shown)
    for pair, of_column in _pairs(layout).items():
        one = next(iter(of_column.values()))
        sides = ((one.first, one.first_coordinates), (one.second, one.second_coordinates))
        alone = [runs.get((row, *places.items()), 0) < 2 for row, places in sides]
        if not any(alone) or "training" in pair or "teacher" in pair:
            empty = [""] * (1 + len(layout.study.axes))
            rows.append([f"*{pair}*", *empty, *(_claim(of_column.get(column)) for column in shown)])
    return _table(_columns(layout, shown), rows)


def means(words: str) -> str:
    """As ``study``, without differences."""
    layout, shown = _shown(words)
    return _table(_columns(layout, shown), _means(layout, shown))


def claims(words: str) -> str:
    """``NAME[: WORDS]``: the tested differences of a study whose names have these words."""
    name, _, wanted = words.partition(": ")
    layout = Layout(study_of(name))
    shown = list(dict.fromkeys(one.column for one in layout.table.comparisons))
    rows = [
        [pair, *(_claim(of_column.get(column)) for column in shown)]
        for pair, of_column in _pairs(layout).items()
        if wanted in pair
    ]
    return _table(["", *map(layout.heading, shown)], rows)


def _shown(words: str) -> tuple[Layout, list[str]]:
    """The study and its columns on the page; unseen pairs have one where it differs from that of all pairs."""
    name, _, columns = words.partition(": ")
    table = study_of(name)
    if columns:
        return Layout(table), columns.split("; ")
    tested = list(dict.fromkeys(one.column for one in table.comparisons))
    shown = tested or [column for column in table.columns if column not in NO_SCORES]
    return Layout(table), [one for one in shown if one != UNSEEN or not _says_the_same(table)]


def _columns(layout: Layout, shown: Sequence[str]) -> list[str]:
    return ["", *(axis.name for axis in layout.study.axes), "runs", *map(layout.heading, shown)]


def _means(layout: Layout, shown: Sequence[str]) -> list[list[str]]:
    axes = [axis.name for axis in layout.study.axes]
    return [
        [
            _name(layout.name(group.row, {})),
            *(group.coordinates.get(axis, "") for axis in axes),
            str(group.runs),
            *(_mean(group, column) for column in shown),
        ]
        for group in layout.table.groups
    ]


def _pairs(layout: Layout) -> dict[str, dict[str, StudyComparison]]:
    """Compared pair in words -> column -> its difference."""
    pairs: dict[str, dict[str, StudyComparison]] = {}
    for one in layout.table.comparisons:
        pairs.setdefault(_name(layout.pair(one)), {})[one.column] = one
    return pairs


def _says_the_same(table: StudyTable) -> bool:
    """Whether the average over unseen pairs is that over all pairs, to a tenth of a point."""
    pairs = [(group.scores.get(STS), group.scores.get(UNSEEN)) for group in table.groups]
    return all(a and b and a.mean and b.mean and abs(a.mean - b.mean) < 0.1 for a, b in pairs)


def _mean(group: StudyGroup, column: str) -> str:
    score = group.scores.get(column)
    return "–" if score is None or score.mean is None else number(score.mean, column)


def _name(name: str) -> str:
    return markdown_text(name.replace(OF_PEER, PEER_MARK))


def _claim(one: StudyComparison | None) -> str:
    """``+0.25 [−0.10, 0.60] cannot tell``; empty without one."""
    if one is None or one.difference is None:
        return ""
    difference = number(one.difference, one.column, sign=True)
    if one.low is None or one.high is None:
        return difference
    interval = f"[{number(one.low, one.column)}, {number(one.high, one.column)}]"
    return f"{difference} {interval} {one.verdict or ''}".strip()


def recipes(start: str) -> str:
    """``START``: every recipe from it beside no training and the peer."""
    tried = pd.read_csv(CHOICES, dtype=str, keep_default_na=False)
    settings = tried[["study", "row", "setting", "side"]].drop_duplicates().groupby(["study", "side"]).size()
    rows: list[list[str]] = []
    for claim in CLAIMS[start]:
        table = study_of(claim.study)
        layout = Layout(table)
        groups = {group.row: group for group in table.groups}
        ours, theirs = (
            sum(int(settings.get((f"recipes-{name}-choice", side), 0)) for name in claim.tried)
            for side in ("nearfar", "sentence-transformers")
        )
        for place, column in enumerate(claim.columns):
            (one,) = (
                found
                for found in table.comparisons
                if (found.first, found.second, found.column) == (claim.ours, claim.theirs, column)
            )
            rows.append(
                [
                    f"[{claim.rows}]({PAGES[claim.study]})" if place == 0 else "",
                    layout.heading(column),
                    *(_mean(groups[row], column) for row in ("untrained", claim.theirs, claim.ours)),
                    f"{_claim(one).rpartition(']')[0]}] {claim.no_claim}" if claim.no_claim else _claim(one),
                    f"{claim.loss}: {theirs}; nearfar {ours}" if place == 0 else "",
                ]
            )
    columns = ["rows", "judged by", "no training", "peer", "nearfar", "difference [95%]", "the peer, settings tried"]
    return _table(columns, rows, left=2)


PAGES = {
    f"recipes-{name}": f"{page}.md"
    for page, names in {
        "pairs": "pairs pairs-minilm pairs-sentences pairs-sentences-minilm",
        "nli": "nli nli-minilm nli-sentences triplets triplets-minilm",
        "labels": "labels labels-minilm scored scored-minilm",
        "sentences": "sentences sentences-minilm teacher teacher-nli",
    }.items()
    for name in names.split()
}
"""Study -> its page."""


def tried(name: str) -> str:
    """``NAME``: the settings of a choice, from its best to its worst, in a table that opens at a click."""
    file = ROOT / "studies" / "tables" / f"{name}.toml"
    spec = tomllib.loads(file.read_text(encoding="utf-8"))
    names = {row["id"]: row.get("name", row["id"]) for row in spec["rows"]}
    known = pd.read_csv(CHOICES, keep_default_na=False, dtype={"setting": str})
    own = known[(known.study == name) & ~known.column.isin(NO_SCORES)]
    means = own.groupby(["row", "setting", "column"], sort=False).value.mean().unstack("column")
    scores = [column for column in spec["columns"] if column in means]
    counts = own.groupby(["row", "setting"]).seed.nunique()
    means["mean"] = means[scores].mean(axis=1)
    means = means.sort_values("mean", ascending=False, kind="stable")
    shown = scores if len(scores) < 3 else ["mean"]
    titles = [spec.get("titles", {}).get(column, column) for column in scores]
    several = int(counts.max())
    rows: list[list[str]] = []
    for (row, setting), values in means.iterrows():  # type: ignore[misc]
        words = ", ".join(filter(None, [_name(names[row]), setting]))
        rows.append(
            [words, *(f"{values[column]:.2f}" if values[column] == values[column] else "–" for column in shown)]
        )
    head = titles if len(scores) < 3 else [f"mean of {', '.join(titles)}"]
    table = _table([f"{len(means)} settings, {_seeds(several)}", *head], rows)
    return f'<details markdown="1">\n<summary>{spec["title"]}</summary>\n\n{table}\n\n</details>'


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"up to {count} seeds"


def paper(name: str) -> str:
    """``NAME``: a table of a paper beside its numbers, the differences of its average, and its plots."""
    table = study_of(name, "papers")
    layout = Layout(table)
    parts = [to_markdown(replace(scores_table(layout), title=""))]
    averages = [one for one in table.comparisons if one.column.startswith("average")]
    rows: list[list[str]] = [
        [_name(layout.pair(one)), layout.heading(one.column), _paper(one), _claim(one)]
        for one in averages or table.comparisons
    ]
    if rows:
        parts.append(_table(["difference", "column", "paper", "here [95%]"], rows, left=2))
    for plot in sorted((RESULTS / "papers" / name).glob("*.svg")):
        parts.append(f"![{table.title}: {plot.stem.replace('-', ' ')}]({name}-{plot.name})")
    return "\n\n".join(part.strip() for part in parts)


def _paper(one: StudyComparison) -> str:
    return "" if one.paper is None else ("+" if one.paper > 0 else "") + paper_number(one.paper, one.column)


def reliability(_: str) -> str:
    """Cases and failures of each part of the campaign, before and after the faults were mended."""
    counts: dict[str, dict[str, list[int]]] = {}
    for when in ("before", "after"):
        content = json.loads((CAMPAIGN / f"{when}.json").read_text(encoding="utf-8"))
        for part, groups in content["counts"].items():
            counts.setdefault(part, {})[when] = [sum(numbers) for numbers in zip(*groups.values(), strict=True)]
    columns = ["part", "before: cases", "failed", "after: cases", "failed"]
    rows: list[list[str]] = [
        [part, *(f"{count:,}" for when in ("before", "after") for count in of[when])] for part, of in counts.items()
    ]
    return _table(columns, rows)


TABLES: dict[str, Callable[[str], str]] = {
    "study": study,
    "means": means,
    "claims": claims,
    "recipes": recipes,
    "tried": tried,
    "paper": paper,
    "reliability": reliability,
}

if __name__ == "__main__":
    main()
