"""Batches in words, line by line, as ``nearfar train --dry-run`` prints them. Encodes nothing."""

from collections.abc import Sequence

MAX_LINES = 9
"""Maximum number of lines of an anchor in a shortened description, with its own line."""


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


def truncate_description(lines: Sequence[str], anchors: int | None) -> list[str]:
    """The lines of the first ``anchors`` (or pairs, labels, sentences), each cut at :data:`MAX_LINES`, and all notes.

    >>> truncate_description(["text  a", "  near b", "text  c", "text  d", "each is an anchor too"], 1)
    ['text  a', '  near b', '... and 2 more', 'each is an anchor too']
    """
    if anchors is None or not lines:
        return list(lines)
    starts = [place for place, line in enumerate(lines) if not line.startswith(" ")]
    groups = [list(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    first = lines[0].split()[0]
    shown = [group for group in groups if group[0].split()[0] == first]
    notes = [line for group in groups if group[0].split()[0] != first for line in group]
    kept: list[str] = []
    for group in shown[:anchors]:
        more = len(group) - MAX_LINES
        kept += [*group[:MAX_LINES], f"  ... and {more} more"] if more > 1 else group
    return [*kept, *([f"... and {len(shown) - anchors} more"] if len(shown) > anchors else []), *notes]


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


def describe_margin(false_negative_margin: float | None) -> list[str]:
    """A note on the candidates that ``--false-negative-margin`` leaves out; none without it."""
    if false_negative_margin is None:
        return []
    margin = "" if false_negative_margin == 0 else f" by over {false_negative_margin:g}"
    return [f"at each step, texts of other rows more similar to the anchor than its positive{margin} are left out"]
