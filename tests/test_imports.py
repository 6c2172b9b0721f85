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
    "runs": SHARED | {"config", "encoder", "training", "methods", "evaluation"},
    "commands": SHARED
    | {"config", "data", "encoder", "objectives", "methods", "training", "evaluation", "baselines", "runs"},
}


def rooms_imported(file: Path) -> set[str]:
    """Rooms of nearfar that a file imports anywhere, also inside functions and for type checking."""
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "nearfar" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("nearfar.")}
    return rooms


def test_rooms_know_only_the_rooms_below() -> None:
    for room, allowed in MAY_IMPORT.items():
        files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).rglob("*.py"))
        assert files, room
        for file in files:
            found = rooms_imported(file) - {room}
            assert found <= allowed, f"{file.relative_to(SOURCE)} imports {sorted(found - allowed)}"
