"""Pages, CSV, LaTeX and plots of a study's table: what they show, that names are escaped, and equal bytes.

The committed pages, which tests/docs compares with those of their records, are the examples of everything else.
"""

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from nearfar.evaluation.results import StudyTable
from nearfar.studies.page import Layout, order_of, study_csv, study_latex, study_markdown
from nearfar.studies.plots import study_plots, write_outputs
from nearfar.studies.spec import changes
from nearfar.types import NearfarError
from tests.hostile_text import HOSTILE, active_parts
from tests.studies.cases import RESAMPLES, STUDY, build, cells, geometry, run


def numbers_study(values, **changes):
    """A table of numbers that runs have measured: row -> column -> one number for each seed."""
    columns = list(next(iter(values.values())))
    rows = [{"id": row} for row in values]
    study = {"title": "Numbers", "columns": columns, "compare_columns": columns, "rows": rows, **changes}
    some = [
        run(row, {}, {"seed": seed}, [{name: scores[seed] for name, scores in by_column.items()}])
        for row, by_column in values.items()
        for seed in range(len(next(iter(by_column.values()))))
    ]
    return build(study, some, resamples=1)


SMALL = {
    "ce": {"first": [60.0, 62.0, 61.0], "second": [50.0, 50.5, 51.0]},
    "scl": {"first": [70.0, 72.5, 71.0], "second": [49.0, 51.5, 51.0]},
}
ROWS = [
    {"id": "ce", "name": "CE", "paper": {"first": 60.5, "second": 50.0}, "note": "Cross-entropy."},
    {"id": "scl", "name": "CE + SCL", "paper": {"first": [70.25, 0.3], "second": 52.5}},
]
SMALL_STUDY = {"rows": ROWS, "compare": [["scl", "ce"]], "source": "Somebody 2020, Table 1", "notes": "What was done."}


@pytest.fixture(scope="module")
def small() -> StudyTable:
    table = numbers_study(SMALL, **SMALL_STUDY)
    machine = {"processor": "fast", "instruction_sets": "avx2", "cores": 2, "results": 6}
    runs = replace(table.runs, commits={"0123456789abcdef-dirty": 6}, hardware=[machine])
    return replace(table, command="nearfar study small.toml --output small", runs=runs)


def test_the_page_of_a_small_table(small):
    page = study_markdown(small)
    assert page.startswith(
        """\
# Numbers

Source: Somebody 2020, Table 1.

What was done.

|  | runs | first | second |
| --- | ---: | ---: | ---: |
| CE ¹ | 3 | 61.00 (1.00) / 60.5 | 50.50 (0.50) / 50.0 |
| CE + SCL | 3 | **71.17 (1.26)** / 70.25 (0.3) | 50.50 (1.32) / 52.5 |

¹ Cross-entropy.

Mean (standard deviation) over runs. After the slash, the paper's number. Bold: the best of its column"""
    )
    for words in (
        "| CE + SCL | first | 71.17 | [68.04, 74.29] |",
        "| CE + SCL − CE | first | +10.17 [+9.45, +10.88] | better | +9.75 | same sign, significant |",
        "1 same sign, significant; 0 same sign, not significant; 0 opposite sign; 1 no difference.",
        "Verdicts are after Holm's correction over all 2 comparisons; level and no worse are within a margin of 0.5",
        "Pairs of lines in the paper's order, tested or not: first 1 of 1",
        "```\nnearfar study small.toml --output small\n```",
        "Results: commits 0123456789ab-dirty (6 results); fast, avx2, 2 cores (6 results).",
    ):
        assert words.replace("\\", "") in page.replace("\\", "")
    plain = study_markdown(numbers_study(SMALL, compare=[["scl", "ce"]]))
    assert not [line for line in plain.splitlines() if line.startswith("|") and "paper" in line]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([70.0, 72.5, 71.0], "same sign, significant"),
        ([40.0, 90.0, 60.0], "same sign, not significant"),
        ([50.0, 52.5, 51.0], "opposite sign"),
    ],
)
def test_verdicts_on_orderings(ours, verdict):
    values = {"ce": {"first": [60.0, 62.0, 61.0]}, "scl": {"first": ours}}
    rows = [{"id": "ce", "paper": {"first": 50.0}}, {"id": "scl", "paper": {"first": 55.0}}]
    table = numbers_study(values, rows=rows, compare=[["scl", "ce"]])
    assert [order_of(Layout(table), row) for row in table.comparisons] == [verdict]
    assert ("Bold" in study_markdown(table)) == ("not significant" not in verdict)


