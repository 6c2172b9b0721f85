"""The import rules: each package imports only the packages below it."""

import ast
from pathlib import Path

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


def packages_imported(file: Path) -> set[str]:
    """Return the packages of nearfar that a file imports, also inside functions and for type checking."""
    packages = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "nearfar" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {name.split(".")[1] for name in names if name.startswith("nearfar.")}
    return packages


def test_packages_import_only_the_packages_below() -> None:
    for package, allowed in MAY_IMPORT.items():
        files = (
            [SOURCE / f"{package}.py"]
            if (SOURCE / f"{package}.py").exists()
            else sorted((SOURCE / package).rglob("*.py"))
        )
        assert files, package
        for file in files:
            imported = packages_imported(file) - {package}
            assert imported <= allowed, f"{file.relative_to(SOURCE)} imports {sorted(imported - allowed)}"
