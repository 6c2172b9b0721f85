"""Which package may import which, so that the layers stay layers; and what must stay free of torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar

SOURCE = Path(nearfar.__file__).parent
SHARED = {"types", "disk", "runtime"}
MAY_IMPORT = {
    "types": set(),
    "runtime": set(),
    "disk": {"types"},
    "config": {"types", "registry"},
    "registry": {"types", "config"},
    "objectives": SHARED,
    "data": SHARED,
    "encoder": SHARED,
    "training": SHARED,
    "evaluation": SHARED | {"data"},
    "baselines": SHARED | {"data", "encoder"},
    "methods": SHARED | {"config", "registry", "data", "encoder", "objectives"},
    "runs": SHARED | {"config", "data", "encoder", "training", "methods", "evaluation"},
    "commands": SHARED
    | {"config", "registry", "data", "encoder", "objectives", "methods", "training", "evaluation", "baselines", "runs"},
}
"""Package or module -> what its files may import of the others, at the top or inside functions."""
EXCEPTIONS = {"config/__init__.py": {"methods"}}
"""The public names of nearfar.config are imported lazily from where they are defined."""
SETTINGS = sorted((SOURCE / "methods").glob("*/__init__.py"))
"""The settings of the methods, which the command line imports for every --help."""


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


def test_packages_import_only_those_below() -> None:
    for package, allowed in MAY_IMPORT.items():
        files = (
            [SOURCE / f"{package}.py"]
            if (SOURCE / f"{package}.py").exists()
            else sorted((SOURCE / package).rglob("*.py"))
        )
        assert files, package
        for file in files:
            name = file.relative_to(SOURCE).as_posix()
            found = packages_imported(file) - {package} - EXCEPTIONS.get(name, set())
            assert found <= allowed, f"{name} imports {sorted(found - allowed)}"


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.parent.name)
def test_settings_of_methods_import_only_settings(file: Path) -> None:
    assert packages_imported(file) <= {"config", "methods", "types"}


def test_configs_and_the_registry_load_no_torch() -> None:
    code = "import sys, nearfar.config as c; kinds = [*c.METHODS.values()]; print(len(kinds), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    number, torch = done.stdout.split()
    assert int(number) >= len(SETTINGS) > 4
    assert torch == "False"
