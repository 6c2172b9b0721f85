"""Damage to the header of a .npy file, for each type of error that NumPy raises for it."""

from collections.abc import Callable

DAMAGED_HEADERS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "magic": lambda content: b"\0" * len(content),
    "cut off": lambda content: content[:20],
    "bracket": lambda content: content.replace(b"), }", b"), (", 1),
    "syntax": lambda content: content.replace(b"False", b"Fal e", 1),
    "shape": lambda content: content.replace(b"(", b"(99999999999999999999, ", 1)[: len(content)],
    "type": lambda content: content.replace(b"'<f4'", b"('<',", 1),
    "name": lambda content: content.replace(b"'shape'", b"'shade'", 1),
}
"""Name -> a function from the bytes of a file of float32 to damaged ones."""
