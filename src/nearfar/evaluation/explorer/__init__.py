"""The explorer page: the neighbours of every text, how much they change between two encoders, and one HTML file.

The file has the data as escaped JSON; styles and script are allowed by their hashes alone.
"""

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64
from markupsafe import Markup
from numpy.typing import NDArray

from nearfar.data.cells import parse_number, sort_labels
from nearfar.disk import write_text
from nearfar.evaluation.explorer import layout
from nearfar.evaluation.render import template
from nearfar.evaluation.results import ExplorerPage
from nearfar.neighbours.exact import nearest
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

NEAREST, FARTHEST = 10, 5
"""Number of nearest, and of farthest, texts of each text."""
_BLOCK = 4096
MAX_TEXTS = 50_000
"""Maximum number of texts on a page."""
TEXT_LENGTH, VALUE_LENGTH = 1000, 200
"""Maximum number of characters of a text, and of a value of another column; the page has the first ones."""
MAX_CATEGORIES = 30
"""Maximum number of different values that each get a colour."""
MAX_NUMERIC_CATEGORIES = 10
"""A column of numbers with more different values than this gets a colour scale."""
_SCRIPTS = ("data.js", "colors.js", "map.js", "panel.js", "main.js")
_LAYOUT_NOTE = (
    "Positions are by t-SNE: near points are similar texts, but the distance between groups and their size mean little."
)


class Neighbourhoods(NamedTuple):
    """The nearest and the farthest other texts of each text, by one encoder, in order."""

    nearest: Int64[np.ndarray, "texts nearest"]
    """Positions, highest cosine first."""
    farthest: Int64[np.ndarray, "texts farthest"]
    """Positions, lowest cosine first."""


def unit_vectors(vectors: NDArray[np.floating], name: str) -> Float32[np.ndarray, "texts dim"]:
    """The vectors divided by their lengths; zero vectors stay zero.

    Raises:
        NearfarError: a vector is not finite. ``name`` is the encoder's.
    """
    x = np.asarray(vectors, dtype=np.float64)
    finite = np.isfinite(x).all(axis=1)
    if not finite.all():
        raise NearfarError(f"{name}: the vector of text {int((~finite).argmax()) + 1} is not finite.")
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0).astype(np.float32)


def neighbourhoods(
    vectors: Float32[np.ndarray, "texts dim"], *, device: str = "cpu", on_block: Callable[[int], None] | None = None
) -> Neighbourhoods:
    """The :data:`NEAREST` nearest and :data:`FARTHEST` farthest other texts of each text, by exact search.

    Of texts with equal cosines the first comes first.

    Args:
        vectors: unit vectors of at least two texts.
        device: where cosines are computed.
        on_block: called after each block with the number of cosines that were computed, ``2 texts^2`` in all.
    """
    near = nearest(vectors, vectors, min(NEAREST + 1, len(vectors)), device=device, on_block=on_block).ids
    far = nearest(-vectors, vectors, min(FARTHEST + 1, len(vectors)), device=device, on_block=on_block).ids
    return Neighbourhoods(_without_self(near), _without_self(far))


def _without_self(ids: Int64[np.ndarray, "texts k"]) -> Int64[np.ndarray, "texts others"]:
    """The lists without the text itself, or without their last entry where the text is not in its list."""
    others = ids != np.arange(len(ids))[:, None]
    others[others.all(axis=1), -1] = False
    return ids[others].reshape(len(ids), -1)


def cosines(
    vectors: Float32[np.ndarray, "texts dim"], ids: Int64[np.ndarray, "texts k"]
) -> Float32[np.ndarray, "texts k"]:
    """The cosine of each text with the texts in its list; ``vectors`` have unit length."""
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(ids), _BLOCK))
    return np.concatenate([np.einsum("td,tkd->tk", vectors[block], vectors[ids[block]]) for block in blocks])


