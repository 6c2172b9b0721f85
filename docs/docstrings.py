"""Griffe extension: docstrings as Markdown, and the fields of a settings class as its parameters."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).+)*", re.MULTILINE)  # at the margin; an Example section is indented
FORMULA = re.compile(r"(?<=\n\n)[A-Za-z]\w*(?:\([\w, ]*\))? = .+(?:\n.+)*")
ROLE = re.compile(r":(?:py:)?(?:func|class|mod|meth|data|attr|exc):`~?([^`]+)`")

OWN_TABLE = ("Settings", "RunConfig", "TrainConfig", "FinetuneConfig")


class Docstrings(griffe.Extension):
    """Rewrite each docstring, so that mkdocstrings shows it as it was meant."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one function, class, module or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add the fields of each settings class to its docstring: a table instead of a heading for each field."""
        for cls in _settings_classes(pkg):
            listed = [cls, *takewhile(lambda base: base.name not in OWN_TABLE, cls.mro())]
            names = dict.fromkeys(name for owner in reversed(listed) for name in owner.members)
            fields = {name: text for name in names if (text := field_text(cls, name))}
            if cls.docstring is not None and fields:
                lines = [f"    {name}: {' '.join(text.split())}" for name, text in fields.items()]
                cls.docstring.value = "\n".join([cls.docstring.value, "", "Args:", *lines])


def _settings_classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for item in module.members.values():
        if item.is_alias:
            continue
        if item.is_module:
            yield from _settings_classes(item)
        elif item.is_class and item.name.endswith("Config"):
            yield item


def field_text(cls: griffe.Class, name: str) -> str:
    """What the class, or else the nearest of its bases, says about a field; empty if none says anything."""
    for owner in (cls, *cls.mro()):
        item = owner.members.get(name)
        if item is not None and item.is_attribute and "property" not in item.labels and item.docstring is not None:
            return item.docstring.value
    return ""


def as_markdown(text: str) -> str:
    """Doctests and formulas (paragraphs that start as ``l_i = ``) in fences, roles as code.

    >>> print(as_markdown("See :func:`f`."))
    See `f`.
    """
    text = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    text = FORMULA.sub(_formula, text)
    return ROLE.sub(r"`\1`", text)


def _formula(found: re.Match[str]) -> str:
    return f"```text\n{found[0]}\n```"
