"""Charts: what is drawn, thinned lines, text alternatives, and hostile texts."""

import math
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from nearfar.evaluation.report.blocks import COLOURS, Bar, Bars, Chart, Line, data_address, describe, svg
from nearfar.evaluation.report.sections import thinned

UNSAFE = '</svg><script>alert("x")</script> $\\frac{1}{$ 文 \x07'


def points(chart: Chart, colour: int = 0) -> list[tuple[float, float]]:
    """Return the corners of the line of a colour, in points of the page, with y upwards."""
    root = ElementTree.fromstring(svg(chart))
    (path,) = [
        node.get("d", "")
        for node in root.iter("{http://www.w3.org/2000/svg}path")
        if f"stroke: {COLOURS[colour]}; stroke-width: 1.4" in node.get("style", "")
    ]
    numbers = [float(part) for part in path.replace("M", " ").replace("L", " ").split()]
    return [(x, -y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]


@pytest.mark.long
def test_points_of_a_line_are_at_their_values() -> None:
    first, middle, last = points(Chart("Score", "step", [Line("a", [0, 50, 100], [10.0, 30.0, 20.0], 0, best=50)]))
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert middle[1] > last[1] > first[1]
    assert last[1] == pytest.approx((first[1] + middle[1]) / 2, abs=0.1)


@pytest.mark.long
def test_logarithmic_axes() -> None:
    line = Line("a", [1, 10, 100], [1.0, 0.1, 0.01], 0)
    first, middle, last = points(Chart("t", "x", [line], logarithmic="both"))
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert middle[1] == pytest.approx((first[1] + last[1]) / 2, abs=0.1)
    first, middle, last = points(Chart("t", "x", [line], logarithmic="y"))
    assert middle[0] - first[0] == pytest.approx((last[0] - first[0]) / 11, abs=0.1)


@pytest.mark.long
def test_values_that_cannot_be_drawn_are_left_out() -> None:
    chart = Chart("t", "x", [Line("a", [0, 1, 2], [1.0, math.nan, 2.0], 0), Line("b", [0], [math.inf], 1)])
    assert len(points(chart)) == 2
    assert "b:" not in describe(chart)
    assert "no data" in svg(Chart("t", "x", [Line("a", [0], [math.nan], 0)]))
    positive = Chart("t", "x", [Line("a", [0, 1, 2], [1.0, -1.0, 2.0], 0)], logarithmic="both")
    assert describe(positive).endswith("a: from 2 at 2 to 2 at 2, lowest 2, highest 2")


@pytest.mark.long
def test_texts_are_shown_as_they_are() -> None:
    chart = Chart(UNSAFE, UNSAFE, [Line(UNSAFE, [0, 1], [1.0, 2.0], 0)])
    content = unquote(data_address(chart).partition(",")[2])
    root = ElementTree.fromstring(content)
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if "script" in text] == [UNSAFE.replace("\x07", "\N{REPLACEMENT CHARACTER}")] * 2
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


@pytest.mark.long
def test_bars_have_the_length_of_their_values() -> None:
    chart = Bars(
        "Score",
        ["one", "two"],
        [Bar("a", 0, [40.0, None], [(30.0, 60.0), None]), Bar("b", 1, [20.0, 10.0], [None] * 2)],
    )
    root = ElementTree.fromstring(svg(chart))
    widths: dict[str, list[float]] = {}
    for node in root.iter("{http://www.w3.org/2000/svg}path"):
        if colour := re.search("fill: (#[0-9a-f]{6}); opacity", node.get("style", "")):
            x = [float(number) for number in re.findall(r"[ML] (\S+)", node.get("d", ""))]
            widths.setdefault(colour[1], []).append(max(x) - min(x))
    (first,), (second, third) = widths[COLOURS[0]], widths[COLOURS[1]]
    assert [second / first, third / first] == pytest.approx([0.5, 0.25], abs=0.01)
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"40.00", "20.00", "10.00", "one", "two"} <= set(texts)
    assert describe(chart) == "Score; a: one 40.00; b: one 20.00, two 10.00"
    assert "no data" in svg(Bars("t", [], []))


def test_the_text_alternative_has_the_ends_and_the_extremes() -> None:
    chart = Chart("Score", "step", [Line("a", [0, 5, 20_000], [10.0, 30.5, 1e-13], 0)])
    assert describe(chart) == "Score, by step; a: from 10 at 0 to 0 at 20k, lowest 0, highest 30.5"
    many = Chart("t", "x", [Line(f"line {n}", [0], [float(n)], n) for n in range(40)])
    assert describe(many).count("line ") == 16


def test_long_lines_are_thinned_to_means() -> None:
    x, y = thinned([(n, float(n % 2)) for n in range(1000)], 9)
    assert len(x) == len(y) == 112
    assert (x[0], y[0]) == (4, pytest.approx(4 / 9))
    assert thinned([(1, 3.0), (2, 4.0)], 1) == ([1, 2], [3, 4])
