"""MkDocs hooks: formulas as MathML, CONTRIBUTING.md and CHANGELOG.md as pages, and a check of public docstrings."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parent.parent
MATH = re.compile(r'<(?P<tag>span|div) class="arithmatex">(?P<body>.*?)</(?P=tag)>', re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
PAGES_OUTSIDE_DOCS = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_pre_build(**_: Any) -> None:
    """Fail if a public name, or a public method or field of one, has no docstring."""
    missing = sorted(undocumented(ROOT / "src"))
    if missing:
        raise PluginError(f"No docstring: {', '.join(missing)}")


def on_files(files: Files, config: "MkDocsConfig") -> Files:
    """Add the pages that are not in docs/."""
    for name in PAGES_OUTSIDE_DOCS:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name.lower(), content=LINK.sub(_link, text)))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Replace each formula by MathML, which browsers render without scripts."""
    return MATH.sub(_mathml, content)


def undocumented(source: Path) -> Iterator[str]:
    """Public names of nearfar and nearfar.objectives without a docstring, read from the source without importing it."""
    nearfar = griffe.load("nearfar", search_paths=[source])
    for module in (nearfar, nearfar["objectives"]):
        for name in module.exports or ():
            item = module[str(name)]
            yield from _undocumented(f"{module.path}.{name}", item.final_target if item.is_alias else item)


def _undocumented(path: str, item: griffe.Object | griffe.Alias) -> Iterator[str]:
    if not item.has_docstring and not _inherits_docstring(item):
        yield path
    if item.is_class:
        for name, member in item.members.items():
            if not name.startswith("_") and (member.is_function or _is_field(member)):
                yield from _undocumented(f"{path}.{name}", member)


def _inherits_docstring(item: griffe.Object | griffe.Alias) -> bool:
    """A field that changes a default of its base has the base's text."""
    if not item.is_attribute or not isinstance(item.parent, griffe.Class):
        return False
    return any((found := base.members.get(item.name)) and found.has_docstring for base in item.parent.mro())


def _is_field(member: griffe.Object | griffe.Alias) -> bool:
    """Declared in the class body; attributes that only ``__init__`` sets are not."""
    return member.is_attribute and (member.annotation is not None or "class-attribute" in member.labels)


def _link(found: re.Match[str]) -> str:
    """A link of a page in the root: into docs/ it stays one, to a file that is not on the site it becomes its name."""
    target = found["target"]
    if target.startswith(("#", "https://")):
        return found[0]
    if target.startswith("docs/") or target in PAGES_OUTSIDE_DOCS:
        return f"[{found['text']}]({target.removeprefix('docs/') if target.startswith('docs/') else target.lower()})"
    return found["text"]


def _mathml(found: re.Match[str]) -> str:
    body = html.unescape(found["body"]).strip()
    for opening, closing in ((r"\(", r"\)"), (r"\[", r"\]")):
        body = body.removeprefix(opening).removesuffix(closing)
    return convert(body.strip(), display="block" if found["tag"] == "div" else "inline")