@pytest.mark.long
def test_what_is_missing_or_not_run_or_not_measured_is_told_apart():
    some = cells()
    place = next(number for number, one in enumerate(some) if one.cell.key == "bad2")
    some[place] = replace(some[place], measured=[], cell=replace(some[place].cell, missing="failed: no | memory"))
    study = {**STUDY, "columns": ["stsb", "seconds", "rate"]}
    study["rows"] = [*STUDY["rows"], {"id": "winner", "steps": [], "paper": {"stsb": 85.5}}]
    some[0] = replace(some[0], measured=[*some[0].measured, {"rate": 2.0}])
    table = build(study, some, resamples=RESAMPLES)
    page = study_markdown(table)
    assert page.index("**Incomplete: 1 of 9 runs have no result**") < page.index("| --- |")
    assert "- failed: no \\| memory: Bad \\| \\<row\\> (seed = 2)" in page
    assert "| winner | 0 | – / 85.5 | – | – |" in page
    assert "–: not run or not measured." in page
    assert "Incomplete: 1 runs have no result." in study_latex(table)
    runs = [some[0], *cells()[1:]]
    whole = study_markdown(build({**study, "rows": STUDY["rows"]}, runs, resamples=RESAMPLES))
    assert "Incomplete" not in whole
    assert "–: not run or not measured." in whole


def balanced(text):
    """Whether braces that are not escaped are balanced, and environments are closed in order."""
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text.replace("\\\\", "")):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            stack.append(name)
        elif not stack or stack.pop() != name:
            return False
    return depth == 0 and not stack


@pytest.mark.long
def test_what_a_scale_changes_is_said_in_words():
    base = {
        "title": "t",
        "train": {"epochs": 3, "data": ["snli"], "seed": 1},
        "rows": [{"id": "a", "train": {"epochs": 2}}, {"id": "b"}, {"id": "c"}],
        "axes": [{"name": "x", "values": [1, 2]}],
    }
    scaled = {
        "title": "other",
        "train": {"epochs": 1, "data": ["snli"], "limit": 10},
        "rows": [{"id": "a", "train": {"epochs": 1}}, {"id": "d"}],
        "axes": [{"name": "x", "values": [1]}],
    }
    said = """without rows b, c
train.epochs: 1 (paper: 3)
train.seed: not set (paper: 1)
rows.a.train.epochs: 1 (paper: 2)
axes.x.values: [1] (paper: [1, 2])
train.limit: 10 (paper: not set)
rows.d.id: d (paper: not set)"""
    assert changes(base, scaled) == said.splitlines()
    assert changes(base, base) == []
    filled = {"train": {"model": "{start}"}, "placeholders": {"start": "minilm"}}
    assert changes({"train": {"model": "bert"}}, filled) == ["train.model: minilm (paper: bert)"]
    table = build({**STUDY, "train": {"epochs": 1}}, cells(), base=STUDY, scale="tiny", resamples=1)
    words = "Scale: `tiny`. Different from the paper's scale:\n\n- train.epochs: 1 (paper: not set)"
    assert words in study_markdown(table)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_record_of_somebody_else_cannot_add_markup(text):
    """Every text of study.json."""
    rows = [{"id": "ce", "name": text, "note": text}, {"id": "scl", "name": "scl"}]
    study = {"rows": rows, "compare": [["scl", "ce"]], "titles": {"first": text}, "title": text, "source": text}
    table = numbers_study(SMALL, **study, notes=text, caption=text)
    hardware = [{"processor": text, "results": 1}]
    runs = replace(table.runs, commits={text: 1}, versions={text: [text]}, hardware=hardware, first_date=text)
    table = replace(table, changes=[text], scale=text, command=text, intervals_from=text, runs=runs)
    page = study_markdown(table)
    assert active_parts(page) == []
    latex = study_latex(table)
    assert balanced(latex)
    assert not balanced(latex.replace("\\end{table}", ""))
    for row in csv.DictReader(io.StringIO(study_csv(table))):
        assert not str(row["name"]).lstrip().startswith(tuple("=+-@"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["/../../etc/x", "..", "$\\frac$ a\nb", HOSTILE[0]])
def test_plots_of_hostile_names_are_in_the_folder(name, tmp_path):
    axes = [{"name": name, "values": [1, 2], "as": "x"}]
    study = {"title": name, "columns": ["a"], "rows": [{"id": "r", "name": name}], "axes": axes}
    some = [run("r", {name: str(value)}, {}, [{"a": float(value)}]) for value in (1, 2)]
    written = write_outputs(build(study, some, resamples=1), tmp_path / "out" / "page")
    assert all(file.parent == tmp_path / "out" / "page" for file in written)
    assert {one.name for one in tmp_path.iterdir()} == {"out"}
    (picture,) = (file for file in written if file.suffix == ".svg")
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(picture).iter()}
    assert not tags & {"script", "foreignObject", "a", "image", "iframe"}


