"""Charts: what is drawn, thinned lines, text alternatives, and hostile texts."""

import math
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from nearfar.evaluation.report.blocks import COLOURS, Chart, Line, data_address, describe, svg
from nearfar.evaluation.report.sections import thinned

UNSAFE = '</svg><script>alert("x")</script> $\\frac{1}{$ 文 \x07'


def elements(chart: Chart, name: str) -> list[ElementTree.Element]:
    content = unquote(data_address(chart).partition(",")[2])
    return list(ElementTree.fromstring(content).iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def texts(chart: Chart) -> list[str]:
    return ["".join(node.itertext()) for node in elements(chart, "text")]


def points(values: list[float], x: list[float], *, logarithmic=False) -> list[tuple[float, float]]:
    """Return the corners of a drawn line, in points of the page, with y upwards."""
    chart = Chart("Score", "step", [Line("a", x, values, 0, best=x[1])], logarithmic=logarithmic)
    style = f"stroke: {COLOURS[0]}; stroke-width: 1.4"
    (path,) = [node.get("d", "") for node in elements(chart, "path") if style in node.get("style", "")]
    numbers = [float(part) for part in path.replace("M", " ").replace("L", " ").split()]
    return [(x, -y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]


@pytest.mark.long
def test_points_of_a_line_are_at_their_values() -> None:
    first, middle, last = points([10.0, 30.0, 20.0], [0, 50, 100])
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert middle[1] > last[1] == pytest.approx((first[1] + middle[1]) / 2, abs=0.1)
    first, middle, last = points([1.0, 0.1, 0.01], [1, 10, 100], logarithmic=True)
    assert middle == pytest.approx(((first[0] + last[0]) / 2, (first[1] + last[1]) / 2), abs=0.1)


@pytest.mark.long
def test_values_that_cannot_be_drawn_are_left_out() -> None:
    assert len(points([1.0, 2.0, math.nan, math.inf], [0, 1, 2, 3])) == 2
    assert len(points([1.0, 2.0, -1.0, 0.0], [1, 2, 3, 4], logarithmic=True)) == 2
    for nothing in ([math.nan, math.inf], []):
        svg(Chart("t", "x", [Line("a", list(range(len(nothing))), nothing, 0)], logarithmic=True))


@pytest.mark.long
def test_texts_are_shown_as_they_are() -> None:
    chart = Chart(UNSAFE, UNSAFE, [Line(UNSAFE, [0, 1], [1.0, 2.0], 0)])
    shown = UNSAFE.replace("\x07", "\N{REPLACEMENT CHARACTER}")
    assert [text for text in texts(chart) if "script" in text] == [shown] * 2
    assert not elements(chart, "script")


@pytest.mark.long
def test_dots_beside_labels_are_at_their_values() -> None:
    spans = [(30.0, 60.0), None]
    lines = [Line("a", [40.0, None], range(2), 0, spans=spans), Line("b", [20.0, 10.0], range(2), 1)]
    chart = Chart("Score", "", lines, labels=["one", "two"])
    dots = [
        [float(node.get("x", "")) for node in elements(chart, "use") if colour in node.get("style", "")]
        for colour in COLOURS[:2]
    ]
    style = f"stroke: {COLOURS[0]}; stroke-width: 1.4"
    (interval,) = [
        node.get("d", "")
        for node in elements(chart, "path")
        if style in node.get("style", "") and "L" in node.get("d", "")
    ]
    low, high = (float(part.split()[0]) for part in interval.replace("M", "").split("L"))
    ((forty,), (twenty, ten)) = dots
    unit = (twenty - ten) / 10
    assert [(forty - ten) / unit, (low - ten) / unit, (high - ten) / unit] == pytest.approx([30, 20, 50], abs=0.1)
    assert {"one", "two"} <= {*texts(chart)}
    assert describe(chart) == "Score, of one, two, a, b"


def test_long_lines_are_thinned_to_means() -> None:
    points = thinned([(n, float(n % 2)) for n in range(1000)], 9)
    assert len(points) == 112
    assert points[0] == (4, pytest.approx(4 / 9))
    assert thinned([(1, 3.0), (2, 4.0)], 1) == [(1, 3), (2, 4)]
