"""Charts: ticks, positions, thinned lines, and text alternatives."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from nearfar.evaluation.report.blocks import Chart, Line
from nearfar.evaluation.report.charts import HEIGHT, WIDTH, downsample, legend, svg, ticks


def parse_svg(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(svg(chart))


def points(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    paths = [path for path in root.iter("path") if path.get("class", "").startswith("line")]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", ""))] for path in paths
    ]


def position_of(root: ElementTree.Element, tick: str, axis: str) -> float:
    """Return the position of a tick, found by its label."""
    written = [node for node in root.iter("text") if node.text == tick]
    on_x_axis = [node for node in written if node.get("text-anchor") != "end" or float(node.get("y", 0)) > HEIGHT - 30]
    chosen = on_x_axis if axis == "x" else [node for node in written if node not in on_x_axis]
    (node,) = chosen
    return float(node.get(axis, "nan"))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (3, 3), (-2.7, -1.1), (0.00012, 0.00034), (0, 15_625), (99, 101)])
def test_ticks_are_round_and_cover_the_values(low: float, high: float) -> None:
    found = ticks(low, high)
    step = found[1] - found[0]
    assert found[0] <= low
    assert found[-1] >= high
    assert 3 <= len(found) <= 8
    assert all(math.isclose(b - a, step, rel_tol=1e-6) for a, b in pairwise(found))
    assert f"{step:.1e}"[:3] in ("1.0", "2.0", "5.0")
    assert all(math.isclose(tick / step, round(tick / step), abs_tol=1e-6) for tick in found)


def test_points_of_a_line_are_at_their_values() -> None:
    root = parse_svg(Chart("Score", "step", [Line("a", [0, 50, 100], [10.0, 30.0, 20.0], 0, best=50)]))
    ((first, middle, last),) = points(root)
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert first[0] == pytest.approx(position_of(root, "0", "x"), abs=0.1)
    assert first[1] == pytest.approx(position_of(root, "10", "y") - 3.5, abs=0.1)
    assert middle[1] == pytest.approx(position_of(root, "30", "y") - 3.5, abs=0.1)
    assert last[1] == pytest.approx((first[1] + middle[1]) / 2, abs=0.1)
    (ring,) = [node for node in root.iter("circle") if "ring" in node.get("class", "")]
    assert (float(ring.get("cx", 0)), float(ring.get("cy", 0))) == middle
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in (first, middle, last))


def test_logarithmic_axes() -> None:
    line = Line("a", [1, 10, 100], [1.0, 0.1, 0.01], 0)
    ((first, middle, last),) = points(parse_svg(Chart("t", "x", [line], logarithmic="both")))
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert middle[1] == pytest.approx((first[1] + last[1]) / 2, abs=0.1)
    ((first, middle, last),) = points(parse_svg(Chart("t", "x", [line], logarithmic="y")))
    assert middle[0] - first[0] == pytest.approx((last[0] - first[0]) / 11, abs=0.1)


def test_values_that_are_not_finite_are_left_out() -> None:
    root = parse_svg(Chart("t", "x", [Line("a", [0, 1, 2], [1.0, math.nan, 2.0], 0), Line("b", [0], [math.inf], 1)]))
    (line,) = points(root)
    assert len(line) == 2
    assert "no data" in svg(Chart("t", "x", [Line("a", [0], [math.nan], 0)]))
    assert "no data" in svg(Chart("t", "x", []))
    assert len(points(parse_svg(Chart("t", "x", [Line("a", [-1, 1], [0.0, 1.0], 0)], logarithmic="both")))[0]) == 1


def test_a_single_point_and_a_flat_line_are_drawn() -> None:
    for line in (Line("a", [5], [0.0], 0), Line("a", [1, 2], [3.0, 3.0], 0)):
        for logarithmic in ("neither", "both") if line.y[0] > 0 else ("neither",):
            (found,) = points(parse_svg(Chart("t", "x", [line], logarithmic=logarithmic)))
            assert len(found) == len(line.x)


def test_names_are_escaped_and_lines_are_described_in_text() -> None:
    chart = Chart('<b>"t"', "x<", [Line("<i>&", [0, 3], [1.5, 4.0], 9)])
    root = parse_svg(chart)
    assert root.get("aria-label") == '<b>"t", by x<; <i>&: from 1.5 at 0 to 4 at 3, lowest 1.5, highest 4'
    assert "<i>" not in legend([("<i>", 0)])
    assert "dash1" in svg(chart)
    assert svg(chart) == svg(chart)


def test_thinning_takes_means_of_successive_points() -> None:
    x, y = list(range(1, 251)), [float(n % 2) for n in range(250)]
    fewer_x, fewer_y, size = downsample(x, y, points=100)
    assert (len(fewer_x), len(fewer_y), size) == (84, 84, 3)
    assert fewer_x[:2] == [2.0, 5.0]
    assert fewer_y[0] == pytest.approx(1 / 3)
    assert fewer_x[-1] == 250.0
    assert downsample([1, 2], [3.0, 4.0]) == ([1.0, 2.0], [3.0, 4.0], 1)
    assert downsample([], []) == ([], [], 1)
