"""Imports between packages, import cycles between modules, and modules that must not load torch."""

import ast
import sys
from collections.abc import Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nearfar
from tests.source_trees import imports_of

SOURCE = Path(nearfar.__file__).parent
SHARED = {"types", "validation", "disk", "runtime", "quantization"}
RUNS = SHARED | {"config", "settings", "data", "encoder", "training", "methods", "evaluation", "neighbours"}
MAY_IMPORT = {
    "types": set(),
    "runtime": set(),
    "quantization": {"types"},
    "validation": {"types"},
    "disk": {"types"},
    "jobs": SHARED,
    "config": {"types", "validation"},
    "registry": {"types", "config", "methods"},
    "settings": {"types", "validation", "config", "registry"},
    "objectives": SHARED,
    "data": SHARED,
    "encoder": SHARED,
    "training": SHARED,
    "neighbours": SHARED,
    "evaluation": SHARED | {"data", "neighbours"},
    "baselines": SHARED | {"data", "encoder"},
    "methods": SHARED | {"config", "data", "encoder", "objectives"},
    "runs": RUNS,
    "commands": RUNS | {"registry", "objectives", "baselines", "runs", "jobs"},
    "studies": (RUNS - {"neighbours", "methods"}) | {"registry", "baselines", "runs", "jobs", "commands"},
    "sentence_transformers": SHARED | {"data", "encoder", "objectives", "methods"},
    "sklearn": SHARED | {"encoder"},
    "mteb": SHARED | {"encoder", "runs"},
}
"""Package or module -> what its files may import of the others, at the top or inside functions."""
PAPERS = sorted(
    file for file in (SOURCE / "methods").glob("*.py") if "\nMETHODS = {" in file.read_text(encoding="utf-8")
)
"""The modules with the settings of the methods, which the command line imports for --help."""


def packages_imported(file: Path) -> set[str]:
    """Packages of nearfar that a file imports anywhere, also inside functions and for type checking."""
    packages = set()
    for node in imports_of(file):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "nearfar" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {name.split(".")[1] for name in names if name.startswith("nearfar.")}
    return packages


@pytest.mark.long
def test_packages_import_only_lower_packages() -> None:
    for package, allowed in MAY_IMPORT.items():
        files = (
            [SOURCE / f"{package}.py"]
            if (SOURCE / f"{package}.py").exists()
            else sorted((SOURCE / package).rglob("*.py"))
        )
        assert files, package
        for file in files:
            name = file.relative_to(SOURCE).as_posix()
            found = packages_imported(file) - {package}
            assert found <= allowed, f"{name} imports {sorted(found - allowed)}"


@pytest.mark.parametrize("file", PAPERS, ids=lambda file: file.stem)
def test_modules_of_papers_import_only_settings_at_their_top(file: Path) -> None:
    top = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    modules = {node.module or "" for node in top}
    assert {name.split(".")[1] for name in modules if name.startswith("nearfar.")} <= {"config", "methods", "types"}
    assert {name for name in modules if not name.startswith("nearfar.")} <= sys.stdlib_module_names | {
        "collections.abc"
    }
    assert not any(isinstance(node, ast.Import) for node in ast.parse(file.read_text(encoding="utf-8")).body)


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
    for node in imports_of(file):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in modules else node.module for name in full}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules


@pytest.mark.long
def test_there_are_no_import_cycles() -> None:
    files = module_files()
    graph = {name: modules_imported(file, files.keys()) - {name} for name, file in files.items()}
    assert "nearfar.encoder.kernels" in graph["nearfar.encoder.dropout"]  # the graph is not empty
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
