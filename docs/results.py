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
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
from msgspec import structs

from nearfar.commands.compare import compare
from nearfar.disk import write_text
from nearfar.encoder.precision import BF16_SETS
from nearfar.evaluation.render import markdown_text, to_markdown
from nearfar.evaluation.results import (
    ComparisonResult,
    EvaluationResult,
    PairedTest,
    StudyComparison,
    StudyTable,
)
from nearfar.evaluation.tables import screen_tables
from nearfar.studies.cells import load_study
from nearfar.studies.groups import scores_of
from nearfar.studies.page import Layout, Order, agreement, claim, number, order_of, paper_difference, scores_table
from nearfar.studies.papers import table_file
from nearfar.studies.spec import NO_SCORES
from nearfar.studies.table import compare_groups, what_is_compared
from nearfar.studies.units import Resampler

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RESULTS = ROOT / "studies" / "results"
CHOICES = RESULTS / "choices.csv"
CAMPAIGN = ROOT / "tests" / "campaign" / "results"
CAMPAIGN_PARTS = {
    "kills": "killed before or after a system call, then continued",
    "faults": "a system call that fails",
    "inputs": "malformed files, flags and settings",
}
PLACE = re.compile(r"<!-- table: (?P<kind>\w+)(?P<words>[^\n]*?) -->\n.*?<!-- end of table -->", re.DOTALL)
STS, UNSEEN = "average:seven tasks, SICK-R test", "average.unseen_by_all"
SINGLE = "sts12"
"""The task of these seven that each study of them has."""
UNTRAINED = "untrained"
PROBES = ("cr", "trec")
"""Columns whose differences are left out where they are not what the rows are for."""
MEASURES = ("mrr@10", "recall@10")
OF_PEER, PEER_MARK = " (sentence-transformers)", " †"
"""How names of rows say that another library trained them, and the mark in its place on a page."""
WORDS_ON_A_ROW = re.compile(r" \([^()]*\)")
"""What a row is, after its name, which differences leave out."""
SPREAD, MARKS = re.compile(r"(?<=\d) \(\d+(\.\d+)?\)"), "¹²³⁴⁵⁶⁷⁸⁹"
"""The standard deviation after a mean, which tables of papers leave out; and the marks of notes that they keep."""
NOT_SHOWN = ("seconds", "bytes", "updates_per_second")
"""Columns that are not shown unless they are named."""
ORDERS: dict[Order, str] = {
    "same sign, significant": "Seen",
    "same sign, not significant": "Same direction, which chance could give too",
    "opposite sign": "Not seen, the other way round here",
    "no difference": "Not seen, no difference here",
}
"""Whether an ordering of a paper is seen, in the words of the pages."""
OF_MEMBERS = ("members", "average")
"""Columns of averages of runs: the mean score of the runs, and that of the average of their weights."""


class Recipe(NamedTuple):
    """A recipe beside the loss of sentence-transformers on the same rows."""

    rows: str
    study: str
    ours: str
    """The row of nearfar in the study."""
    theirs: str
    """The row of sentence-transformers."""
    loss: str
    tried: tuple[str, ...]
    """The choices, without ``recipes-`` and ``-choice``, whose settings were tried for these rows."""
    no_claim: str = ""
    """Why the difference is none; empty for a claim."""


