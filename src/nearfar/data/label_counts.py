"""Labels and how often they come, in words: a misspelt label is a class of its own, to be seen before training."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

_SHOWN = 20
_POINTED_AT = 5


def label_summary(counts: Mapping[str, int]) -> list[str]:
    """Return the labels with their counts, and a sentence for each that is rare or differs in capitals alone.

    A label is rare that has at most a tenth of the rows that an average label has. Its sentence offers the nearest of
    the frequent labels, where one is near.

    >>> label_summary({"cold": 210, "warm": 189, "wram": 1})
    ['labels: cold 210, warm 189, wram 1', "label 'wram' has 1 row of 400: a misspelling of 'warm'?"]
    """
    total = sum(counts.values())
    listed = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:_SHOWN])
    more = f" and {len(counts) - _SHOWN:,} more labels" if len(counts) > _SHOWN else ""
    rare = [name for name, count in counts.items() if 10 * count * len(counts) <= total]
    frequent = [name for name in counts if name not in set(rare)]
    facts = [f"labels: {listed}{more}", *_alike(counts)]
    for name in rare[:_POINTED_AT]:
        rows = "1 row" if counts[name] == 1 else f"{counts[name]:,} rows"
        near = _nearest(name, frequent)
        facts.append(f"label {name!r} has {rows} of {total:,}" + (f": a misspelling of {near!r}?" if near else ""))
    if len(rare) > _POINTED_AT:
        facts.append(f"{len(rare) - _POINTED_AT:,} more labels are as rare")
    return facts


def _alike(counts: Mapping[str, int]) -> list[str]:
    families: dict[str, list[str]] = {}
    for name in counts:
        families.setdefault(name.casefold(), []).append(name)
    alike = [names for names in families.values() if len(names) > 1]
    return [f"labels {' and '.join(map(repr, names))} differ in capitals only" for names in alike[:_POINTED_AT]]


def _nearest(name: str, frequent: list[str]) -> str | None:
    """The nearest label, unless only numbers tell the two apart, as in ``level 1`` and ``level 2``."""
    words = re.sub(r"\d+", "", name)
    choices = {label.casefold(): label for label in frequent if re.sub(r"\d+", "", label) != words}
    near = get_close_matches(name.casefold(), list(choices), n=1, cutoff=0.7)
    return choices[near[0]] if near else None
