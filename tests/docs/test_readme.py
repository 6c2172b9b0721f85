"""The Python of the pages: it compiles, names what exists, and the first example runs."""

import ast
import pkgutil
import re
from functools import partial
from pathlib import Path

import pytest

import nearfar
from tests.docs.pages import PAGES, ROOT, blocks, name, spans, text_of
from tests.tiny import save_tiny

DOTTED = re.compile(r"^nearfar(?:\.\w+)+")


def _python_blocks() -> list[tuple[str, str]]:
    return [(block.page, block.text) for block in blocks("python", "py")]


def _python_in_shell() -> list[tuple[str, str]]:
    pattern = re.compile(r"^python - .*<<'END'\n(.*?)^END$|^python -c '([^']*)'", re.MULTILINE | re.DOTALL)
    return [(block.page, "".join(one)) for block in blocks("sh") for one in pattern.findall(block.text)]


def test_python_compiles_and_imports_what_exists() -> None:
    for page, text in (*_python_blocks(), *_python_in_shell()):
        for statement in ast.parse(text, page).body:
            if isinstance(statement, ast.Import | ast.ImportFrom) and "nearfar" in ast.unparse(statement):
                exec(compile(ast.unparse(statement), page, "exec"), {})


def test_a_dotted_name_exists() -> None:
    """``nearfar.data.noise.add_noise``: import modules as far as possible, then look up attributes."""
    for page in PAGES:
        for dotted in {one for span in spans(page) for one in DOTTED.findall(span)}:
            if not dotted.endswith((".py", ".toml", ".nearfar")):
                assert pkgutil.resolve_name(dotted) is not None, name(page)


@pytest.mark.long
@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/index.md", marks=pytest.mark.nightly)])
def test_the_first_example_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged except for a tiny model and two steps."""
    model = save_tiny(tmp_path / "model")
    (text,) = [text for found, text in _python_blocks() if found == page]
    text = text.replace("sentence-transformers/all-MiniLM-L6-v2", model.as_posix())
    monkeypatch.setattr(nearfar, "train", partial(nearfar.train, model=model.as_posix(), max_steps=2, limit=64))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(text, page, "exec"), names)
    assert getattr(names["vectors"], "shape", None) == (2, 32)


def test_make_docs_fails_on_warnings() -> None:
    (build,) = [line for line in text_of(ROOT / "Makefile").splitlines() if "mkdocs build" in line]
    assert "--strict" in build
    assert "--quiet" not in build, "a warning that is not printed does not fail the build"
