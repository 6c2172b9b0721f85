"""Plots of studies: what they draw, which files they are, and that equal tables give equal bytes."""

import pytest

from nearfar.studies.page import Layout, write_outputs
from nearfar.studies.plots import study_plots
from nearfar.studies.scores import Run
from nearfar.types import NearfarError
from tests.studies.cases import build, geometry

ROWS = [{"id": "scl", "name": "SCL"}, {"id": "cap", "name": "SCL, 3 positives"}, {"id": "glove", "name": "GloVe"}]


def table(*, plot=None, labels=("CE", "0.3", "1.0"), wide=False, paper=True):
    axis = {"name": "lambda", "values": [1, 10, 100] if wide else [0, 0.3, 1], "labels": list(labels), "as": "x"}
    rows = [dict(row) for row in ROWS]
    if paper:
        rows[0]["paper"] = [{"lambda": labels[0], "a": 61.5}, {"lambda": labels[2], "a": 64.5}]
    study = {"title": "Some $ study", "columns": ["b", "a"], "axes": [axis], "rows": rows}
    study |= {} if plot is None else {"plot": plot}
    some = [
        Run(row, {"lambda": label}, {"seed": seed}, [{"a": 60 + place + seed + 10 * (row == "cap"), "b": 1.0}])
        for row in ("scl", "cap")
        for place, label in enumerate(labels)
        for seed in (1, 2, 3)
    ]
    some += [Run("glove", {}, {}, [{"a": 50.0, "b": 1.0}])]
    return build(study, some, resamples=1)


def inside(figure):
    """Whether everything drawn is inside the image."""
    figure.canvas.draw()  # the layout is computed when the figure is drawn
    box, (width, height) = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    return box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01


@pytest.mark.long
def test_lines_over_an_axis():
    ((name, figure),) = study_plots(Layout(table())).items()
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
    assert inside(figure)


@pytest.mark.long
def test_wide_ranges_are_logarithmic_and_words_are_placed_in_order():
    (figure,) = study_plots(Layout(table(wide=True))).values()
    assert figure.axes[0].get_xscale() == "log"
    (figure,) = study_plots(Layout(table(labels=("none", "few", "many"), paper=False))).values()
    assert figure.axes[0].get_xscale() == "linear"


def grid_table(plot, rows=("scl",)):
    axes = [{"name": "lambda", "values": [0.1, 0.9]}, {"name": "temperature", "values": [0.1, 0.3], "average": True}]
    study = {"title": "t", "columns": ["a"], "axes": axes, "rows": [{"id": row} for row in (*rows, "ce")], "plot": plot}
    some = [
        Run(row, {"lambda": one, "temperature": other}, {}, [{"a": 10 * float(one) + float(other)}])
        for row in rows
        for one in ("0.1", "0.9")
        for other in ("0.1", "0.3")
        if (one, other) != ("0.9", "0.3")
    ]
    return build(study, [*some, Run("ce", {}, {}, [{"a": 7.5}])], resamples=1)


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
    assert inside(figure)


@pytest.mark.long
def test_heat_maps_of_several_rows_share_a_colour_scale():
    plot = {"kind": "heat map", "x": "temperature", "y": "lambda"}
    plots = study_plots(Layout(grid_table(plot, rows=("scl", "cap"))))
    assert list(plots) == ["heat-map-a-scl", "heat-map-a-cap"]
    assert len({figure.axes[0].images[0].get_clim() for figure in plots.values()}) == 1
    only = study_plots(Layout(grid_table({**plot, "row": "cap"}, rows=("scl", "cap"))))
    assert list(only) == ["heat-map-a-cap"]


def geometry_table(plot=None):
    study = {"title": "t", "columns": ["uniformity"], "rows": [{"id": "a"}, {"id": "b"}]}
    study |= {} if plot is None else {"plot": plot}
    some = [
        Run(
            row, {}, {"seed": seed}, [geometry(seed)], key=f"{row}{seed}", curves={"loss": [(0, 2.0 * seed), (10, 1.0)]}
        )
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
    shown = geometry_table([{"kind": "pairs", "title": "By $t"}, {"kind": "labels", "row": "b"}])
    figures = study_plots(Layout(shown))
    assert list(figures) == ["pairs", "labels"]
    pairs, labels = figures.values()
    assert [axes.get_title() for axes in pairs.axes] == ["a", "b"]
    assert pairs.get_suptitle() == r"By \$t"
    (line,) = pairs.axes[0].lines
    assert line.get_xydata().tolist() == [[0, 0], [1, 1]]
    (axes,) = labels.axes
    assert axes.collections[0].get_offsets().tolist() == [[0, 1], [1, 1]]
    files = [{file.name: file.read_bytes() for file in write_outputs(shown, tmp_path / name)} for name in "ab"]
    assert files[0] == files[1]
    assert {"pairs.png", "pairs.svg", "labels.png", "labels.svg"} <= files[0].keys()


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        ({"kind": "lines", "x": "dog"}, "plot: x = 'dog' is not an axis of the study; there are: lambda"),
        ({"kind": "lines", "x": "lambda", "value": "dog"}, "plot: value = 'dog' is not a column of the study"),
        ({"kind": "heat map", "x": "lambda"}, "plot: y = None is not an axis"),
        ({"kind": "curves", "y": "loss"}, "plot: y = 'loss' is not a curve of the runs; there are: none"),
    ],
)
def test_plots_that_cannot_be_drawn(plot, message, tmp_path):
    with pytest.raises(NearfarError, match=message):
        write_outputs(table(plot=plot), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_plot_without_a_finished_run(tmp_path):
    axis = {"name": "lambda", "values": [1, 2], "as": "x"}
    kinds = [{"kind": "lines", "x": "lambda"}, {"kind": "heat map", "x": "lambda", "y": "lambda"}]
    kinds += [{"kind": "spectrum"}, {"kind": "layers"}, {"kind": "curves", "y": "loss"}]
    kinds += [{"kind": "pairs"}, {"kind": "labels"}]
    study = {"title": "t", "columns": ["a"], "axes": [axis], "rows": [{"id": "r"}], "plot": kinds}
    empty = build(study, [Run("r", {"lambda": "1"}, {}, missing="not run")], resamples=1)
    assert study_plots(Layout(empty)) == {}
    assert [file.name for file in write_outputs(empty, tmp_path)] == ["study.json", "page.md", "table.csv", "table.tex"]


@pytest.mark.long
def test_files_are_equal_for_equal_tables(tmp_path):
    first, again = (write_outputs(table(), tmp_path / name) for name in ("one", "two"))
    images = {file.name: file.read_bytes() for file in first if file.suffix in (".png", ".svg")}
    assert list(images) == ["lines-lambda-a.png", "lines-lambda-a.svg"]
    assert images == {file.name: file.read_bytes() for file in again if file.suffix in (".png", ".svg")}
    assert images["lines-lambda-a.png"].startswith(b"\x89PNG")
    assert b"SCL, 3 positives" in images["lines-lambda-a.svg"]
    assert "lines-lambda-a.svg" in (tmp_path / "one" / "page.md").read_text(encoding="utf-8")
    changed = write_outputs(table(paper=False), tmp_path / "three")
    assert images["lines-lambda-a.svg"] != next(file for file in changed if file.suffix == ".svg").read_bytes()