MNRL = "MultipleNegativesRankingLoss"
AFTER = "no claim"
RECIPES = {
    "all-MiniLM-L6-v2": (
        Recipe(
            *("pairs of captions", "recipes-pairs-minilm", "recipe", "mnrl", f"{MNRL}, 2e-5"),
            ("pairs-minilm", "pairs-minilm-more"),
        ),
        Recipe(
            *("pairs and sentences", "recipes-pairs-sentences-minilm", "recipe", "mnrl-simcse"),
            f"{MNRL} and SimCSE, 1e-5, the lowest tried",
            ("pairs-minilm", "pairs-minilm-more", "pairs-sentences-minilm"),
        ),
        Recipe(
            *("NLI rows", "recipes-nli-minilm", "average", "mnrl", f"{MNRL}, 1e-5, the lowest tried"),
            ("nli-minilm", "nli-minilm-start"),
        ),
        Recipe(
            *("triplets", "recipes-triplets-minilm", "recipe", "mnrl", f"{MNRL}, 5e-5"),
            ("triplets-minilm", "triplets-minilm-more"),
            AFTER,
        ),
        Recipe(
            *("labelled questions", "recipes-labels-minilm", "recipe", "semi-hard"),
            "BatchSemiHard, 1e-4, the highest tried",
            ("labels-minilm",),
        ),
        Recipe(
            *("scored pairs", "recipes-scored-minilm", "recipe", "peer", "CoSENTLoss, 5e-5"),
            ("scored-minilm",),
        ),
        Recipe(
            *("sentences alone", "recipes-sentences-minilm", "recipe", "simcse", "SimCSE, 1e-5, the lowest tried"),
            ("sentences-minilm", "sentences-minilm-more"),
        ),
    ),
    "poor": (
        Recipe(
            *("pairs of captions", "recipes-pairs-sentences", "recipe", "mnrl", f"{MNRL}, no dropout, one rate"),
            ("pairs", "pairs-sentences"),
        ),
        Recipe(
            *("pairs and sentences", "recipes-pairs-sentences", "recipe-sentences", "mnrl-simcse"),
            f"{MNRL} and SimCSE, 2e-4",
            ("pairs-sentences",),
        ),
        Recipe(
            *("NLI rows", "recipes-triplets", "all-labels", "mnrl", f"{MNRL}, no dropout, 2e-4"),
            ("nli", "nli-more", "nli-start", "nli-peers"),
        ),
        Recipe(
            *("NLI rows and sentences", "recipes-nli-sentences", "recipe-sentences", "mnrl-tension"),
            f"{MNRL} and Contrastive Tension, one setting",
            ("nli-more",),
        ),
        Recipe(
            *("triplets", "recipes-triplets", "recipe", "mnrl", f"{MNRL}, no dropout, 2e-4"),
            ("triplets",),
            AFTER,
        ),
        Recipe(
            *("labelled questions", "recipes-labels", "recipe", "semi-hard", "BatchSemiHard, 2e-4"),
            ("labels", "labels-more"),
        ),
        Recipe(*("scored pairs", "recipes-scored", "recipe", "peer", "CoSENTLoss, no dropout, 2e-4"), ("scored",)),
        Recipe(
            *("sentences alone", "recipes-sentences", "recipe", "tension"),
            "Contrastive Tension, 3e-5, the lowest tried",
            ("sentences", "sentences-more", "sentences-last"),
        ),
        Recipe(
            *("sentences and a teacher", "recipes-teacher", "distill", "embed-distill", "EmbedDistillLoss, 1e-3"),
            ("teacher", "teacher-more", "teacher-average"),
        ),
        Recipe(
            *("NLI texts and a teacher", "recipes-teacher-nli", "distill", "embed-distill"),
            "EmbedDistillLoss, 1e-3, not tried on these texts",
            ("teacher-nli",),
        ),
    ),
}
"""Start -> its recipes."""


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
        return f"{head}\n\n{TABLES[place['kind']](place['words'].strip()).strip()}\n\n<!-- end of table -->"

    return PLACE.sub(filled, text)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(columns) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def study_of(name: str, kind: str = "tables") -> StudyTable:
    """The record of a study."""
    return StudyTable.load(RESULTS / kind / name / "study.json")


def study(words: str) -> str:
    """``NAME[: COLUMN; ...]``: means of the tested columns, or of those named; below them the tested differences.

    A lead over a row of sentence-transformers has no word where fewer of its settings were tried.
    """
    layout, shown = _shown(words)
    hidden = () if shown[0] in PROBES else PROBES
    rows = _means(layout, shown)
    recipes_here = [one for start in RECIPES.values() for one in start if one.study == words.partition(":")[0]]
    fewer_tried = any(theirs < ours for ours, theirs in map(_settings_tried, recipes_here))
    for pair, of_column in _pairs(layout).items():
        one = next(iter(of_column.values()))
        sides = ((one.first, one.first_coordinates), (one.second, one.second_coordinates))
        if min(layout.runs(layout.groups.index(side)) for side in sides) > 1 or "training" in pair or "teacher" in pair:
            shared = dict(sides[0][1].items() & sides[1][1].items())
            places = [shared.get(axis.name, "") for axis in layout.study.axes]
            by_peer = [OF_PEER in layout.study.row(row).name for row, _ in sides]
            searched = fewer_tried and by_peer == [False, True]
            differences = [None if column in hidden else of_column.get(column) for column in shown]
            told = [_claim(one, word=not (searched and one and (one.difference or 0) > 0)) for one in differences]
            rows.append([f"*{WORDS_ON_A_ROW.sub('', pair)}*", *places, "", *told])
    return _table(_columns(layout, shown), rows)