LINES = [{"id": "scl", "name": "SCL"}, {"id": "cap", "name": "SCL, 3 positives"}, {"id": "glove", "name": "GloVe"}]


def line_table(*, plot=None):
    labels = ("CE", "0.3", "1.0")
    axis = {"name": "lambda", "values": [0, 0.3, 1], "labels": list(labels), "as": "x"}
    rows = [{**LINES[0], "paper": [{"lambda": "CE", "a": 61.5}, {"lambda": "1.0", "a": 64.5}]}, *LINES[1:]]
    study = {"title": "Some $ study", "columns": ["b", "a"], "axes": [axis], "rows": rows}
    study |= {} if plot is None else {"plot": plot}
    some = [
        run(row, {"lambda": label}, {"seed": seed}, [{"a": 60 + place + seed + 10 * (row == "cap"), "b": 1.0}])
        for row in ("scl", "cap")
        for place, label in enumerate(labels)
        for seed in (1, 2, 3)
    ]
    some += [run("glove", {}, {}, [{"a": 50.0, "b": 1.0}])]
    return build(study, some, resamples=1)


@pytest.mark.long
def test_lines_over_an_axis():
    ((name, figure),) = study_plots(Layout(line_table())).items()
    assert name == "lines-lambda-a"
    axes = figure.axes[0]
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 3 and line.get_linestyle() == "-"]
    assert [line.get_xdata().tolist() for line in drawn] == [[0, 0.3, 1]] * 2
    assert [line.get_ydata().tolist() for line in drawn] == [[62, 63, 64], [72, 73, 74]]
    (reference,) = (line for line in axes.lines if line.get_linestyle() == "--" and len(line.get_xdata()) == 2)
    assert (reference.get_xdata().tolist(), reference.get_ydata().tolist()) == ([0, 1], [61.5, 64.5])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["CE", "0.3", "1.0"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("lambda", "a, 95% interval")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["SCL", "SCL, paper", "SCL, 3 positives", "GloVe"]
    assert len(axes.containers) == 2  # intervals of both lines with several runs


def grid_table(plot):
    axes = [{"name": "lambda", "values": [0.1, 0.9]}, {"name": "temperature", "values": [0.1, 0.3], "average": True}]
    study = {"title": "t", "columns": ["a"], "axes": axes, "rows": [{"id": "scl"}, {"id": "ce"}], "plot": plot}
    some = [
        run("scl", {"lambda": one, "temperature": other}, {}, [{"a": 10 * float(one) + float(other)}])
        for one, other in (("0.1", "0.1"), ("0.1", "0.3"), ("0.9", "0.1"))
    ]
    return build(study, [*some, run("ce", {}, {}, [{"a": 7.5}])], resamples=1)


@pytest.mark.long
def test_a_grid_is_a_heat_map():
    plot = {"kind": "heat map", "x": "temperature", "y": "lambda", "value": "a"}
    ((name, figure),) = study_plots(Layout(grid_table(plot))).items()
    assert name == "heat-map-a-scl"
    axes, bar = figure.axes
    shown = {tuple(int(place) for place in text.get_position()): text.get_text() for text in axes.texts}
    assert shown == {(0, 0): "1.10", (1, 0): "1.30", (0, 1): "9.10", (1, 1): "none"}  # without the average
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "0.3"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0.1", "0.9"]
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == ("temperature", "lambda", "a")
    assert axes.get_title() == "scl; ce: 7.50"


def geometry_table(plot=None):
    study = {"title": "t", "columns": ["uniformity"], "rows": [{"id": "a"}, {"id": "b"}]}
    study |= {} if plot is None else {"plot": plot}
    some = [
        run(row, {}, {"seed": seed}, [geometry(seed)], key=f"{row}{seed}", curves={"loss": {0: 2.0 * seed, 10: 1.0}})
        for row in "ab"
        for seed in (1, 2)
    ]
    return build(study, some, resamples=1)


@pytest.mark.long
def test_spectra_layers_and_curves():
    plots = study_plots(Layout(geometry_table([{"kind": "spectrum"}, {"kind": "layers"}])))
    assert list(plots) == ["spectrum", "layers-a", "layers-b"]
    spectrum = plots["spectrum"].axes[0]
    assert (spectrum.get_xscale(), spectrum.get_yscale()) == ("log", "log")
    assert spectrum.lines[0].get_xdata()[0] == 1
    texts = [text.get_text() for text in plots["layers-a"].axes[0].texts]
    assert sorted(texts) == sorted(["none", "21.5", "30.0", "40.0", "50.0", "61.5"])
    ((name, figure),) = study_plots(Layout(geometry_table({"kind": "curves", "y": "loss"}))).items()
    assert name == "curves-loss"
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines[:1]] == [[3.0, 1.0]]
    assert list(study_plots(Layout(geometry_table()))) == ["spectrum"]


