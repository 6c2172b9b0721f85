"""The syntax trees of source files, each parsed and walked once for all tests of a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def nodes_of(file: Path) -> tuple[ast.AST, ...]:
    """All nodes of the tree of a file; the first is the module."""
    return tuple(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


@cache
def imports_of(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All imports of a file, also those inside functions and for type checking."""
    return tuple(node for node in nodes_of(file) if isinstance(node, ast.Import | ast.ImportFrom))
