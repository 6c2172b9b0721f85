"""The HTML file of the explorer: data read back from it, its policy, and characters that could break out."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.evaluation.explorer.page import (
    TEXT_LENGTH,
    VALUE_LENGTH,
    check_color_column,
    describe_column,
    explorer_html,
    script_json,
)
from tests.evaluation.explorer.pages import sorted_neighbours, write_page


class Reader(HTMLParser):
    """The elements of a page with their attributes, and the content of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:  # inside a script or style
            self.raw[-1] += data


def read_page(file: Path) -> tuple[Reader, dict[str, Any]]:
    reader = Reader(file.read_text(encoding="utf-8"))
    return reader, json.loads(reader.raw[1])


def array(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_the_data_of_a_page(tmp_path: Path) -> None:
    columns = {"kind": [("b", "a", "")[i % 3] for i in range(60)], "size": [str(i) for i in range(60)]}
    example = write_page(tmp_path / "page.html", 60, columns=columns)
    _, data = read_page(example.file)
    assert data["texts"] == example.texts
    assert data["models"] == ["base", "tuned"]
    assert data["columns"][0]["categories"] == ["a", "b"]
    assert array(data["columns"][0]["codes"], "u1").tolist() == [1, 0, 255] * 20
    assert data["columns"][1] == {"name": "size", "kind": "numbers", "values": columns["size"]}
    for side, vectors in enumerate(example.vectors):
        near, far, _ = sorted_neighbours(vectors, range(60))
        assert array(data["layouts"][side], "<f4").reshape(60, 2) == pytest.approx(example.layouts[side])
        for name, expected in (("nearest", near), ("farthest", far)):
            lists = data[name][side]
            assert array(lists["ids"], "<u2").reshape(60, lists["width"]).tolist() == expected.tolist()
            for other, scaled in enumerate(lists["cosines"]):
                x = example.vectors[other].astype(np.float64)
                exact = np.einsum("td,tkd->tk", x, x[expected])
                assert array(scaled, "<i2") / 32767 == pytest.approx(exact.ravel(), abs=2e-5)
    changes = array(data["change"], "<f4")
    assert (np.diff(changes[array(data["order"], "<u2")]) <= 0).all()


def test_the_policy_allows_the_script_and_the_style_by_hash_and_nothing_else(tmp_path: Path) -> None:
    reader, _ = read_page(write_page(tmp_path / "page.html", 20).file)
    (policy,) = (attrs["content"] for tag, attrs in reader.elements if attrs.get("http-equiv"))
    style, _, script = (
        "sha256-" + base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in reader.raw
    )
    assert policy == (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
    )
    assert not any(
        name.startswith("on") or name in ("src", "href", "style") for _, one in reader.elements for name in one
    )
    assert "innerHTML" not in reader.raw[2]
    assert "http" not in reader.raw[0] + reader.raw[2]


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028\u2029", "&amp;", "\ud800", 'a"\\b\x00', "ß😀"])
def test_json_in_a_script_element(text: str) -> None:
    written = script_json({text: [text]})
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff]", written)
    written.encode()
    assert json.loads(written) == {text: [text]}


def test_long_texts_and_values_are_shortened(tmp_path: Path) -> None:
    long = ["x" * 5000, "y" * TEXT_LENGTH, "z"]
    _, data = read_page(write_page(tmp_path / "page.html", 3, texts=long, columns={"c": long}, search=True).file)
    assert data["texts"] == ["x" * TEXT_LENGTH + "…", *long[1:]]
    assert [len(name) for name in data["columns"][0]["categories"]] == [VALUE_LENGTH + 1, VALUE_LENGTH + 1, 1]


def test_the_title_is_escaped(tmp_path: Path) -> None:
    assert "<title>&lt;/title&gt;{data}</title>" in explorer_html({}, "</title>{data}")


@pytest.mark.parametrize(
    ("values", "kind", "categories"),
    [
        (["b", "a", "", "a"], "categories", ["a", "b"]),
        (["10", "9", "10", ""], "categories", ["9", "10"]),
        (["1.5", "-2", "0"], "categories", ["-2", "0", "1.5"]),
        ([str(n) for n in range(10)], "categories", [str(n) for n in range(10)]),
        ([str(n / 2) for n in range(11)], "numbers", []),
        ([*map(str, range(40)), ""], "numbers", []),
        ([*map(str, range(40)), "many"], "values", []),
        ([f"c{n:02d}" for n in range(30)], "categories", [f"c{n:02d}" for n in range(30)]),
        ([f"c{n}" for n in range(31)], "values", []),
        (["", ""], "values", []),
        (["nan", "inf"], "categories", ["inf", "nan"]),
    ],
)
def test_kind(values: list[str], kind: str, categories: list[str]) -> None:
    column = describe_column("c", values)
    assert (column.kind, column.categories, column.values) == (kind, categories, values)


def test_a_column_without_colours_is_refused() -> None:
    columns = [describe_column("id", [f"x{n}" for n in range(1200)]), describe_column("topic", ["a", "b"])]
    check_color_column(columns, "topic", "t.tsv")
    with pytest.raises(NearfarError, match=r"--color-by id: the column has 1,200 different values"):
        check_color_column(columns, "id", "t.tsv")
    with pytest.raises(NearfarError, match=r"--color-by tpic: t.tsv has no other column .* columns: id, topic"):
        check_color_column(columns, "tpic", "t.tsv")
    with pytest.raises(NearfarError, match="there are none"):
        check_color_column([], "topic", "t.txt")