def means(words: str) -> str:
    """``NAME[: COLUMN; ...][ of ROW; ...]``: as ``study``, without differences; rows are named by their ids."""
    words, _, rows = words.partition(" of ")
    layout, shown = _shown(words)
    return _table(_columns(layout, shown), _means(layout, shown, rows.split("; ") if rows else ()))


def scores(name: str) -> str:
    """``NAME``: all scores of a study beside published ones, after a slash."""
    return to_markdown(replace(scores_table(Layout(study_of(name))), title=""))


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
    layout = Layout(study_of(name))
    if columns:
        return layout, columns.split("; ")
    tested = list(dict.fromkeys(one.column for one in layout.table.comparisons))
    shown = tested or [column for column in layout.table.columns if column not in NOT_SHOWN]
    pairs = [[layout.scores.get((group, column)) for column in (STS, UNSEEN)] for group in range(len(layout.groups))]
    known = [[score.mean or 0.0 for score in pair if score] for pair in pairs]
    same = all(len(means) == 2 and abs(means[0] - means[1]) < 0.1 for means in known)
    return layout, [column for column in shown if column != UNSEEN or not same]


def _columns(layout: Layout, shown: Sequence[str]) -> list[str]:
    return ["", *(axis.name for axis in layout.study.axes), "runs", *map(layout.heading, shown)]


def _means(layout: Layout, shown: Sequence[str], rows: Sequence[str] = ()) -> list[list[str]]:
    """A line for each group, or for those of ``rows``."""
    axes = [axis.name for axis in layout.study.axes]
    return [
        [
            _name(layout.name(row, {})),
            *(coordinates.get(axis, "") for axis in axes),
            str(layout.runs(group)),
            *(_mean(layout, group, column) for column in shown),
        ]
        for group, (row, coordinates) in enumerate(layout.groups)
        if not rows or row in rows
    ]


def _pairs(layout: Layout) -> dict[str, dict[str, StudyComparison]]:
    """Compared pair in words -> column -> its difference."""
    pairs: dict[str, dict[str, StudyComparison]] = {}
    for one in layout.table.comparisons:
        pairs.setdefault(_name(layout.pair(one)), {})[one.column] = one
    return pairs


def _mean(layout: Layout, group: int, column: str) -> str:
    score = layout.scores[group, column]
    return "–" if score.mean is None else number(score.mean, column)


def _name(name: str) -> str:
    return markdown_text(name.replace(OF_PEER, PEER_MARK))


def _claim(one: StudyComparison | None, *, word: bool = True) -> str:
    """``+0.25 [−0.10, +0.60] cannot tell``, or without its ``word``; empty without one."""
    return (
        ""
        if one is None or one.difference is None
        else f"{claim(one)[0]} {(one.verdict if word else None) or ''}".strip()
    )


