"""Methods: one package for each paper, with its settings, rows, batches and loss, found by :mod:`nearfar.registry`.

``methods/PAPER/__init__.py`` holds the settings (one config class for each method; no torch), ``build.py`` reads the
rows and builds the method, the other modules hold the losses. What all methods share: :mod:`nearfar.methods.base` (what
a method is), :mod:`nearfar.methods.build` (from settings and rows to a method), :mod:`nearfar.methods.settings`
(settings of several papers), :mod:`nearfar.methods.describe` (batches in words) and :mod:`nearfar.methods.mixture`
(several methods at once).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.methods.base import Batches, EmbedFn, Item, Loss, Method
    from nearfar.methods.build import BuildContext, BuiltMethod

_MODULES = {
    **dict.fromkeys(("Batches", "EmbedFn", "Item", "Loss", "Method"), "base"),
    **dict.fromkeys(("BuildContext", "BuiltMethod"), "build"),
}
__all__ = ["Batches", "BuildContext", "BuiltMethod", "EmbedFn", "Item", "Loss", "Method"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'nearfar.methods' has no attribute {name!r}")
    found = getattr(import_module(f"nearfar.methods.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
