"""The source has no call that runs code from data: no pickle, no eval, no shell, no code of models."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import nearfar
from tests.source_trees import tree_of

ROOT = Path(nearfar.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "commands", "pty", "imp"}
"""Modules that read code or run it."""
NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
CALLS = {
    *("os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.spawnv", "os.startfile", "tempfile.mktemp"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "runpy.run_path", "runpy.run_module", "code.interact"),
    *("torch.load", "torch.hub.load", "torch.jit.load", "torch.package", "torch.ops.load_library"),
    *("pandas.read_pickle", "builtins.eval", "builtins.exec", "torch.classes.load_library"),
}
KEYWORDS = {
    "shell": False,
    "trust_remote_code": False,
    "allow_pickle": False,
    "weights_only": True,
    "use_safetensors": True,
}
"""Keyword -> the only value that it may have."""
NEEDS_KEYWORD = {"numpy.load": "allow_pickle"}


def unsafe_parts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and description of each unsafe import, name or call."""
    aliases: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                package = name.name.partition(".")[0]
                aliases[name.asname or package] = name.name if name.asname else package
                if package in MODULES:
                    yield node.lineno, f"import {name.name}"
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                aliases[name.asname or name.name] = f"{node.module}.{name.name}"
            if node.module.partition(".")[0] in MODULES:
                yield node.lineno, f"from {node.module} import"
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = full_name(node.func, aliases)
        if name in NAMES or name in CALLS or any(name.startswith(f"{module}.") for module in MODULES):
            yield node.lineno, name
        for keyword in node.keywords:
            if keyword.arg in KEYWORDS and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is KEYWORDS[keyword.arg]
            ):
                yield node.lineno, f"{name}({keyword.arg}={ast.unparse(keyword.value)})"
        wanted = NEEDS_KEYWORD.get(name)
        if wanted and wanted not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno, f"{name} without {wanted}"
    for node in nodes:
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            known = isinstance(key, ast.Constant) and key.value in KEYWORDS and isinstance(value, ast.Constant)
            if known and value.value is not KEYWORDS[key.value]:
                yield node.lineno, f"{key.value!r}: {value.value}"


def full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """The dotted name of a function, with imported names resolved; empty for other expressions."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = full_name(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


@pytest.mark.long
def test_no_module_has_an_unsafe_call() -> None:
    files = {str(file.relative_to(ROOT)): list(ast.walk(tree_of(file))) for file in ROOT.rglob("*.py")}
    parts = {file: list(unsafe_parts(nodes)) for file, nodes in files.items()}
    assert {file: found for file, found in parts.items() if found} == {}
    assert len(parts) > 100


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('x')",
        "from torch import load as opened\nopened('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x')",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=flag)",
        "eval('1')",
        "exec('1')",
        "f(trust_remote_code=True)",
        "f(trust_remote_code=config.trust)",
        "f(**{'trust_remote_code': True})",
        "import tempfile\ntempfile.mktemp()",
        "f(weights_only=False)",
    ],
)
def test_the_scan_finds(line: str) -> None:
    assert list(unsafe_parts(list(ast.walk(ast.parse(line)))))


@pytest.mark.parametrize(
    "line", ["model.eval()", "import numpy as np\nnp.load('x', allow_pickle=False)", "re.compile('x')"]
)
def test_the_scan_permits(line: str) -> None:
    assert not list(unsafe_parts(list(ast.walk(ast.parse(line)))))


def test_no_pickled_or_executable_file_is_part_of_the_package() -> None:
    endings = {file.suffix for file in ROOT.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    assert not endings & {".pkl", ".pickle", ".pt", ".bin", ".joblib", ".so", ".pyd", ".dll", ".exe", ".sh", ".npy"}