@pytest.mark.long
def test_positions_are_those_of_the_first_run(tmp_path):
    shown = geometry_table([{"kind": "pairs", "title": "By $t"}, {"kind": "labels"}])
    figures = study_plots(Layout(shown))
    assert list(figures) == ["pairs", "labels"]
    pairs, labels = figures.values()
    assert [axes.get_title() for axes in pairs.axes] == ["a", "b"]
    assert pairs.get_suptitle() == r"By \$t"
    (line,) = pairs.axes[0].lines
    assert line.get_xydata().tolist() == [[0, 0], [1, 1]]
    axes, _ = labels.axes
    assert axes.collections[0].get_offsets().tolist() == [[0, 1], [1, 1]]
    files = [{file.name: file.read_bytes() for file in write_outputs(shown, tmp_path / name)} for name in "ab"]
    assert files[0] == files[1]
    assert {"pairs.png", "pairs.svg", "labels.png", "labels.svg"} <= files[0].keys()


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        ({"kind": "lines", "x": "dog"}, "plot: x: no axis is called 'dog'. There are: lambda"),
        ({"kind": "curves", "y": "loss"}, "plot: y: no curve is called 'loss'"),
    ],
)
def test_plots_that_cannot_be_drawn(plot, message, tmp_path):
    with pytest.raises(NearfarError, match=message):
        write_outputs(line_table(plot=plot), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_plot_without_a_finished_run(tmp_path):
    axis = {"name": "lambda", "values": [1, 2], "as": "x"}
    kinds = [{"kind": "lines", "x": "lambda"}, {"kind": "heat map", "x": "lambda", "y": "lambda"}]
    kinds += [{"kind": "spectrum"}, {"kind": "layers"}, {"kind": "curves", "y": "loss"}]
    kinds += [{"kind": "pairs"}, {"kind": "labels"}]
    study = {"title": "t", "columns": ["a"], "axes": [axis], "rows": [{"id": "r"}], "plot": kinds}
    empty = build(study, [run("r", {"lambda": "1"}, {}, missing="not run")], resamples=1)
    assert study_plots(Layout(empty)) == {}
    assert [file.name for file in write_outputs(empty, tmp_path)] == ["study.json", "page.md", "table.csv", "table.tex"]