def recipes(start: str) -> str:
    """``START``: every recipe from it beside no training and the peer.

    The lead is that over the peer where at least as many of its settings were tried or it is ahead, else that over no
    training, or where that was not tested, that over the peer without a verdict. Lines are the claims of the study:
    what such rows are for, then similarity.
    """
    rows: list[list[str]] = []
    for recipe in RECIPES[start]:
        table = study_of(recipe.study)
        layout = Layout(table)
        groups = {row: group for group, (row, _) in enumerate(layout.groups)}
        ours, theirs = _settings_tried(recipe)
        for place, column in enumerate(layout.study.claims or ()):
            over = {one.second: one for one in table.comparisons if (one.first, one.column) == (recipe.ours, column)}
            ahead = over[recipe.theirs].difference < 0  # with fewer settings, all the more
            fair = (theirs >= ours or ahead) and not recipe.no_claim
            if fair or recipe.no_claim or UNTRAINED not in over:
                lead = [claim(over[recipe.theirs])[0], over[recipe.theirs].verdict if fair else recipe.no_claim]
            else:
                lead = ["over no training", _claim(over[UNTRAINED])]
            rows.append(
                [
                    f"[{recipe.rows}]({PAGES[recipe.study]})" if place == 0 else "",
                    layout.heading(column),
                    *(_mean(layout, groups[row], column) for row in (UNTRAINED, recipe.theirs, recipe.ours)),
                    " ".join(filter(None, lead)),
                    f"{recipe.loss}: {theirs}; nearfar {ours}" if place == 0 else "",
                    str(_looks(column)),
                ]
            )
    columns = ["rows", "judged by", "no training", "peer", "nearfar", "nearfar's lead [95%]"]
    return _table([*columns, "the peer, settings tried", "looks"], rows, left=2)


def _settings_tried(recipe: Recipe) -> list[int]:
    """How many settings nearfar's side and the peer's had."""
    known = pd.read_csv(CHOICES, dtype=str, keep_default_na=False)
    of_recipe = known[known["study"].isin([f"recipes-{name}-choice" for name in recipe.tried])]
    settings = of_recipe[["study", "row", "setting", "side"]].drop_duplicates()["side"].value_counts()
    return [int(settings.get(side, 0)) for side in ("nearfar", "sentence-transformers")]


def _looks(column: str) -> int:
    """How many committed studies have the scores of a test."""
    return sum((SINGLE if column == STS else column) in one.columns for one in _every_study())


@cache
def _every_study() -> list[StudyTable]:
    return [StudyTable.load(file) for file in sorted(RESULTS.glob("*/*/study.json"))]


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
    spec = tomllib.loads((ROOT / "studies" / "tables" / f"{name}.toml").read_text(encoding="utf-8"))
    names = {row["id"]: _name(row.get("name", row["id"])) for row in spec["rows"]}
    known = pd.read_csv(CHOICES, keep_default_na=False, dtype={"setting": str})
    own = known[(known.study == name) & (known.column != "seconds")]
    if own.empty:
        return ""  # it was not run
    values = own.groupby(["row", "setting", "column"], sort=False).value.mean().unstack("column")
    titles = {column: spec["titles"][column] for column in spec["columns"] if column in values}
    if len(shown := [column for column in titles if column in OF_MEMBERS] or [*titles]) > 2:
        values["mean"] = values[shown].mean(axis=1, skipna=False)
        titles["mean"] = f"mean of {', '.join(titles[column] for column in shown)}"
        shown = ["mean"]
    values["order"] = values[shown].mean(axis=1)
    seeds = own.groupby(["row", "setting"]).seed.nunique().max()
    rows = [
        [", ".join(filter(None, [names[row], setting])), *(_two_digits(scores[column]) for column in shown)]
        for (row, setting), scores in values.sort_values("order", ascending=False, kind="stable").iterrows()  # type: ignore[misc]
    ]
    head = [f"{len(rows)} settings, {'one seed' if seeds == 1 else f'up to {seeds} seeds'}"]
    table = _table([*head, *(titles[column] for column in shown)], rows)
    title = spec["title"].removesuffix(": the choice").removesuffix(", the choice")
    return f'<details markdown="1">\n<summary>Tried: {title}</summary>\n\n{table}\n\n</details>'


def _two_digits(value: float | None) -> str:
    return "–" if pd.isna(value) else f"{value:.2f}"


