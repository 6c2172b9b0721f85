"""Who may import whom, so that the house stays small: each room knows only the rooms below it."""

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
    """Rooms of nearfar that a file imports anywhere, also inside functions and for type checking."""
    packages = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "nearfar" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {name.split(".")[1] for name in names if name.startswith("nearfar.")}
    return packages


def test_rooms_know_only_the_rooms_below() -> None:
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
