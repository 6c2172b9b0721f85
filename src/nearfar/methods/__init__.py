"""Methods: one module for each paper, with its settings, rows, batches and loss, found by :mod:`nearfar.registry`.

A paper's module imports no torch at its top: its settings are read by ``--help``. What all methods share:
:mod:`nearfar.methods.base` (what a method is, and what its builder gets), :mod:`nearfar.methods.settings` (settings of
several papers) and :mod:`nearfar.methods.mixture` (several methods at once).
"""

from nearfar.methods.base import BuildContext, BuiltMethod, EmbedFn
from nearfar.types import Batches, Item, Loss, Method, MethodEntry

__all__ = ["Batches", "BuildContext", "BuiltMethod", "EmbedFn", "Item", "Loss", "Method", "MethodEntry"]
