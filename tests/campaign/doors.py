"""What runs in a fork of the server: nearfar reads a file, a plain reader reads it too, and both are compared.

Each function returns ``{"error": message or None, "difference": sentence or ""}``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401  # imported once, by the server

from nearfar.data import lines, nli, noise, retrieval, rows, sts, triplets
from nearfar.data.sources import read_columns
from nearfar.types import NearfarError
from tests.campaign import plain_loaders, plain_readers
from tests.campaign.plain_readers import RefusedError, UnclearError

PAIR, TRIPLET = ("anchor", "positive"), ("anchor", "positive", "negative")


def _labelled(file: Path) -> list[tuple[str, str]]:
    data = rows.load_labelled(str(file))
    assert data.targets is not None
    return [(text, data.label_names[int(target)]) for (text,), target in zip(data.rows, data.targets, strict=True)]


def _beir(folder: Path) -> dict[str, Any]:
    task = retrieval.open_folder(folder, None).task(exclude_same_id=False)
    relevant = {
        query: {task.document_ids[position]: grade for position, grade in found.items()}
        for query, found in zip(task.query_ids, task.relevant, strict=True)
    }
    documents = dict(zip(task.document_ids, task.documents, strict=True))
    return {
        "documents": documents,
        "queries": dict(zip(task.query_ids, task.queries, strict=True)),
        "relevant": relevant,
    }


DOORS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "lines": (lambda file: list(lines.read_texts(file)), plain_readers.lines),
    "nli": (lambda file: [tuple(row) for row in nli.load_nli(str(file)).rows], plain_loaders.nli),
    "scored": (lambda file: [tuple(pair) for pair in sts.load_pairs(str(file))], plain_loaders.scored),
    "labelled": (_labelled, plain_loaders.labelled),
    "pairs": (lambda file: triplets.load_tuples(str(file)).rows, lambda file: plain_loaders.tuples(file, PAIR)),
    "triplets": (
        lambda file: triplets.load_tuples(str(file), columns=TRIPLET).rows,
        lambda file: plain_loaders.tuples(file, TRIPLET),
    ),
    "sentences": (lambda file: [text for (text,) in rows.load_sentences(str(file)).rows], plain_loaders.sentences),
    "translations": (lambda file: dict(noise.load_translations(file)), plain_loaders.translations),
    "beir": (_beir, plain_loaders.beir),
}
"""Reader -> nearfar's function, and the plain one."""


def read_rows(file: str, columns: Sequence[str]) -> dict[str, Any]:
    """The rows of a table."""
    return compare(
        lambda: [values for _, values in read_columns(file, columns)],
        lambda: plain_readers.rows(Path(file), columns),
    )


def read(door: str, file: str) -> dict[str, Any]:
    """The rows of a loader."""
    reader, plain = DOORS[door]
    return compare(lambda: reader(Path(file)), lambda: plain(Path(file)))


def compare(reader: Callable[[], Any], plain: Callable[[], Any]) -> dict[str, Any]:
    """Call both; what nearfar accepts must be what the plain reader finds, and what the latter accepts is accepted."""
    error, found = None, None
    try:
        found = reader()
    except NearfarError as raised:
        error = str(raised)
    try:
        expected = plain()
    except RefusedError as refused:
        difference = "" if error is not None else f"accepted, but the plain reader refuses it: {refused}"
        return {"error": error, "difference": difference}
    except UnclearError as unclear:
        if error is not None or unclear.rows is None:
            return {"error": error, "difference": ""}
        expected = unclear.rows
    if error is not None:
        return {"error": error, "difference": f"refused, but the plain reader accepts it: {error}"}
    return {"error": None, "difference": first_difference(found, expected)}


