"""The explorer page in headless Chromium: it draws, selects, searches, moves between layouts, and runs no text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluation.explorer.pages import NARROW, WIDE, Example, OpenPage, sorted_neighbours, write_page

pytestmark = pytest.mark.long
SIZES = {"wide": WIDE, "narrow": NARROW}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Example:
    columns = {
        "kind": [("red", "green", "")[i % 3] for i in range(1000)],
        "length": [str(i / 10) if i % 50 else "" for i in range(1000)],
        "note": [f"note {i}" for i in range(1000)],
    }
    return write_page(tmp_path_factory.mktemp("small") / "page.html", 1000, columns=columns, color_by="kind")


def lonely(example: Example, layout: int = 0) -> int:
    """A text whose point is far from all others, so that a click cannot hit another one."""
    points = example.layouts[layout].astype(np.float64)
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=-1) + np.eye(len(points)) * 1e9
    return int(squares.min(axis=1).argmax())


@pytest.mark.parametrize(
    ("size", "scheme"), [("wide", "light"), pytest.param("narrow", "dark", marks=pytest.mark.nightly)]
)
def test_a_thousand_points(browser: Any, small: Example, size: str, scheme: str) -> None:
    with OpenPage(browser, small.file, SIZES[size], color_scheme=scheme) as page:
        assert page.drawn_pixels() > 5000
        width = page.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]
        box = page.tab.locator("#canvas").bounding_box()
        assert box["width"] > 0.55 * SIZES[size][0]
        assert box["height"] > 300
        text = lonely(small)
        page.click(text)
        assert page.selected == text
        assert page.tab.locator("#details h2").text_content() == small.texts[text]
        for side, vectors in enumerate(small.vectors):
            (near,), (far,), _ = sorted_neighbours(vectors, [text])
            for name, expected in (("nearest", near), ("farthest", far)):
                rows = page.listed(f"{name}-{side}")
                assert [found for found, _ in rows] == expected.tolist()
                for found, cosines in rows:
                    exact = [float(one[text].astype(np.float64) @ one[found]) for one in small.vectors]
                    assert cosines == pytest.approx(exact, abs=0.00055)
        assert page.messages == []
        assert page.requests == [small.file.as_uri()]


def test_the_slider_moves_points_from_the_first_layout_to_the_second(browser: Any, small: Example) -> None:
    with OpenPage(browser, small.file) as page:
        places = {}
        for percent in (0, 25, 100):
            page.tab.locator("#slider").fill(str(percent))
            page.frame()
            places[percent] = np.array([page.tab.evaluate(f"explorer.screen({i})") for i in range(20)])
        assert places[25] == pytest.approx(0.75 * places[0] + 0.25 * places[100], abs=1e-3)
        scale = np.ptp(places[0], axis=0) / np.ptp(small.layouts[0][:20], axis=0)
        assert scale[0] == pytest.approx(scale[1], rel=1e-4)
        moved = (places[100] - places[0]) / scale
        assert moved == pytest.approx(small.layouts[1][:20] - small.layouts[0][:20], abs=1e-4)
        assert np.abs(moved).max() > 0.1
        assert page.tab.locator("#slider").get_attribute("aria-valuetext").startswith("100%")


def test_search_lists_marks_and_highlights(browser: Any, small: Example) -> None:
    with OpenPage(browser, small.file) as page:
        before = page.image()
        page.tab.locator("#search").fill("DOGS")
        page.frame()
        count = sum("dogs" in text for text in small.texts)
        assert page.tab.locator("#status").text_content() == f"{count} of 1,000 texts contain this."
        assert page.tab.locator("#list-title").text_content() == "Texts found"
        assert page.tab.locator("#list mark").first.text_content() == "dogs"
        assert page.tab.locator("#list li").count() == 50
        page.tab.locator("#more").click()
        assert page.tab.locator("#list li").count() == 100
        assert page.image() != before
        page.tab.locator("#search").fill("no such words")
        assert page.tab.locator("#list li").count() == 0
        page.tab.locator("#search").fill("")
        page.frame()
        assert page.image() == before
        assert page.tab.locator("#list-title").text_content() == "Moved most"


def test_the_texts_that_moved_most_come_first(browser: Any, small: Example) -> None:
    near = [sorted_neighbours(vectors, range(1000))[0] for vectors in small.vectors]
    changes = [1 - len({*a} & {*b}) / len({*a} | {*b}) for a, b in zip(*near, strict=True)]
    with OpenPage(browser, small.file) as page:
        listed = page.tab.locator("#list button").all()
        found = [int(button.get_attribute("data-id")) for button in listed]
        assert [changes[i] for i in found] == sorted(changes, reverse=True)[:50]
        assert listed[0].locator(".value").text_content() == f"changed {changes[found[0]]:.0%}"
        listed[3].click()
        assert page.selected == found[3]
        details = page.tab.locator("#details dl").text_content()
        assert "place 4 of 1,000" in details
        assert f"note {found[3]}" in details


def test_colours_and_legend(browser: Any, small: Example) -> None:
    with OpenPage(browser, small.file) as page:
        names = page.tab.locator("#color option").all_text_contents()
        assert names == ["One colour", "Change of neighbourhood", "kind", "length"]
        assert page.tab.locator("#color option:checked").text_content() == "kind"
        assert page.tab.locator("#legend button").all_text_contents() == ["green", "red"]
        images = {page.image()}
        page.tab.locator("#legend button").first.click()
        page.frame()
        assert page.tab.locator("#legend button").first.get_attribute("aria-pressed") == "true"
        images.add(page.image())
        for name in ("length", "Change of neighbourhood", "One colour"):
            page.tab.locator("#color").select_option(label=name)
            page.frame()
            images.add(page.image())
        assert len(images) == 5
        page.tab.locator("#color").select_option(label="length")
        assert page.tab.locator("#legend").text_content() == "0.199.9"
        assert page.messages == []


def test_everything_works_by_keyboard(browser: Any, small: Example) -> None:
    with OpenPage(browser, small.file) as page:
        page.tab.locator("#canvas").focus()
        start = page.position(0)
        page.tab.keyboard.press("ArrowRight")
        assert page.position(0) == pytest.approx((start[0] - 40, start[1]))
        page.tab.keyboard.press("+")
        page.tab.keyboard.press("Enter")
        box = page.tab.locator("#canvas").bounding_box()
        places = np.array(page.tab.evaluate("Array.from({length: 1000}, (_, i) => explorer.screen(i))"))
        distances = np.linalg.norm(places - [box["width"] / 2, box["height"] / 2], axis=1)
        assert page.selected == int(distances.argmin())
        page.tab.keyboard.press("Escape")
        assert page.selected is None
        page.tab.keyboard.press("0")
        assert page.position(0) == pytest.approx(start)
        page.tab.locator("#list button").first.focus()
        page.tab.keyboard.press("Enter")
        assert page.selected is not None
        assert page.tab.evaluate("document.activeElement.tagName") == "H2"


def test_pan_zoom_and_hover_by_mouse(browser: Any, small: Example) -> None:
    with OpenPage(browser, small.file) as page:
        start = page.image()
        x, y = page.position(5)
        page.tab.mouse.move(x, y)
        assert page.tab.locator("#tip").text_content() in small.texts
        page.tab.mouse.down()
        page.tab.mouse.move(x + 60, y + 30, steps=3)
        page.tab.mouse.up()
        assert page.position(5) == pytest.approx((x + 60, y + 30), abs=0.01)
        assert page.selected is None  # a drag is not a click
        x, y = page.position(5)
        other = page.position(6)
        page.tab.mouse.move(x, y)
        page.tab.mouse.wheel(0, -400)
        page.wait_until(lambda: page.position(6) != other)
        assert page.position(5) == pytest.approx((x, y), abs=0.5)
        page.tab.locator("#zoom-reset").click()
        page.frame()
        assert page.image() == start


@pytest.mark.parametrize("count", [2, pytest.param(12, marks=pytest.mark.nightly)])
def test_few_texts_and_one_model(browser: Any, tmp_path: Path, count: int) -> None:
    example = write_page(tmp_path / "few.html", count, models=["only"])
    with OpenPage(browser, example.file) as page:
        assert page.drawn_pixels() > 0
        assert page.tab.locator("#morph").is_hidden()
        assert page.tab.locator("#list-title").text_content() == "Texts"
        assert page.tab.locator("#list li").count() == count
        page.tab.locator("#list button").first.click()
        (near,), *_ = sorted_neighbours(example.vectors[0], [0])
        assert [found for found, _ in page.listed("nearest-0")] == near.tolist()
        assert page.messages == []


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(2)>",
    "line \u2028 separator \u2029 and \x00 and \ufeff",
    "{policy} {script} {data}",
    "&lt;b&gt; \"quoted\" 'quoted' \\u003c",
    "right-to-left \u202e text",
    "]]>",
    "😀 İ ß emoji and letters that change length in lower case",
]


def test_hostile_texts_names_and_values_are_shown_as_they_are(browser: Any, tmp_path: Path) -> None:
    columns = {HOSTILE[0]: HOSTILE, "__proto__": HOSTILE[::-1], HOSTILE[2]: [str(i) for i in range(len(HOSTILE))]}
    example = write_page(
        tmp_path / "hostile.html",
        len(HOSTILE),
        texts=HOSTILE,
        columns=columns,
        models=HOSTILE[:2],
        color_by="__proto__",
    )
    with OpenPage(browser, example.file) as page:
        assert page.messages == []
        assert page.tab.locator("script").count() == 2
        assert page.tab.locator("img").count() == 0
        listed = page.tab.locator("#list button .words").all_text_contents()
        assert sorted(listed) == sorted(HOSTILE)
        for number, text in enumerate(HOSTILE):
            page.tab.evaluate(f"explorer.select({number})")
            assert page.tab.locator("#details h2").text_content() == text
            assert page.tab.locator("#details dd").all_text_contents()[1] == text
        assert page.tab.locator("#models").text_content() == f"Before: {HOSTILE[0]} · After: {HOSTILE[1]}"
        assert HOSTILE[0] in page.tab.locator("#color option").all_text_contents()
        page.tab.locator("#search").fill("onerror")
        assert page.tab.locator("#list mark").text_content() == "onerror"
        assert page.messages == []
        assert page.requests == [example.file.as_uri()]
