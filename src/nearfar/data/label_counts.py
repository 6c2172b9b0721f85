"""Describe label counts in words, with warnings about labels that may be misspelt and so form a class of their own."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

_MAX_LABELS = 20
_MAX_WARNINGS = 5


def label_summary(counts: Mapping[str, int]) -> list[str]:
    """Return the labels with their counts, and a sentence for each label that is rare or differs only in capitals.

    A label is rare if it has at most a tenth of the rows of an average label. The sentence suggests the most similar
    frequent label, if there is one.

    >>> label_summary({"cold": 210, "warm": 189, "wram": 1})
    ['labels: cold (210), warm (189), wram (1)', "label 'wram' has 1 row of 400: a misspelling of 'warm'?"]
    """
    total = sum(counts.values())
    listed = ", ".join(f"{name} ({count:,})" for name, count in list(counts.items())[:_MAX_LABELS])
    more = f" and {len(counts) - _MAX_LABELS:,} more labels" if len(counts) > _MAX_LABELS else ""
    rare = [name for name, count in counts.items() if 10 * count * len(counts) <= total]
    frequent = [name for name in counts if name not in set(rare)]
    facts = [f"labels: {listed}{more}", *_capitals_only(counts)]
    for name in rare[:_MAX_WARNINGS]:
        rows = "1 row" if counts[name] == 1 else f"{counts[name]:,} rows"
        near = _nearest(name, frequent)
        facts.append(f"label {name!r} has {rows} of {total:,}" + (f": a misspelling of {near!r}?" if near else ""))
    if len(rare) > _MAX_WARNINGS:
        facts.append(f"{len(rare) - _MAX_WARNINGS:,} more labels are as rare")
    return facts


def _capitals_only(counts: Mapping[str, int]) -> list[str]:
    families: dict[str, list[str]] = {}
    for name in counts:
        families.setdefault(name.casefold(), []).append(name)
    alike = [names for names in families.values() if len(names) > 1]
    return [f"labels {' and '.join(map(repr, names))} differ in capitals only" for names in alike[:_MAX_WARNINGS]]


def _nearest(name: str, frequent: list[str]) -> str | None:
    """Return the most similar frequent label, ignoring labels that differ only in digits (``level 1``, ``level 2``)."""
    words = re.sub(r"\d+", "", name)
    choices = {label.casefold(): label for label in frequent if re.sub(r"\d+", "", label) != words}
    near = get_close_matches(name.casefold(), list(choices), n=1, cutoff=0.7)
    return choices[near[0]] if near else None