def first_difference(found: Any, expected: Any) -> str:
    """Where two values differ, in a sentence, or ""."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(found) != len(expected):
            return f"{len(found)} rows, but the plain reader finds {len(expected)}"
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not same(one, other):
                return f"row {number} is {_short(one)}, but the plain reader finds {_short(other)}"
        return ""
    if isinstance(expected, dict) and isinstance(found, dict):
        if list(found) != list(expected):
            return f"the keys are {_short(list(found))}, but the plain reader finds {_short(list(expected))}"
        return next((f"{key}: {inner}" for key in found if (inner := first_difference(found[key], expected[key]))), "")
    return "" if same(found, expected) else f"{_short(found)}, but the plain reader finds {_short(expected)}"


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type; NaN equals itself."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def _short(value: Any) -> str:
    try:
        written = repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
    return written if len(written) <= 120 else f"{written[:120]}..."


def read_run_config(file: str) -> dict[str, Any]:
    """The settings of a TOML file of ``train`` or ``finetune``: those that it gives have its values."""
    from nearfar.config import build, load_toml

    def settings(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: _plain_setting(values[key]) for key in sorted(values)}

    def reader() -> dict[str, Any]:
        kind, values = load_toml(file)
        config = asdict(build(kind, values, source=file))
        return settings({key: config[key] for key in values})

    def plain() -> None:
        found = plain_readers.toml(Path(file))
        found.pop("method", None)
        raise UnclearError("which values are valid", settings(found))

    return compare(reader, plain)


def _plain_setting(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain_setting(one) for one in value]
    if isinstance(value, bool) or not isinstance(value, int):
        return None if value == "none" else value
    return float(value) if abs(value) < 2**53 else value  # an integer is accepted where a number is needed


def read_study(file: str) -> dict[str, Any]:
    """The cells of a study file."""
    from nearfar.studies.read import load_study

    def reader() -> str:
        return load_study(file, placeholders={"start": "tiny"}).title

    def plain() -> str:
        raise UnclearError("which values are valid", plain_readers.toml(Path(file)).get("title"))

    return compare(reader, plain)


def read_result(file: str) -> dict[str, Any]:
    """A result file: each value that nearfar read is the one in the file."""
    from nearfar.evaluation.results.files import load_result

    return compare(lambda: load_result(file).to_dict(), lambda: _known_keys(file))


def _known_keys(file: str) -> Any:
    content = plain_readers.json_document(Path(file))
    from nearfar.evaluation.results.files import load_result

    try:
        found = load_result(file).to_dict()
    except NearfarError:
        raise UnclearError("which values are valid") from None
    raise UnclearError("keys may be unknown", overlaid(found, content))


def overlaid(found: Any, content: Any) -> Any:
    """What nearfar read, with each value replaced by that of the plain reader under the same key."""
    if isinstance(found, dict) and isinstance(content, dict):
        return {key: overlaid(found[key], content[key]) if key in content else found[key] for key in found}
    if isinstance(found, list) and isinstance(content, list) and len(found) == len(content):
        return [overlaid(one, other) for one, other in zip(found, content, strict=True)]
    if isinstance(found, float) and type(content) is int:
        return float(content)
    return content


def prepare(folder: str) -> None:
    """Write the valid files that the cases change; see :mod:`tests.campaign.input_workspace`."""
    from tests.campaign.input_workspace import build

    build(Path(folder))


def open_model(folder: str, kind: str) -> dict[str, Any]:
    """A model folder: finite vectors, which are the same twice, and the weights that the file has."""
    from nearfar import Encoder
    from nearfar.encoder.classifier import Classifier

    try:
        opened = Classifier.from_pretrained(folder) if kind == "classifier" else Encoder.from_pretrained(folder)
        return {"error": None, "difference": _of_model(opened, Path(folder), kind)}
    except NearfarError as error:
        return {"error": str(error), "difference": ""}


def _of_model(opened: Any, folder: Path, kind: str) -> str:
    import numpy as np

    texts = ["a dog", "the cat sleeps in the house"]
    if kind != "classifier":
        vectors = opened.encode(texts)
        if vectors.shape != (2, opened.dim) or not np.isfinite(vectors).all():
            return f"vectors of the shape {vectors.shape} that are not finite, or not of width {opened.dim}"
        if not np.array_equal(vectors, opened.encode(texts)):
            return "other vectors for the same texts"
    found = {name: tensor.detach().numpy() for name, tensor in opened.state_dict().items()}
    compared = 0
    for name, expected in plain_readers.safetensors(folder / "model.safetensors").items():
        names = [one for one in found if one == name or one.endswith(f".{name}") or name.endswith(f".{one}")]
        if len(names) == 1 and expected.dtype == np.float32:
            compared += 1
            if not np.array_equal(found[names[0]], expected, equal_nan=True):
                return f"the weights {name} are not those of the file"
    return "" if compared > 10 else f"only {compared} weights of the file are found in the model"


def encoded(texts: str, vectors: str) -> str:
    """Whether a file of vectors has one for each text of a plain reader, and its vector; "" if so."""
    import numpy as np

    from nearfar import Encoder

    expected, found = plain_readers.lines(Path(texts)), np.load(vectors)
    if len(found) != len(expected):
        return f"{len(found)} vectors, but the plain reader finds {len(expected)} texts"
    chosen = sorted({*range(min(20, len(expected))), len(expected) - 1})
    wanted = Encoder.from_pretrained("tiny").encode([expected[number] for number in chosen])
    wrong = [number for number, row in zip(chosen, wanted, strict=True) if np.abs(found[number] - row).max() > 1e-5]
    return f"the vector of text {wrong[0]} is not that of the plain reader's text" if wrong else ""