def paper(name: str) -> str:
    """``NAME``: a table of a paper beside its numbers, tested differences, orderings, plots; or that it was not run."""
    if not (RESULTS / "papers" / name / "study.json").exists():
        return f"Not run yet: `nearfar reproduce {name} --scale here --start FOLDER`."
    table = study_of(name, "papers")
    layout = Layout(table)
    shown = scores_table(layout)
    text = to_markdown(replace(shown, title="", notes=[one for one in shown.notes if one[0] in MARKS]))
    timed = all(column in NO_SCORES for column in table.columns)
    added = _added_comparisons(name, table)
    averages = [one for one in (*table.comparisons, *added) if one.column.startswith("average")]
    tested = averages or table.comparisons
    rows: list[list[str]] = [
        [_name(layout.pair(one)), layout.heading(one.column), paper_difference(layout, one), _claim(one)]
        for one in tested
        if one not in added
    ]
    rows += [
        [
            _name(layout.pair(one)),
            layout.heading(one.column),
            paper_difference(layout, one),
            f"{claim(one)[0]} over the runs alone",
        ]
        for one in added
        if one in tested
    ]
    differences = _table(["difference", "column", "paper", "here [95%]"], rows, left=2) if rows else ""
    seen = _orderings(layout, [one for one in tested if one not in added])
    parts = [text if timed else SPREAD.sub("", text), differences, seen, _timing(layout), _made(table), plots(name)]
    return "\n\n".join(part.strip() for part in parts if part)


def _added_comparisons(name: str, table: StudyTable) -> list[StudyComparison]:
    """Pairs that the description compares and an older record does not: their intervals are over the runs alone.

    The scores of test pairs are not in a record, so that the test data cannot be resampled.
    """
    described = load_study(table_file(name), table.scale, placeholders={"start": "start", "data": "data"})
    known = {(one.first, one.second) for one in table.comparisons}
    scores = scores_of(table)
    scores.study = structs.replace(
        scores.study, compare=[one for one in described.pairs if one not in known], compare_with=()
    )
    if not scores.study.pairs or not known or any(axis.baseline for axis in scores.study.axes):
        return []
    return compare_groups(scores, what_is_compared(scores), Resampler([], resamples=1, seed=0))


def _orderings(layout: Layout, tested: Sequence[StudyComparison]) -> str:
    """Which orderings of the paper are seen: of the tested differences, and of all pairs of lines."""
    words: dict[Order, list[str]] = {}
    several = len({one.column for one in tested}) > 1
    for one in tested:
        order = order_of(layout, one)
        if order is not None:
            swapped = replace(one, first=one.second, first_coordinates=one.second_coordinates, second=one.first)
            swapped = replace(swapped, second_coordinates=one.first_coordinates)
            above = one if (layout.paper_difference(one) or 0) > 0 else swapped
            column = f" ({layout.heading(one.column)})" if several else ""
            words.setdefault(order, []).append(f"{_name(layout.pair(above)).replace(' − ', ' above ')}{column}")
    lines = [f"- **{ORDERS[order]}**: {'; '.join(words[order])}." for order in ORDERS if order in words]
    columns = [one for one in layout.table.columns if one.startswith("average")] or layout.table.columns
    counts = [(layout.heading(column), *agreement(layout, column)) for column in columns]
    shares = ", ".join(f"{heading} {same} of {of}" for heading, same, of in counts if of)
    lines += [f"- Pairs of lines in the paper's order, tested or not: {shares}."] if shares else []
    return "\n".join(lines)


def _timing(layout: Layout) -> str:
    """How a table of times was measured, and which row is the cheapest here and in the paper; empty for others."""
    settings = layout.table.study.get("speed")
    if settings is None:
        return ""
    runs = sorted(set(map(layout.runs, range(len(layout.groups)))))
    size = settings.get("batch_size")
    how = f"batches of {size}, in the order of the file" if size else "batches of similar length, of no set size"
    rounds = f"{runs[0]} rounds over all rows, with their standard deviation"
    if runs == [1]:
        rounds = "One run of each row, so nothing is known of its spread"
    words = [f"{rounds}; texts in {how}."]
    for column in layout.table.columns:
        known = {row: layout.scores[group, column] for group, (row, _) in enumerate(layout.groups)}
        here = {row: one.mean for row, one in known.items() if one.mean is not None}
        there = {row: one.paper for row, one in known.items() if one.paper is not None}
        first, printed = (layout.name(min(times, key=times.__getitem__), {}) for times in (here, there))
        words.append(f"{layout.heading(column)}: the cheapest is {first} here, {printed} in the paper.")
    return " ".join(words)


