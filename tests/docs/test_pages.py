"""What the pages name exists: commands and flags, Python, links; and the first example runs."""

import ast
import contextlib
import io
import pkgutil
import re
import shlex
from functools import cache, partial
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import main
from nearfar.registry import METHODS
from tests.docs.pages import PAGES, ROOT, anchors, blocks, name, spans, text_of, without_blocks
from tests.tiny import save_tiny

# --- commands ---

FLAG = re.compile(r"--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"(?:^|(?<=\s))nearfar ((?:[a-z]|--)[^#|;\n]*)")
OF_OTHER_PROGRAMS = {"--nproc-per-node", "--node-rank", "--master-addr", "--master-port", "--rdzv-backend"}
OF_OTHER_PROGRAMS |= {"--raw", "--openvino", "--quick", "--from-scratch"}
"""Flags of torchrun, studies/ and benchmarks/."""


def _commands() -> list[tuple[str, str]]:
    found = []
    for block in blocks("sh", "bash", "shell", "console"):
        text = block.text.replace("\\\n", " ")
        found += [(block.page, one) for line in text.splitlines() for one in COMMAND.findall(line)]
    for page in PAGES:
        found += [(name(page), one) for span in spans(page) for one in COMMAND.findall(span)]
    return sorted(set(found))


@cache
def _help(*words: str) -> frozenset[str]:
    """The flags of a command, from its help."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        status = main([*words, "--help"])
        assert status == 0, f"nearfar {' '.join(words)} --help exits with {status}"
    return frozenset(FLAG.findall(printed.getvalue()))


@cache
def _flags(verb: str, method: str) -> frozenset[str]:
    if verb != "train":
        return _help(verb)
    methods = [method] if method in METHODS else METHODS
    return frozenset().union(*(_help("train", one) for one in methods))


@pytest.fixture(autouse=True)
def _wide_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def _unknown(command: str) -> set[str]:
    """What a command names that does not exist: its flags, or its method."""
    words = shlex.split(command.replace("[", "").replace("]", ""))
    if words[0].startswith("--"):
        return {words[0]} - {"--help", "--version"}
    verb, method = words[0].rstrip(","), next(iter(words[1:]), "")
    named = {flag for word in words[1:] for flag in FLAG.findall(word) if word.startswith("--")}
    is_method = verb == "train" and method.islower() and "." not in method and not method.startswith("-")
    return named - _flags(verb, method) - {"--help"} | ({method} - set(METHODS) if is_method else set())


@pytest.mark.long
def test_a_command_and_its_flags_exist() -> None:
    assert len(_commands()) > 60
    assert [(page, command, unknown) for page, command in _commands() if (unknown := _unknown(command))] == []


def test_a_flag_in_text_exists() -> None:
    verbs = ("finetune", "predict", "search", "evaluate", "compare", "geometry", "report", "encode", "back-translate")
    verbs += ("env", "export", "mine", "static", "dedup", "threshold", "study", "reproduce", "get-data", "soup", "push")
    verbs += ("tune",)
    known = _flags("train", "").union(*map(_help, verbs)) | OF_OTHER_PROGRAMS | {"--help", "--version"}
    named = {
        (name(page), flag) for page in PAGES for span in spans(page) if span[0] == "-" for flag in FLAG.findall(span)
    }
    assert len(named) > 60
    assert sorted((page, flag) for page, flag in named if flag not in known) == []


def test_a_settings_file_exists() -> None:
    named = {word for _, command in _commands() for word in command.split() if word.startswith("configs/")}
    assert len(named) > 5
    assert [file for file in sorted(named) if not (ROOT / file).is_file()] == []
    patterns = {span for page in PAGES for span in spans(page) if re.fullmatch(r"configs/\S+\.toml", span)}
    assert len(patterns) > 5
    assert [pattern for pattern in sorted(patterns) if not list(ROOT.glob(pattern))] == []


# --- Python ---

DOTTED = re.compile(r"^nearfar(?:\.\w+)+")


def _python_blocks() -> list[tuple[str, str]]:
    return [(block.page, block.text) for block in blocks("python", "py")]


def _python_in_shell() -> list[tuple[str, str]]:
    pattern = re.compile(r"^python - .*<<'END'\n(.*?)^END$|^python -c '([^']*)'", re.MULTILINE | re.DOTALL)
    return [(block.page, "".join(one)) for block in blocks("sh") for one in pattern.findall(block.text)]


def test_python_compiles_and_imports_what_exists() -> None:
    for page, text in (*_python_blocks(), *_python_in_shell()):
        for statement in ast.parse(text, page).body:
            if isinstance(statement, ast.Import | ast.ImportFrom) and "nearfar" in ast.unparse(statement):
                exec(compile(ast.unparse(statement), page, "exec"), {})


def test_a_dotted_name_exists() -> None:
    """``nearfar.data.noise.add_noise``: import modules as far as possible, then look up attributes."""
    for page in PAGES:
        for dotted in {one for span in spans(page) for one in DOTTED.findall(span)}:
            if not dotted.endswith((".py", ".toml", ".nearfar")):
                assert pkgutil.resolve_name(dotted) is not None, name(page)


@pytest.mark.long
def test_the_first_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged except for a tiny model and two steps."""
    model = save_tiny(tmp_path / "model")
    (text,) = [text for found, text in _python_blocks() if found == "docs/index.md"]
    text = text.replace("sentence-transformers/all-MiniLM-L6-v2", model.as_posix())
    monkeypatch.setattr(nearfar, "train", partial(nearfar.train, model=model.as_posix(), max_steps=2, limit=64))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(text, "index.md", "exec"), names)
    assert getattr(names["vectors"], "shape", None) == (2, 32)


def test_make_docs_fails_on_warnings() -> None:
    (build,) = [line for line in text_of(ROOT / "Makefile").splitlines() if "mkdocs build" in line]
    assert "--strict" in build
    assert "--quiet" not in build, "a warning that is not printed does not fail the build"


# --- links ---

SHOWN = re.compile(r"^::: (\S+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def resolves(page: Path, target: str) -> bool:
    if target.startswith(("https://", "mailto:")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.is_file() and file.is_relative_to(ROOT) and (not anchor or anchor in anchors(file))


def test_links_resolve() -> None:
    targets = [(page, target) for page in PAGES for target in LINK.findall(without_blocks(page))]
    assert len(targets) > 100
    assert [(name(page), target) for page, target in targets if not resolves(page, target)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page not in reached:
            reached.add(page)
            targets = [target.partition("#")[0] for target in LINK.findall(without_blocks(page))]
            queue += [(page.parent / target).resolve() for target in targets if target.endswith(".md")]
    assert [name(page) for page in PAGES if page not in reached] == []


def test_every_public_name_is_in_the_reference() -> None:
    shown = {name for page in (ROOT / "docs" / "reference").glob("*.md") for name in SHOWN.findall(text_of(page))}
    assert sorted(set(nearfar.__all__) - {name.removeprefix("nearfar.") for name in shown}) == []
