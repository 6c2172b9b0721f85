"""Batches in words, line by line, as ``nearfar train --dry-run`` prints them. Encodes nothing."""

from collections.abc import Sequence


def describe_anchor(
    anchor: str, *, positives: Sequence[str], negatives: Sequence[str] = (), left_out: str | None = None
) -> list[str]:
    """One anchor, and below it its positives, its negatives, and the candidates that are neither.

    A candidate is a text, or a number of texts in words.
    """
    lines = [f"{'anchor':<10}  {anchor}"]
    lines += [f"  positive  {positive}" for positive in positives]
    lines += [f"  negative  {negative}" for negative in negatives]
    return lines if left_out is None else [*lines, f"  left out  {left_out}"]


def pluralize(number: int, one: str, many: str) -> str:
    """A number and its noun.

    >>> pluralize(1, "text", "texts"), pluralize(0, "text", "texts")
    ('1 text', '0 texts')
    """
    return f"{number} {one if number == 1 else many}"


def describe_directions(directions: str) -> list[str]:
    """A note on the comparisons other than those of an anchor with texts; none by default."""
    return {
        "query_to_doc": [],
        "doc_to_query": ["each positive is compared with the anchors of all rows, and no anchor with texts"],
        "both": ["each positive is compared with the anchors of all rows too"],
        "all": ["each positive is compared with all anchors and texts too, and each anchor with all anchors"],
    }[directions]


def describe_margin(margin: float | None, candidates: str = "texts of other rows") -> list[str]:
    """A note on the ``candidates`` that ``--false-negative-margin`` leaves out; none without it."""
    if margin is None:
        return []
    over = "" if margin == 0 else f" by over {margin:g}"
    return [f"at each step, {candidates} more similar to the anchor than its positive{over} are left out"]
