"""The registry of methods: for each name, where its settings, its row reader and its builder are.

A built-in method is one line in :data:`_BUILT_IN`; its parts are imported when they are needed. Methods from outside
come from :func:`register_method`, or from the entry-point group ``nearfar.methods`` of an installed package, where the
command line finds them too.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.config.training import RunConfig, TrainConfig

NAME = re.compile(r"[a-z0-9][a-z0-9+._-]*")
"""The pattern of method names."""
ENTRY_POINTS = "nearfar.methods"
"""The entry-point group; the name of an entry is the method's, its value a :class:`MethodEntry`."""


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """Where the parts of a method are. Each is the object itself, or its place as ``package.module:name``."""

    config: "type[RunConfig] | str"
    """The class of its settings, a subclass of :class:`nearfar.config.TrainConfig`."""
    read_rows: "Callable[[Any], Any] | str" = ""
    """``read_rows(config)`` -> :class:`nearfar.data.rows.TextData` or :class:`nearfar.data.nli.NliData`."""
    build: "Callable[[Any, Any, Any], Any] | str" = ""
    """``build(config, context, rows)`` -> :class:`nearfar.methods.BuiltMethod`; ``context`` is a
    :class:`nearfar.methods.BuildContext`."""
    min_rows: int = 2
    """Smallest number of rows, and the smallest batch size: 1 if rows are not contrasted with each other."""
    command: Literal["train", "finetune"] = "train"
    """The command that runs it. ``nearfar finetune`` has its own reader and builder."""

    def load_config(self) -> "type[RunConfig]":
        """The class of its settings."""
        found: type[RunConfig] = _load(self.config)
        return found

    def is_config(self, kind: type) -> bool:
        """Whether ``kind`` is the class of its settings; imports nothing."""
        if isinstance(self.config, str):
            return self.config == f"{kind.__module__}:{kind.__qualname__}"
        return self.config is kind

    def load_reader(self) -> Callable[[Any], Any]:
        """Its row reader."""
        return _load(self.read_rows)

    def load_builder(self) -> Callable[[Any, Any, Any], Any]:
        """Its builder."""
        return _load(self.build)


