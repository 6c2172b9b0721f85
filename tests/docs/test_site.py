"""The site builds strictly and offline, its formulas are MathML, and no page loads anything from the network."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

EXTRA = ("mkdocs", "material", "mkdocstrings")
pytestmark = pytest.mark.skipif(not all(map(find_spec, EXTRA)), reason="the docs extra is not installed: make docs")


PART = "*.py *.png papers measured guides gpu* reliability.md reference/* !reference/methods.md".replace(" ", "\n")
"""Left out by day, when links to these pages lead nowhere; ``test_pages.py`` checks links."""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"exclude_docs": PART, "nav": None, "strict": False}, id="part"),
        pytest.param({"strict": True}, id="whole", marks=pytest.mark.nightly),
    ],
)
def test_the_site(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds, loads nothing from the network, and has formulas in MathML and a table of settings."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    site = tmp_path / "site"
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), **changes))
    pages = list(site.rglob("*.html"))
    assert len(pages) > (35 if changes["strict"] else 10)
    loaded = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?(?:https?:)?//", re.IGNORECASE)
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"url\([\"']?(?:https?:)?//|@import", style) for style in styles)
    for name in (
        "liao",
        "simcse",
        "kim",
        "supcon-text",
        "regression",
        "nli-order",
        "distill",
        "teacher-scores",
        "gunel",
    ):
        page = (site / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"' in page
        assert "arithmatex" not in page
        assert "\\frac" not in page
    page = (site / "reference" / "methods.html").read_text(encoding="utf-8")
    assert re.search(r"<code>scl_weight</code>.*?<code>0\.3</code>", page, re.DOTALL)


@pytest.mark.long
def test_a_missing_docstring_is_found(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from hooks import undocumented  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    package = tmp_path / "nearfar"
    (package / "objectives").mkdir(parents=True)
    (package / "__init__.py").write_text(
        '"""Doc."""\n__all__ = ["C", "f"]\nclass C:\n    """C."""\n    x: int = 1\n    y: int = 2\n    """y."""\n'
        "    def m(self): pass\n    def _p(self): pass\ndef f(): pass\n",
        encoding="utf-8",
    )
    (package / "objectives" / "__init__.py").write_text('"""Doc."""\n__all__ = []\n', encoding="utf-8")
    assert sorted(undocumented(tmp_path)) == ["nearfar.C.m", "nearfar.C.x", "nearfar.f"]