def compared_neighbours(texts: int) -> int:
    """The number k of nearest texts that :func:`change` compares: 10, or half of the other texts if that is less."""
    return max(1, min(NEAREST, (texts - 1) // 2))


def change(before: Neighbourhoods, after: Neighbourhoods) -> Float32[np.ndarray, " texts"]:
    """How much each neighbourhood changes: 1 - |A & B| / |A | B|, with A and B its k nearest texts (Jaccard distance).

    k is :func:`compared_neighbours`. 0 means the same texts, 1 means no text in common.
    """
    k = compared_neighbours(len(before.nearest))
    first, second = before.nearest[:, :k], after.nearest[:, :k]
    common = sum((first == second[:, [column]]).sum(axis=1) for column in range(k))
    return (1 - common / (2 * k - common)).astype(np.float32)


class Column(NamedTuple):
    """One column beside the texts."""

    name: str
    kind: Literal["categories", "numbers", "values"]
    """categories: a colour for each value; numbers: a colour scale; values: no colours."""
    values: list[str]
    """The value of each text; empty where it is missing."""
    categories: list[str]
    """The different values, in the order of their colours; empty for other kinds."""


def describe_column(name: str, values: Sequence[str]) -> Column:
    """Find the kind of a column from its values. Missing values are empty strings."""
    different = {value for value in values if value}
    numeric = not any(math.isnan(parse_number(value)) for value in different)
    if numeric and len(different) > MAX_NUMERIC_CATEGORIES:
        return Column(name, "numbers", list(values), [])
    if not 0 < len(different) <= MAX_CATEGORIES:
        return Column(name, "values", list(values), [])
    ordered = sorted(different, key=parse_number) if numeric else sort_labels(different)
    return Column(name, "categories", list(values), ordered)


def check_color_column(columns: Sequence[Column], name: str, source: object) -> None:
    """Raise a NearfarError unless ``columns`` has a column ``name`` that gives colours. ``source`` names the file."""
    coloured = [column.name for column in columns if column.kind != "values"]
    if name not in coloured:
        raise NearfarError(
            f"--color-by {name}: {source} has no other column of this name with at most {MAX_CATEGORIES} different "
            f"values, or with numbers alone. Columns that give colours: {', '.join(coloured) or 'none'}."
        )


def write_page(
    file: Path,
    texts: Sequence[str],
    columns: Sequence[Column],
    vectors: Mapping[str, NDArray[np.floating]],
    *,
    spec: str,
    color_by: str | None,
    notes: list[str],
    seed: int,
    device: str,
    progress: bool,
) -> ExplorerPage:
    """Compute the neighbours and the layouts by each encoder, and write the page.

    Args:
        file: the page.
        texts: 2 to :data:`MAX_TEXTS` texts.
        columns: other columns, a value for each text.
        vectors: name of the encoder -> a vector of each text; at most two encoders.
        spec: the source of the texts.
        color_by: the column that gives the colours at first.
        notes: sentences to show below the lists.
        seed: seed of t-SNE.
        device: where cosines are computed.
        progress: show progress bars.

    Raises:
        NearfarError: an encoder did not return a finite vector for each text.
    """
    count = len(texts)
    for name, returned in vectors.items():
        if returned.ndim != 2 or len(returned) != count:
            raise NearfarError(f"{name}: returned shape {returned.shape} for {count} texts, not one vector for each.")
    units = {name: unit_vectors(returned, name) for name, returned in vectors.items()}
    lists, points = list[Neighbourhoods](), list[NDArray[np.float32]]()
    for name, unit in units.items():
        with progress_bar(f"neighbours, {name}", 2 * count**2, unit="pairs", shown=progress) as advance:
            lists.append(neighbourhoods(unit, device=device, on_block=advance))
        with progress_bar(f"layout, {name}", 1, unit="layouts", shown=progress) as advance:
            points.append(layout.plane_layout(unit, start=points[0] if points else None, seed=seed))
            advance(1)
    first = layout.normalise(points[0])
    layouts = [first, *(layout.align(one, first) for one in points[1:])]
    data = explorer_data(texts, columns, units, lists, layouts, color_by=color_by, notes=notes)
    write_text(file, explorer_html(data, title=f"Explorer: {', '.join(units)}"))
    return ExplorerPage(
        file=str(file),
        spec=spec,
        texts=count,
        models=list(units),
        compared=compared_neighbours(count),
        mean_change=round(float(change(*lists).mean()), 6) if len(lists) == 2 else None,
        notes=notes,
    )


def explorer_data(
    texts: Sequence[str],
    columns: Sequence[Column],
    vectors: Mapping[str, Float32[np.ndarray, "texts dim"]],
    lists: Sequence[Neighbourhoods],
    layouts: Sequence[Float32[np.ndarray, "texts 2"]],
    *,
    color_by: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The data of the page as JSON values; arrays are base64 of little-endian typed arrays.

    Args:
        texts: 2 to :data:`MAX_TEXTS` texts.
        columns: other columns, a value for each text.
        vectors: unit vectors of the texts by one or two encoders, by the encoder's name.
        lists: nearest and farthest texts by each encoder.
        layouts: positions by each encoder.
        color_by: the column that gives the colours at first.
        notes: sentences to show below the lists.
    """

    def encoded(ids: Int64[np.ndarray, "texts k"]) -> dict[str, Any]:
        scaled = [np.rint(np.clip(cosines(own, ids), -1, 1) * 32767) for own in vectors.values()]
        return {"width": ids.shape[1], "ids": _encode(ids, "<u2"), "cosines": [_encode(one, "<i2") for one in scaled]}

    data: dict[str, Any] = {
        "models": list(vectors),
        "texts": [shorten(text, TEXT_LENGTH) for text in texts],
        "columns": [_column(column) for column in columns],
        "colorBy": color_by,
        "layouts": [_encode(points, "<f4") for points in layouts],
        "nearest": [encoded(one.nearest) for one in lists],
        "farthest": [encoded(one.farthest) for one in lists],
        "compared": compared_neighbours(len(texts)),
        "notes": [*notes, _LAYOUT_NOTE],
    }
    if len(lists) > 1:
        changes = change(*lists)
        before, after = (cosines(own, lists[0].nearest).mean(axis=1) for own in vectors.values())
        order = np.lexsort((after - before, -changes))  # of equal changes, the largest drop of the mean cosine first
        data |= {"change": _encode(changes, "<f4"), "order": _encode(order, "<u2")}
    return data


def explorer_html(data: Mapping[str, Any], title: str) -> str:
    """The page as one HTML document, which loads nothing.

    The Content-Security-Policy forbids every request, and runs only this script and these styles. Texts are data: the
    JSON has no ``<``, ``>`` or ``&``, so that no text can end its element, and the script writes texts as text nodes.
    """
    folder = files("nearfar.evaluation.explorer")
    style, *parts = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", *_SCRIPTS))
    script = '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    own = {"policy": policy, "style": style, "script": script}
    page = template("nearfar.evaluation.explorer", "page.html")
    return page.render(title=title, data=data, **{name: Markup(text) for name, text in own.items()}) + "\n"


def shorten(text: str, length: int) -> str:
    """The text, or its first ``length`` characters and an ellipsis."""
    return text if len(text) <= length else text[:length] + "…"


def _column(column: Column) -> dict[str, Any]:
    known: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.kind != "categories":
        return known | {"values": [shorten(value, VALUE_LENGTH) for value in column.values]}
    codes = [column.categories.index(value) if value else 255 for value in column.values]
    categories = [shorten(name, VALUE_LENGTH) for name in column.categories]
    return known | {"categories": categories, "codes": _encode(np.array(codes), "u1")}


def _encode(array: NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
