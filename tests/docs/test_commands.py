"""Every command, flag and settings file that a page names exists."""

import re
import shlex
from functools import cache

import pytest

from nearfar.cli import main
from nearfar.registry import METHODS
from tests.docs.pages import PAGES, ROOT, blocks, name, spans

FLAG = re.compile(r"--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"(?:^|(?<=\s))nearfar ((?:[a-z]|--)[^#|;\n]*)")
OF_OTHER_PROGRAMS = {"--nproc-per-node", "--node-rank", "--master-addr", "--master-port", "--rdzv-backend"}
OF_OTHER_PROGRAMS |= {"--raw", "--openvino", "--quick"}
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
    import contextlib
    import io

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
    verbs += ("env", "export", "mine", "static", "dedup", "study", "reproduce", "get-data", "soup", "push")
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