def _made(table: StudyTable) -> str:
    """Where and when the results of a table were made, and in which precision."""
    runs = table.runs
    if not runs.commits:
        return "The record names no machine, date or commit."
    commits = ", ".join(f"`{commit[:8]}`" for commit in runs.commits)
    days = " to ".join(dict.fromkeys(date[:10] for date in (runs.first_date, runs.last_date) if date))
    notes = dict.fromkeys(str(one["reconstructed"]) for one in runs.hardware if "reconstructed" in one)
    machines = dict.fromkeys(
        f"{machine.get('processor')} ({machine.get('instruction_sets')})" for machine in runs.hardware
    )
    used = {key for part in (table.study, *table.study["rows"]) for key in part} & {"train", "finetune", "geometry"}
    chosen = {str(table.study.get(step, {}).get("precision", "auto")) for step in used}
    sets = {one for machine in runs.hardware for one in str(machine.get("instruction_sets")).split()}
    native = "fp32" if sets.isdisjoint(BF16_SETS) else "bf16"
    precisions = sorted({native if one == "auto" else one for one in chosen})
    verb = "measured" if used == {"geometry"} else "trained"
    trained = f"; {verb} in {' and '.join(precisions)}" if precisions else ""
    where = f"Made {days} at {commits} on {', '.join(machines)}{trained}{_reduction(table)}."
    return " ".join([where, *(f"{note[:1].upper()}{note[1:]}." for note in notes)])


def _reduction(table: StudyTable) -> str:
    """How Gunel's SCL was reduced over a batch; empty where no row has it, or an axis says it."""
    own = table.study.get("finetune")
    axes = json.dumps(table.study.get("axes", []))
    if own is None or "finetune.scl_reduction" in axes:
        return ""
    settings = [{**own, **row.get("finetune", {})} for row in table.study["rows"]]
    with_scl = [one for one in settings if one.get("scl_weight", 0.0) or "finetune.scl_weight" in axes]
    if not with_scl:
        return ""
    known = dict.fromkeys(str(one.get("scl_reduction", "mean")) for one in with_scl)  # the only one of older records
    return f"; SCL is the {' and the '.join(known)} over a batch"


def plots(name: str) -> str:
    """``NAME``: the plots of a table of a paper, which stand beside its page."""
    files = sorted((RESULTS / "papers" / name).glob("*.svg"))
    return "\n\n".join(f"![{name}: {file.stem.replace('-', ' ')}]({name}-{file.name})" for file in files)


def reliability(_: str) -> str:
    """Cases and failures of each part of the campaign in one pass, and of the pass before the faults were mended."""
    passes = {name: json.loads((CAMPAIGN / f"{name}.json").read_text(encoding="utf-8")) for name in ("after", "before")}
    rows = []
    for part, meaning in CAMPAIGN_PARTS.items():
        groups = [run["counts"].get(part, {}).values() for run in passes.values()]
        rows.append([f"{part}: {meaning}", *(f"{sum(c):,}" for of in groups for c in zip(*of, strict=True))])
    latest = passes["after"]["provenance"]
    return (
        _table(["part", "cases", "failed", "before: cases", "failed"], rows)
        + f"\n\n*One pass of {passes['after']['minutes']} minutes on {latest['hardware']['cores']} cores of an "
        f"{latest['hardware']['processor']}, commit {latest['commit'][:8]}, {latest['date'][:10]}.*"
    )


