"""The syntax trees of source files, each parsed once for all tests of a process."""

import ast
from functools import cache
from pathlib import Path

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a statement that hold statements."""


@cache
def tree_of(file: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports_of(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All imports of a file, also those inside functions and for type checking; expressions are not walked."""
    imports: list[ast.Import | ast.ImportFrom] = []
    statements: list[ast.AST] = [tree_of(file)]
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(statement)
        for block in BLOCKS:
            inner = getattr(statement, block, ())
            statements.extend(inner if isinstance(inner, list) else ())
    return tuple(imports)
