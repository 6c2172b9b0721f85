"""Imports between packages: each package imports only packages below it, and no modules form a circle."""

import ast
from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nearfar

SOURCE = Path(nearfar.__file__).parent
SHARED = {"types", "disk", "runtime"}
MAY_IMPORT = {
    "types": set(),
    "runtime": set(),
    "disk": {"types"},
    "config": {"types"},
    "objectives": SHARED,
    "data": SHARED,
    "encoder": SHARED,
    "training": SHARED,
    "evaluation": SHARED | {"data"},
    "baselines": SHARED | {"data", "encoder"},
    "methods": SHARED | {"data", "encoder", "objectives"},
    "runs": SHARED | {"config", "data", "encoder", "training", "methods", "evaluation"},
    "commands": SHARED
    | {"config", "data", "encoder", "objectives", "methods", "training", "evaluation", "baselines", "runs"},
}

KNOWN_CIRCLES = (("nearfar.commands.train.prepare", "nearfar.commands.train.command"),)
"""Imports that close a circle and are still to be removed."""


def packages_imported(file: Path) -> set[str]:
    """Packages of nearfar that a file imports anywhere, also inside functions and for type checking."""
    packages = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "nearfar" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {name.split(".")[1] for name in names if name.startswith("nearfar.")}
    return packages


def test_packages_import_only_packages_below() -> None:
    for package, allowed in MAY_IMPORT.items():
        files = (
            [SOURCE / f"{package}.py"]
            if (SOURCE / f"{package}.py").exists()
            else sorted((SOURCE / package).rglob("*.py"))
        )
        assert files, package
        for file in files:
            found = packages_imported(file) - {package}
            assert found <= allowed, f"{file.relative_to(SOURCE)} imports {sorted(found - allowed)}"


def module_files() -> dict[str, Path]:
    """Full name of each module of nearfar -> its file."""
    files = {}
    for file in SOURCE.rglob("*.py"):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


def modules_imported(file: Path, modules: Set[str]) -> set[str]:
    """Those of ``modules`` that a file imports anywhere, also inside functions and for type checking."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in modules else node.module for name in full}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules


def import_cycle(graph: Mapping[str, Set[str]]) -> list[str] | None:
    """Modules that import each other in a circle, the first one repeated at the end; None if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = module_files()
    graph = {name: modules_imported(file, files.keys()) - {name} for name, file in files.items()}
    for importer, imported in KNOWN_CIRCLES:
        graph[importer] = graph[importer] - {imported}
    assert "nearfar.encoder.kernels" in graph["nearfar.encoder.dropout"]  # so the graph is not empty
    cycle = import_cycle(graph)
    assert cycle is None, " imports ".join(reversed(cycle or []))


@pytest.mark.parametrize(
    "source",
    ["import package.b", "def f():\n    from package import b", "if TYPE_CHECKING:\n    from package.b import B"],
)
def test_a_circle_is_found_wherever_the_import_is(source: str, tmp_path: Path) -> None:
    sources = {
        "package": "",
        "package.a": source,
        "package.b": "from package.c import C",
        "package.c": "import package.a",
    }
    graph = {}
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        graph[name] = modules_imported(tmp_path / f"{name}.py", sources.keys())
    assert set(import_cycle(graph) or ()) == {"package.a", "package.b", "package.c"}
    assert import_cycle({**graph, "package.c": set()}) is None