def demo(_: str) -> str:
    """The demo's runs: before and after training, on the queries that they held out, and the time of the whole demo."""
    rows = []
    for file in sorted((RESULTS / "demo").glob("*.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        minutes = (f"{run[kind] / 60:.1f}" for kind in ("seconds", "processor_seconds"))
        rows.append([file.stem.replace("-", ", seed "), *_sides(run["comparison"]), *minutes])
    return _table(["", "before", "after", "difference [95%]", "minutes", "processor minutes"], rows)


def words(_: str) -> str:
    """The demo's model beside one with random words, both on the queries that they held out."""
    files = sorted((RESULTS / "demo-words").glob("*.json"))
    rows = [[file.stem, *_sides(json.loads(file.read_text(encoding="utf-8")))] for file in files]
    return _table(["seed", "pairs alone", "with random words", "difference [95%]"], rows)


def _sides(comparison: dict[str, Any]) -> list[str]:
    """Second and first score of the held-out queries, and their difference in words."""
    test = ComparisonResult.from_dict(comparison).tasks["held-out"]
    return [_two_digits(test.second), _two_digits(test.first), _difference(test)]


def _difference(test: PairedTest) -> str:
    return f"{test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}] {test.verdict}".replace("-", "−")


def board(words: str) -> str:
    """``FILE ...``: systems ranked by a table of scores, or run files of TREC with qrels.tsv beside them; and pairs."""
    files = [RESULTS / word for word in words.split()]
    qrels = files[0].with_name("qrels.tsv") if files[0].suffix == ".run" else None
    tables = screen_tables(compare(*files, qrels=qrels, progress=False))
    return "\n\n".join(to_markdown(replace(table, title="", notes=[])).strip() for table in tables)


def pooled(words: str) -> str:
    """``STUDY ...``: the rows of studies of one kind of retrieval, on the queries of all of them together.

    The last word of a study is its collection. Runs with a seed that one of the collections lacks are left out.
    """
    frames = []
    for name in words.split():
        lines = pd.read_parquet(RESULTS / "tables" / name / "units.parquet")
        queries = lines[(lines["statistic"] == "mean") & lines["digest"].str.contains("ndcg@10")]
        seeds = [json.loads(replicate).get("seed", 0) for replicate in queries["replicate"]]
        units = name.rpartition("-")[2] + queries["unit"].astype(str)
        columns = {"system": queries["row"].astype(str), "seed": seeds, "task": "queries", "unit": units}
        frames.append(pd.DataFrame({**columns, "score": queries["value"]}))
    joined = pd.concat(frames)
    units_of_run = joined.groupby(["system", "seed"])["unit"].transform("size")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "queries.parquet"
        joined[units_of_run == units_of_run.max()].to_parquet(file, index=False)
        return board(str(file))


MINED = {
    "untrained": "no training",
    "pairs-[0-9]": "pairs alone",
    "mined-[0-9]": "triplets",
    "kl-[0-9]": "scores, KL",
    "kl-pairs-[0-9]": "scores, KL, and pairs",
    "margin-pairs-[0-9]": "scores, MarginMSE, and pairs",
}
"""The files of the arms of studies/mining.py, and what they are called."""
WITHOUT_SCORES = 3
"""The number of arms that use no scores; they are the first, and what others are compared with."""


def mined(words: str) -> str:
    """``SET``: retrieval of captions without training, after pairs alone, and after what ``mine`` made of them."""
    found = {name: sorted((RESULTS / "mining").glob(f"{words}-{arm}.json")) for arm, name in MINED.items()}
    arms = {name: files for name, files in found.items() if files}
    rows = []
    for name, files in arms.items():
        tasks = [next(iter(EvaluationResult.load(file).retrieval.values())) for file in files]
        scores = (mean(task.measures[measure].score or 0.0 for task in tasks) for measure in MEASURES)
        rows.append([name, str(len(files)), *map(_two_digits, scores)])
    for second, first in sorted(combinations(arms, 2), key=lambda pair: [*arms].index(pair[1]), reverse=True):
        if [*arms].index(second) >= WITHOUT_SCORES:
            continue
        compared = (compare(arms[first], arms[second], measure=measure, progress=False) for measure in MEASURES)
        tests = (_difference(next(iter(one.tasks.values()))) for one in compared if isinstance(one, ComparisonResult))
        rows.append([f"*{first} − {second}*", "", *tests])
    return _table(["", "runs", *MEASURES], rows)


TABLES: dict[str, Callable[[str], str]] = {
    "study": study,
    "means": means,
    "scores": scores,
    "claims": claims,
    "recipes": recipes,
    "tried": tried,
    "paper": paper,
    "plots": plots,
    "reliability": reliability,
    "demo": demo,
    "words": words,
    "board": board,
    "pooled": pooled,
    "mined": mined,
}

if __name__ == "__main__":
    main()
