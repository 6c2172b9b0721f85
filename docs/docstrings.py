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
            fields: dict[str, str] = {}
            for owner in (*reversed(_bases(cls)), cls):
                fields |= {name: item.docstring.value for name, item in owner.members.items() if _is_field(item)}
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


def _bases(cls: griffe.Class) -> list[griffe.Class]:
    """The bases whose fields are listed with those of the class: all below the ones that have a table of their own."""
    return list(takewhile(lambda base: base.name not in OWN_TABLE, cls.mro()))


def _is_field(item: griffe.Object | griffe.Alias) -> bool:
    return item.is_attribute and item.docstring is not None and "property" not in item.labels


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
