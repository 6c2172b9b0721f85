"""Plots: their content, read from the figure before it is saved, and the PNG files."""

import numpy as np
import pytest

from nearfar.evaluation import plots
from nearfar.evaluation.plots import confusions, connected_pairs, labelled_texts, layer_map, spectra
from nearfar.evaluation.results import Projection

LONG = "/home/somebody/experiments/2021/simcse-unsupervised-of-a-very-long-name/model"


@pytest.fixture
def figures(monkeypatch):
    """Record each figure when it is saved; check that its file is a PNG."""
    seen = []
    save = plots.save

    def saving(figure, file):
        save(figure, file)
        assert file.read_bytes().startswith(b"\x89PNG")
        seen.append(figure)

    monkeypatch.setattr(plots, "save", saving)
    return seen


def inside(figure):
    """Whether everything drawn is inside the image."""
    box, (width, height) = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    return box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


@pytest.mark.long
def test_spectra_are_lines(figures, tmp_path):
    spectra({"before": [1.0, 0.1, 0.0], LONG: np.array([1.0, 0.9, 0.8, 0.02])}, tmp_path / "s.png")
    (axes,) = figures[0].axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1.0, 0.1], [1.0, 0.9, 0.8, 0.02]]
    assert axes.lines[1].get_xdata().tolist() == [1, 2, 3, 4]
    assert 0 < axes.get_ylim()[0] < 0.02  # a value of 0 does not extend the axis
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [name.replace("\n", "") for name in names] == ["before", LONG]
    assert inside(figures[0])


@pytest.mark.long
def test_cells_of_layers_show_their_scores(figures, tmp_path):
    scores = {"cls": [None, 20.04, 60.06], "mean": [50.0, 51.0, 52.0], "mean_without_cls": [1.0, -2.0, 3.0]}
    plots.save(layer_map(scores, title=LONG, label="Spearman"), tmp_path / "l.png")
    axes, bar = figures[0].axes
    shown = {tuple(int(coordinate) for coordinate in text.get_position()): text.get_text() for text in axes.texts}
    assert shown == {
        (column, layer): "none" if score is None else f"{score:.1f}"
        for column, by_layer in enumerate(scores.values())
        for layer, score in enumerate(by_layer)
    }
    assert axes.get_ylim()[0] < axes.get_ylim()[1]  # the embedding layer is at the bottom
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0 (embeddings)", "1", "2"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["CLS", "mean", "mean,\nno CLS"]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("layer", "")
    assert axes.get_title().replace("\n", "") == LONG
    assert axes.images[0].get_clim() == (-2.0, 60.06)
    colours = {text.get_text(): text.get_color() for text in axes.texts}  # readable on light and dark cells
    assert (colours["60.1"], colours["-2.0"], colours["none"]) == ("black", "white", "black")
    assert bar.get_ylabel() == "Spearman"
    assert inside(figures[0])
    scores = {"max": [float(layer) for layer in range(25)]}  # of several models, which share a colour scale
    plots.save(layer_map(scores, title="t", label="Spearman", limits=(0.0, 80.0)), tmp_path / "l.png")
    axes = figures[1].axes[0]
    assert axes.images[0].get_clim() == (0.0, 80.0)
    assert [text.get_color() for text in axes.texts] == ["white"] * 25


@pytest.mark.long
def test_labels_are_counted_by_their_predictions(figures, tmp_path):
    confusions([0, 0, 0, 1], [0, 0, 1, 1], ["no", "a label with many letters"], tmp_path / "c.png")
    axes, _ = figures[0].axes
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {(0, 1): "2", (1, 1): "1", (0, 0): "0", (1, 0): "1"}  # the first label is at the top
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a label with many letters", "no"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted label", "label")
    assert inside(figures[0])


@pytest.mark.long
def test_labelled_texts_have_a_colour_for_each_label(figures, tmp_path):
    points = {"first": [[0, 0], [1, 2]], "second": [[5, 5]]}
    plots.save(
        labelled_texts({"a": Projection(labelled=points), LONG: Projection(labelled=points)}), tmp_path / "t.png"
    )
    assert [axes.get_title().replace("\n", "") for axes in figures[0].axes] == ["a", LONG]
    for axes in figures[0].axes:
        assert [drawn.get_offsets().tolist() for drawn in axes.collections] == [*points.values()]
        assert len({tuple(drawn.get_facecolor()[0]) for drawn in axes.collections}) == 2
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]
    assert inside(figures[0])


@pytest.mark.long
def test_texts_of_a_pair_are_connected(figures, tmp_path):
    pairs = Projection(similar=[[0, 1, 2, 3], [4, 5, 6, 7]], dissimilar=[[9, 9, 8, 8]])
    plots.save(connected_pairs({"a": pairs, "b": Projection(similar=[[0, 0, 1, 1]])}), tmp_path / "p.png")
    lines = [(line.get_color(), line.get_xydata().tolist()) for line in figures[0].axes[0].lines]
    assert lines == [
        ("tab:blue", [[9, 9], [8, 8]]),
        ("tab:red", [[0, 1], [2, 3]]),
        ("tab:red", [[4, 5], [6, 7]]),
    ]
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["dissimilar pairs", "similar pairs"]
    assert inside(figures[0])


@pytest.mark.long
@pytest.mark.parametrize(("models", "rows", "columns"), [(1, 1, 1), (4, 1, 4), (5, 2, 3), (6, 2, 3)])
def test_rows_of_panels_are_full(models, rows, columns):
    figure = labelled_texts({str(number): Projection(labelled={"a": [[0, 0]]}) for number in range(models)})
    assert len(figure.axes) == models
    assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == (rows, columns)


@pytest.mark.long
def test_dollar_signs_in_names_are_not_formulas(figures, tmp_path):
    models = {"a$x_$b": Projection(labelled={"$one": [[0, 0]], "two$^$": [[1, 1]]})}
    plots.save(labelled_texts(models), tmp_path / "t.png")
    plots.save(connected_pairs({"$\\frac$": Projection(similar=[[0, 0, 1, 1]])}), tmp_path / "p.png")
    assert figures[0].axes[0].get_title() == r"a\$x_\$b"
