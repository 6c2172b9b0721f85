"""Explorer pages of random vectors with given layouts, and how a test works with one in a browser."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nearfar.evaluation.explorer import (
    describe_column,
    explorer_data,
    explorer_html,
    neighbourhoods,
    unit_vectors,
)
from nearfar.evaluation.explorer.layout import align, normalise

WIDE, NARROW = (1280, 800), (390, 844)


class Example(NamedTuple):
    """A page and what it was made of."""

    file: Path
    texts: list[str]
    vectors: list[np.ndarray]
    layouts: list[np.ndarray]


def random_vectors(count: int, dim: int = 16, *, seed: int = 0) -> np.ndarray:
    return unit_vectors(np.random.default_rng(seed).normal(size=(count, dim)), "random")


def sorted_neighbours(vectors: np.ndarray, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The 10 nearest and 5 farthest other rows of each of ``ids`` and all cosines, by sorting in float64."""
    x = vectors.astype(np.float64)
    cosines = x[list(ids)] @ x.T
    others = np.array(
        [
            np.delete(np.argsort(-row, kind="stable"), np.argsort(-row, kind="stable") == i)
            for i, row in zip(ids, cosines, strict=True)
        ]
    )
    return others[:, :10], others[:, ::-1][:, :5], cosines


def write_page(
    file: Path,
    count: int,
    *,
    texts: list[str] | None = None,
    columns: dict[str, list[str]] | None = None,
    models: Sequence[str] = ("base", "tuned"),
    color_by: str | None = None,
) -> Example:
    """Write a page of ``count`` random vectors by each model."""
    texts = texts or [f"text number {i} about {'dogs' if i % 7 == 0 else 'cats'}" for i in range(count)]
    vectors = [random_vectors(count, seed=seed) for seed in range(len(models))]
    if len(vectors) > 1:
        vectors[1] = unit_vectors(vectors[0] + 0.8 * vectors[1], "random")
    layouts = [normalise(one[:, :2]) for one in vectors]
    layouts[1:] = [align(one, layouts[0]) for one in layouts[1:]]
    lists = [neighbourhoods(one) for one in vectors]
    described = [describe_column(name, values) for name, values in (columns or {}).items()]
    data = explorer_data(texts, described, dict(zip(models, vectors, strict=True)), lists, layouts, color_by=color_by)
    file.write_text(explorer_html(data, title="Explorer"), encoding="utf-8")
    return Example(file, texts, vectors, layouts)


class OpenPage:
    """An explorer page in a browser window, with everything that it writes to the console."""

    def __init__(self, browser: Any, file: Path, size: tuple[int, int] = WIDE, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **settings)
        self.tab = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.messages.append(message.text))
        self.tab.on("pageerror", lambda error: self.messages.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.messages.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("canvas[data-ready]")
        self.frame()

    def __enter__(self) -> "OpenPage":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def frame(self) -> None:
        """Wait until the map is drawn."""
        self.tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait_until(self, reached: Callable[[], bool], frames: int = 2000) -> None:
        """Draw frames until a condition holds. (Chromium's own waiting is blocked by the page's policy.)"""
        for _ in range(frames):
            if reached():
                return
            self.frame()
        raise AssertionError(f"not reached in {frames} frames")

    def drawn_pixels(self) -> int:
        """The number of pixels of the canvas that are not transparent."""
        return self.tab.evaluate(
            """() => {
                const canvas = document.getElementById("canvas");
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                let drawn = 0;
                for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
                return drawn;
            }"""
        )

    def image(self) -> str:
        """The canvas as a data URL."""
        return self.tab.evaluate("document.getElementById('canvas').toDataURL()")

    def position(self, text: int) -> tuple[float, float]:
        """The place of a point in the window."""
        x, y = self.tab.evaluate(f"explorer.screen({text})")
        box = self.tab.locator("#canvas").bounding_box()
        return box["x"] + x, box["y"] + y

    def click(self, text: int) -> None:
        """Click a point of the map."""
        self.tab.mouse.click(*self.position(text))
        self.frame()

    @property
    def selected(self) -> int | None:
        value = self.tab.locator("#canvas").get_attribute("data-selected")
        return int(value) if value else None

    def listed(self, name: str) -> list[tuple[int, list[float]]]:
        """The rows of a table of neighbours: the text and the cosines."""
        rows = self.tab.locator(f'table[data-list="{name}"] tbody tr').all()
        return [
            (
                int(row.locator("button").get_attribute("data-id")),
                [float(cell) for cell in row.locator("td.number").all_text_contents()],
            )
            for row in rows
        ]
