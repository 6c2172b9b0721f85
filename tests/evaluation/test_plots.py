"""Plots: their content, read from the figure before it is saved, and the PNG files."""

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
    figure.canvas.draw()
    box, (width, height) = figure.get_tightbbox(figure.canvas.get_renderer()), figure.get_size_inches()
    return box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


@pytest.mark.long
def test_spectra_are_lines():
    values = {"before": [1.0, 0.1, 0.0], LONG: [1.0, 0.9, 0.8, 0.02]}
    figure = spectra({name: [*enumerate(of, 1)] for name, of in values.items()}, title="t")
    (axes,) = figure.axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[1.0, 0.1], [1.0, 0.9, 0.8, 0.02]]
    assert axes.lines[1].get_xdata().tolist() == [1, 2, 3, 4]
    assert 0 < axes.get_ylim()[0] < 0.02  # a value of 0 does not extend the axis
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [name.replace("\n", "") for name in names] == ["before", LONG]
    assert inside(figure)


@pytest.mark.long
def test_cells_of_layers_show_their_scores():
    scores = {"cls": [None, 20.04, 60.06], "mean_without_cls": [1.0, -2.0, 3.0]}
    figure = layer_map(scores, title=LONG, label="Spearman")
    axes, bar = figure.axes
    shown = {text.get_position(): (text.get_text(), text.get_color()) for text in axes.texts}
    assert shown == {  # readable on light and dark cells
        **{(0, 0): ("none", "black"), (0, 1): ("20.0", "white"), (0, 2): ("60.1", "black")},
        **{(1, 0): ("1.0", "white"), (1, 1): ("-2.0", "white"), (1, 2): ("3.0", "white")},
    }
    assert axes.get_ylim()[0] < axes.get_ylim()[1]  # the embedding layer is at the bottom
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0 (embeddings)", "1", "2"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["CLS", "mean,\nno CLS"]
    assert (axes.get_ylabel(), bar.get_ylabel()) == ("layer", "Spearman")
    assert axes.get_title().replace("\n", "") == LONG
    assert axes.images[0].get_clim() == (-2.0, 60.06)
    assert inside(figure)
    shared = layer_map({"max": [1.0, 2.0]}, title="t", label="Spearman", limits=(0.0, 80.0)).axes[0]
    assert shared.images[0].get_clim() == (0.0, 80.0)
    assert [text.get_color() for text in shared.texts] == ["white"] * 2


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
def test_labelled_texts_have_a_colour_for_each_label():
    points = {"first": [[0, 0], [1, 2]], "second": [[5, 5]]}
    figure = labelled_texts({"a": Projection(labelled=points), LONG: Projection(labelled=points)})
    assert [axes.get_title().replace("\n", "") for axes in figure.axes] == ["a", LONG]
    for axes in figure.axes:
        assert [drawn.get_offsets().tolist() for drawn in axes.collections] == [*points.values()]
        assert len({tuple(drawn.get_facecolor()[0]) for drawn in axes.collections}) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["first", "second"]
    assert inside(figure)


@pytest.mark.long
def test_texts_of_a_pair_are_connected():
    pairs = Projection(similar=[[0, 1, 2, 3], [4, 5, 6, 7]], dissimilar=[[9, 9, 8, 8]])
    figure = connected_pairs({"a": pairs, "$\\frac$": Projection(similar=[[0, 0, 1, 1]])})
    lines = [(line.get_color(), line.get_xydata().tolist()) for line in figure.axes[0].lines]
    similar = [("tab:red", [[0, 1], [2, 3]]), ("tab:red", [[4, 5], [6, 7]])]
    assert lines == [("tab:blue", [[9, 9], [8, 8]]), *similar]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["dissimilar pairs", "similar pairs"]
    assert figure.axes[1].get_title() == r"\$\frac\$"  # no formula
    assert inside(figure)


@pytest.mark.long
@pytest.mark.parametrize(("models", "rows", "columns"), [(1, 1, 1), (4, 1, 4), (5, 2, 3), (6, 2, 3)])
def test_rows_of_panels_are_full(models, rows, columns):
    figure = labelled_texts({str(number): Projection(labelled={"a": [[0, 0]]}) for number in range(models)})
    assert len(figure.axes) == models
    assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == (rows, columns)