def _load(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(import_module(module), name)


def _entry(paper: str, config: str, reader: str, builder: str, *, min_rows: int = 2) -> MethodEntry:
    """A built-in method: settings in ``methods/PAPER/__init__.py``, the rest in ``methods/PAPER/build.py``."""
    package = f"nearfar.methods.{paper}"
    reader, builder = f"{package}.build:{reader}", f"{package}.build:{builder}"
    return MethodEntry(config=f"{package}:{config}", read_rows=reader, build=builder, min_rows=min_rows)


FINETUNE = "scl-finetune"
"""The method of ``nearfar finetune``."""
_BUILT_IN: dict[str, MethodEntry] = {
    "sbert": _entry("liao", "SbertConfig", "read_rows", "build_sbert", min_rows=1),
    "scl": _entry("liao", "SclConfig", "read_rows", "build_scl", min_rows=1),
    "augment": _entry("liao", "AugmentConfig", "read_rows", "build_augment", min_rows=1),
    "simcse-unsup": _entry("simcse", "SimcseUnsupConfig", "read_sentences", "build_unsupervised"),
    "simcse-sup": _entry("simcse", "SimcseSupConfig", "read_triplets", "build_supervised"),
    "sg": _entry("kim", "SgConfig", "read_sentences", "build_self_guided"),
    "sg-opt1": _entry("kim", "SgOpt1Config", "read_sentences", "build_self_guided"),
    "sg-opt2": _entry("kim", "SgOpt2Config", "read_sentences", "build_self_guided"),
    "sg-opt": _entry("kim", "SgOptConfig", "read_sentences", "build_self_guided"),
    "bt": _entry("kim", "BtConfig", "read_translations", "build_back_translation"),
    "bt+sg-opt": _entry("kim", "BtSgOptConfig", "read_translations", "build_self_guided"),
    "supcon-text": _entry("gunel", "SupconTextConfig", "read_rows", "build_supcon_text"),
    "regression": _entry("regression", "RegressionConfig", "read_rows", "build_regression", min_rows=1),
    "distill": _entry("distill", "DistillConfig", "read_rows", "build_distill"),
    "nli-order": _entry("nli_order", "NliOrderConfig", "read_rows", "build_nli_order", min_rows=1),
    "info-nce": _entry("simcse", "InfoNceConfig", "read_pairs", "build_info_nce"),
    FINETUNE: MethodEntry(config="nearfar.config.finetune:FinetuneConfig", command="finetune"),
}
CONFIG_CLASSES = {
    entry.config.partition(":")[2]: entry.config.partition(":")[0]
    for entry in _BUILT_IN.values()
    if isinstance(entry.config, str)
}
"""Name of a built-in config class -> its module; ``nearfar`` and ``nearfar.config`` export all of them."""
_registered: dict[str, MethodEntry] = {}
"""Methods of :func:`register_method`, then those of installed packages once they have been searched."""
_searched: list[str] = []
"""The entry-point groups that have been searched."""


def register_method(
    name: str,
    *,
    config: "type[TrainConfig]",
    read_rows: Callable[[Any], Any] | str,
    build: Callable[[Any, Any, Any], Any] | str,
    min_rows: int = 2,
) -> None:
    """Add a method: ``nearfar.train(name, ...)``, ``nearfar train name`` and ``method = "name"`` in TOML then find it.

    Args:
        name: the method's name: lower case letters, digits and the signs ``-``, ``+``, ``_`` and ``.``.
        config: the class of its settings, a frozen keyword-only dataclass derived from
            :class:`nearfar.config.TrainConfig`; each method has a class of its own. The docstring below a field is its
            help text.
        read_rows: ``read_rows(config)`` reads the rows (:mod:`nearfar.data.rows` has functions for the usual ones). A
            function, or its place as ``package.module:name``.
        build: ``build(config, context, rows)`` returns a :class:`nearfar.methods.BuiltMethod`. A function or its place.
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
    kind = entry.load_config()
    if not (isinstance(kind, type) and issubclass(kind, TrainConfig) and kind is not TrainConfig):
        raise NearfarError(f"register_method: the config of {name!r} must be a class derived from TrainConfig.")
    for other, known in {**_BUILT_IN, **_registered}.items():
        if known.is_config(kind):
            raise NearfarError(
                f"register_method: {kind.__name__} is the config of the method {other!r}; derive a class of its own."
            )
    _registered[name] = entry


def find_entry(name: str) -> MethodEntry | None:
    """The entry of a method, of either command, or None."""
    found = _BUILT_IN.get(name) or _registered.get(name)
    return found if found is not None else _all().get(name)


def all_methods() -> list[str]:
    """The names of all methods: those of ``nearfar train``, then those of ``nearfar finetune``."""
    return [*METHODS, *(name for name, entry in _all().items() if entry.command != "train")]


def name_of(kind: type) -> str | None:
    """The method whose settings have the class ``kind``, or None."""
    for entries in ({**_BUILT_IN, **_registered}, _all()):
        for name, entry in entries.items():
            if entry.is_config(kind):
                return name
    return None


def _all() -> dict[str, MethodEntry]:
    """All methods, after a search for those of installed packages."""
    if not _searched:
        _searched.append(ENTRY_POINTS)
        _search_entry_points()
    return {**_BUILT_IN, **_registered}


def _search_entry_points() -> None:
    """Register the methods of installed packages; one that cannot be loaded is a warning."""
    from importlib.metadata import entry_points

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
        if name not in self:
            raise KeyError(name)
        entry = find_entry(name)
        assert entry is not None
        found: type[TrainConfig] = entry.load_config()  # type: ignore[assignment]
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in _all().items() if entry.command == "train")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        entry = find_entry(name) if isinstance(name, str) else None
        return entry is not None and entry.command == "train"


METHODS = _Methods()
"""Method of ``nearfar train`` -> the class of its settings."""
