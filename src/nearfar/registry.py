"""The registry of methods: for each name its settings, its row reader and its builder.

A paper's module has the entries of its methods in ``METHODS``; it is imported when one of them is needed, because the
settings of all papers take longer to import than ``nearfar --help`` takes. Methods from outside come from
:func:`register_method`, or from the entry-point group ``nearfar.methods`` of an installed package, where the command
line finds them too.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nearfar.types import MethodEntry, NearfarError

if TYPE_CHECKING:
    from nearfar.config.training import TrainConfig

NAME = re.compile(r"[a-z0-9][a-z0-9+._-]*")
"""The pattern of method names."""
ENTRY_POINTS = "nearfar.methods"
"""The entry-point group; the name of an entry is the method's, its value a :class:`MethodEntry`."""
FINETUNE = "scl-finetune"
"""The method of ``nearfar finetune``."""
_BUILT_IN: dict[str, str] = {
    **dict.fromkeys(("sbert", "scl", "augment"), "liao"),
    **dict.fromkeys(("simcse-unsup", "simcse-sup"), "simcse"),
    **dict.fromkeys(("sg", "sg-opt1", "sg-opt2", "sg-opt", "bt", "bt+sg-opt"), "kim"),
    **{"supcon-text": "gunel", "regression": "regression", "distill": "distill", "nli-order": "nli_order"},
    **{"info-nce": "simcse", "documents": "simcse", "teacher-scores": "teacher_scores", FINETUNE: "gunel"},
}
"""Method -> the module of its paper in :mod:`nearfar.methods`, in the order of help."""
_registered: dict[str, MethodEntry] = {}
"""Methods of :func:`register_method`, then those of installed packages once they have been searched."""
_searched: list[str] = []
"""The entry-point groups that have been searched."""


def register_method(
    name: str,
    *,
    config: "type[TrainConfig]",
    read_rows: Callable[[Any], Any],
    build: Callable[[Any, Any, Any], Any],
    min_rows: int = 2,
) -> None:
    """Add a method: ``nearfar.train(name, ...)``, ``nearfar train name`` and ``method = "name"`` in TOML then find it.

    Args:
        name: the method's name: lower case letters, digits and the signs ``-``, ``+``, ``_`` and ``.``.
        config: the class of its settings, a frozen keyword-only dataclass derived from
            :class:`nearfar.TrainConfig`; each method has a class of its own. The docstring below a field is its help
            text.
        read_rows: ``read_rows(config)`` reads the rows; :mod:`nearfar.data.rows` and :mod:`nearfar.data.triplets` have
            functions for the usual ones.
        build: ``build(config, context, rows)`` returns a :class:`nearfar.methods.BuiltMethod`.
        min_rows: smallest number of rows and smallest batch size.

    Registering a name again with the same parts changes nothing. The command line runs in its own process and finds the
    methods that installed packages name as entry points::

        [project.entry-points."nearfar.methods"]
        toy = "toy_package:ENTRY"  # a nearfar.registry.MethodEntry

    Raises:
        NearfarError: the name is invalid or in use; ``config`` is not a class derived from ``TrainConfig``, or belongs
            to another method.
    """
    _register(name, MethodEntry(config=config, read_rows=read_rows, build=build, min_rows=min_rows))


def unregister_method(name: str) -> None:
    """Remove a method that :func:`register_method` added."""
    _registered.pop(name, None)


def _register(name: str, entry: MethodEntry) -> None:
    from nearfar.config.training import TrainConfig

    if not NAME.fullmatch(name) or name.endswith(".toml"):
        raise NearfarError(
            f"register_method: {name!r} is not a method name; use lower case letters, digits, '-', '+', '_' and '.'."
        )
    if _registered.get(name) == entry:
        return
    if name in _BUILT_IN or name in _registered:
        raise NearfarError(f"register_method: there is a method {name!r} already.")
    kind = entry.config
    if not (isinstance(kind, type) and issubclass(kind, TrainConfig) and kind is not TrainConfig):
        raise NearfarError(f"register_method: the config of {name!r} must be a class derived from TrainConfig.")
    if (other := _name_among(kind, [*_BUILT_IN, *_registered])) is not None:
        raise NearfarError(
            f"register_method: {kind.__name__} is the config of the method {other!r}; derive a class of its own."
        )
    _registered[name] = entry


def find_entry(name: str) -> MethodEntry | None:
    """The entry of a method, of either command, or None."""
    if name in _BUILT_IN:
        entries: Mapping[str, MethodEntry] = import_module(f"nearfar.methods.{_BUILT_IN[name]}").METHODS
        return entries[name]
    if name not in _registered:
        _search_entry_points()
    return _registered.get(name)


def is_of_this_process(name: str) -> bool:
    """Whether other processes do not know the method: register_method added it, and no installed package names it."""
    from importlib.metadata import entry_points

    return name in _registered and name not in {point.name for point in entry_points(group=ENTRY_POINTS)}


def all_methods() -> list[str]:
    """The names of all methods: those of ``nearfar train``, then that of ``nearfar finetune``."""
    return [*METHODS, FINETUNE]


def name_of(kind: type) -> str | None:
    """The method whose settings have the class ``kind``, or None."""
    return _name_among(kind, [*_registered, *all_methods()])


def _name_among(kind: type, names: Iterable[str]) -> str | None:
    for name in names:
        entry = find_entry(name)
        if entry is not None and entry.config is kind:
            return name
    return None


def _search_entry_points() -> None:
    """Register the methods of installed packages; one that cannot be loaded is a warning."""
    from importlib.metadata import entry_points

    if _searched:
        return
    _searched.append(ENTRY_POINTS)
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in _registered:
            continue
        try:
            entry = point.load()
            if not isinstance(entry, MethodEntry):
                raise NearfarError(f"is {type(entry).__name__}, not a nearfar.registry.MethodEntry")
            _register(point.name, entry)
        except Exception as error:
            import warnings

            warnings.warn(f"the method {point.name!r} ({point.value}) cannot be loaded: {error}", stacklevel=2)


class _Methods(Mapping[str, "type[TrainConfig]"]):
    """The methods of ``nearfar train``. Names import nothing; a class is imported when it is looked up."""

    def __getitem__(self, name: str) -> "type[TrainConfig]":
        entry = find_entry(name)
        if entry is None or name == FINETUNE:
            raise KeyError(name)
        config: type[TrainConfig] = entry.config
        return config

    def __iter__(self) -> Iterator[str]:
        _search_entry_points()
        return iter([name for name in (*_BUILT_IN, *_registered) if name != FINETUNE])

    def __len__(self) -> int:
        return sum(1 for _ in self)


METHODS = _Methods()
"""Method of ``nearfar train`` -> the class of its settings."""
