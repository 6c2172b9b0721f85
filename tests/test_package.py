"""The wheel and the source distribution, built without network: their files, and the packages that they need."""

import ast
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.source_trees import imports_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INPUTS = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md")
BUILD = """if True:
    import sys
    from setuptools import build_meta
    folder = sys.argv[1]
    build_meta.build_sdist(folder)
    build_meta.build_wheel(folder)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, built from a copy so that the checkout gets no build folder."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.partition(".")[0]) < 77:
        pytest.skip("pyproject.toml needs setuptools 77")
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in (*INPUTS, "constraints.txt"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def files(dist: Path) -> set[str]:
    """The names of the wheel's files."""
    with zipfile.ZipFile(*dist.glob("*.whl")) as wheel:
        return set(wheel.namelist())


@pytest.mark.long
def test_the_wheel_has_the_whole_package_and_nothing_else(files: set[str]) -> None:
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "nearfar").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"nearfar/py.typed", "nearfar/encoder/kernels/kernels.cpp"} <= expected
    assert {name for name in files if ".dist-info/" not in name} == expected


@pytest.mark.long
def test_the_source_distribution_builds_the_package_and_has_no_tests(dist: Path, files: set[str]) -> None:
    with tarfile.open(*dist.glob("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*INPUTS, "constraints.txt"} <= names
    assert {f"src/{name}" for name in files if ".dist-info/" not in name} <= names
    assert not [name for name in names if name.startswith("tests")]


@pytest.mark.long
def test_every_imported_package_is_declared() -> None:
    distributions = {"sklearn": "scikit-learn", "markdown_it": "markdown-it-py"}
    extras = ("offline", "lora", "explorer", "search", "scale", "export", "track", "mteb")
    listed = [*PROJECT["dependencies"], *(line for name in extras for line in PROJECT["optional-dependencies"][name])]
    declared = {line.partition(">")[0] for line in listed}
    for path in (ROOT / "src").rglob("*.py"):
        for node in imports_of(path):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                top = module.partition(".")[0]
                if top != "nearfar" and top not in sys.stdlib_module_names:
                    name = distributions.get(top, top.replace("_", "-"))
                    assert name in declared, f"{path.relative_to(ROOT)} imports {module}"


def test_every_dependency_has_a_lower_bound() -> None:
    assert [line for line in PROJECT["dependencies"] if ">=" not in line] == []
