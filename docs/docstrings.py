"""Griffe extension: docstrings as Markdown, and the fields of settings and results as one table."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)  # at the margin; an Example section is indented
FORMULA = re.compile(r"(?<=\n\n)[A-Za-z]\w*(?:\([\w, ]*\))? = .+(?:\n.+)*")
LITERAL = re.compile(r"^[ ]*::\n+|:(?=:$)", re.MULTILINE)
ROLE = re.compile(r":(?:py:)?(?:func|class|mod|meth|data|attr|exc):`~?([^`]+)`")

OWN_TABLE = ("Settings", "RunConfig", "TrainConfig", "FinetuneConfig")
RESULTS = "nearfar.evaluation.results."


class Docstrings(griffe.Extension):
    """Rewrite each docstring, so that mkdocstrings shows it as it was meant."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one function, class, module or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add the fields of settings and results to the class's docstring: a table instead of a heading for each."""
        for cls in _classes(pkg):
            listed = [cls, *takewhile(lambda base: base.name not in OWN_TABLE, cls.mro())]
            names = dict.fromkeys(name for owner in reversed(listed) for name in owner.members)
            fields = {name: text for name in names if (text := field_text(cls, name))}
            if cls.docstring is not None and fields:
                lines = [f"    {name}: {' '.join(text.split())}" for name, text in fields.items()]
                section = "Attributes:" if cls.path.startswith(RESULTS) else "Args:"
                cls.docstring.value = "\n".join([cls.docstring.value, "", section, *lines])


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for item in module.members.values():
        if item.is_alias:
            continue
        if item.is_module:
            yield from _classes(item)
        elif item.is_class and (item.name.endswith("Config") or item.path.startswith(RESULTS)):
            yield item


def field_text(cls: griffe.Class, name: str) -> str:
    """What the class, or else the nearest of its bases, says about a field.

    A result's field that explains itself has its name; what is no field has nothing.
    """
    fields = [owner.members[name] for owner in (cls, *cls.mro()) if _is_field(owner.members.get(name))]
    texts = [field.docstring.value for field in fields if field.docstring is not None]
    return next(
        iter(texts), f"{name.replace('_', ' ').capitalize()}." if fields and cls.path.startswith(RESULTS) else ""
    )


def _is_field(item: griffe.Object | griffe.Alias | None) -> bool:
    """Of an instance: neither a property nor a class variable."""
    return item is not None and item.is_attribute and "instance-attribute" in item.labels


def as_markdown(text: str) -> str:
    """Doctests and formulas (paragraphs that start as ``l_i = ``) in fences, roles as code, a colon for two.

    >>> print(as_markdown("See :func:`f`::"))
    See `f`:
    """
    text = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    text = FORMULA.sub(_formula, text)
    return ROLE.sub(r"`\1`", LITERAL.sub("", text))


def _formula(found: re.Match[str]) -> str:
    return f"```text\n{found[0]}\n```"
