"""The explorer page: neighbours against plain sorting, data read back from the file, its policy, hostile texts."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import NearfarError
from nearfar.evaluation.explorer import (
    TEXT_LENGTH,
    VALUE_LENGTH,
    Neighbourhoods,
    change,
    cosines,
    describe_column,
    explorer_html,
    neighbourhoods,
    unit_vectors,
)
from tests.evaluation.explorer.pages import random_vectors, sorted_neighbours, write_page
from tests.evaluation.report.cases import ParsedPage


def elements_of(page: str) -> list[str]:
    """The content of style, data and script of a page."""
    return re.findall(r"<(?:style|script)[^>]*>(.*?)</(?:style|script)>", page, re.DOTALL)


def read_page(file: Path) -> tuple[list[str], dict[str, Any]]:
    """The content of style, data and script of a page, and the data."""
    raw = elements_of(file.read_text(encoding="utf-8"))
    return raw, json.loads(raw[1])


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
    changes, order = array(data["change"], "<f4"), array(data["order"], "<u2")
    near, _, cosines_before = sorted_neighbours(example.vectors[0], range(60))
    cosines_after = sorted_neighbours(example.vectors[1], range(60))[2]
    drops = np.take_along_axis(cosines_before - cosines_after, near, axis=1).mean(axis=1)
    assert order.tolist() == sorted(range(60), key=lambda text: (-changes[text], -drops[text]))


def test_the_policy_allows_the_script_and_the_style_by_hash_and_nothing_else(tmp_path: Path) -> None:
    file = write_page(tmp_path / "page.html", 20).file
    raw, _ = read_page(file)
    elements = ParsedPage(file.read_text(encoding="utf-8")).tags
    (policy,) = (attributes["content"] for _, attributes in elements if attributes.get("http-equiv"))
    style, _, script = ("sha256-" + base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in raw)
    assert policy == (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
    )
    names = [name for _, attributes in elements for name in attributes]
    assert not any(name.startswith("on") or name in ("src", "href", "style") for name in names)
    assert "innerHTML" not in raw[2]
    assert "http" not in raw[0] + raw[2]


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028\u2029", "&amp;", "\ud800", 'a"\\b\x00', "ß😀"])
def test_json_in_a_script_element(text: str) -> None:
    page = explorer_html({text: [text]}, "</title>{data}")
    assert "<title>&lt;/title&gt;{data}</title>" in page
    (_, written, _) = elements_of(page)
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff]", written)
    assert json.loads(written) == {text: [text]}


def test_long_texts_and_values_are_shortened(tmp_path: Path) -> None:
    long = ["x" * 5000, "y" * TEXT_LENGTH, "z"]
    _, data = read_page(write_page(tmp_path / "page.html", 3, texts=long, columns={"c": long}).file)
    assert data["texts"] == ["x" * TEXT_LENGTH + "…", *long[1:]]
    assert [len(name) for name in data["columns"][0]["categories"]] == [VALUE_LENGTH + 1, VALUE_LENGTH + 1, 1]


@pytest.mark.parametrize(
    ("values", "kind", "categories"),
    [
        (["b", "a", "", "a"], "categories", ["a", "b"]),
        (["1.5", "-2", "0"], "categories", ["-2", "0", "1.5"]),
        ([str(n) for n in range(10)], "categories", [str(n) for n in range(10)]),
        ([str(n / 2) for n in range(11)], "numbers", []),
        ([*map(str, range(40)), "many"], "values", []),
        ([f"c{n:02d}" for n in range(30)], "categories", [f"c{n:02d}" for n in range(30)]),
        ([f"c{n}" for n in range(31)], "values", []),
        (["", ""], "values", []),
    ],
)
def test_kind(values: list[str], kind: str, categories: list[str]) -> None:
    column = describe_column("c", values)
    assert (column.kind, column.categories, column.values) == (kind, categories, values)


@pytest.mark.parametrize("count", [2, 5, 11, 12, 300])
def test_lists_are_those_of_a_full_sort(count: int) -> None:
    vectors = random_vectors(count)
    computed: list[int] = []
    found = neighbourhoods(vectors, on_block=computed.append)
    near, far, exact = sorted_neighbours(vectors, range(count))
    assert found.nearest.tolist() == near.tolist()
    assert found.farthest.tolist() == far.tolist()
    assert sum(computed) == 2 * count**2
    assert cosines(vectors, found.nearest) == pytest.approx(np.take_along_axis(exact, near, axis=1), abs=1e-6)


def test_a_text_is_never_its_own_neighbour_even_among_many_equal_vectors() -> None:
    vectors = np.ones((40, 1), dtype=np.float32)
    found = neighbourhoods(vectors)
    assert found.nearest.shape == (40, 10)
    assert found.farthest.shape == (40, 5)
    for number in range(40):
        others = [other for other in range(40) if other != number]
        assert found.nearest[number].tolist() == others[:10]
        assert found.farthest[number].tolist() == others[:5]


def test_unit_vectors() -> None:
    found = unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0]]), "m")
    assert found == pytest.approx(np.array([[0.6, 0.8], [0, 0], [1, 0]]))
    with pytest.raises(NearfarError, match="m: the vector of text 2 is not finite"):
        unit_vectors(np.array([[1.0], [np.nan]]), "m")


def test_change_is_the_jaccard_distance() -> None:
    before, after = (neighbourhoods(random_vectors(60, 4, seed=seed)) for seed in (0, 1))
    expected = [1 - len({*a} & {*b}) / len({*a} | {*b}) for a, b in zip(before.nearest, after.nearest, strict=True)]
    assert change(before, after) == pytest.approx(expected, abs=1e-7)
    assert len(set(expected)) > 3
    assert change(before, before).tolist() == [0] * 60


def test_change_of_few_texts_compares_the_first_half_only() -> None:
    far = np.zeros((5, 1), dtype=np.int64)
    before = Neighbourhoods(np.array([[1, 2, 3, 4]] * 5), far)
    after = Neighbourhoods(np.array([[2, 1, 3, 4], [3, 4, 1, 2], [1, 3, 2, 4], [1, 2, 4, 3], [4, 3, 2, 1]]), far)
    assert change(before, after) == pytest.approx([0, 1, 2 / 3, 0, 1])
