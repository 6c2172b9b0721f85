"""The tables of the guide on own data are those of the committed result files."""

import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.docs.pages import ROOT, study_script, text_of

GUIDE = ROOT / "docs" / "guides" / "own-data.md"


@pytest.fixture
def study() -> Iterator[ModuleType]:
    with study_script("own_data") as module:
        yield module


def test_its_tables_are_up_to_date(study: ModuleType) -> None:
    assert study.fill(text_of(GUIDE)) == text_of(GUIDE), "run: python studies/own_data.py report"


def test_its_commands_were_measured(study: ModuleType) -> None:
    commands = [one["command"] for one in study.load(study.file_of("captions"))["commands"]]
    assert len(commands) == 4
    for command in commands:
        assert command.replace(" --texts-limit 1000", "").replace("'", '"') in text_of(GUIDE)


def test_a_changed_figure_is_noticed(study: ModuleType) -> None:
    text = text_of(GUIDE)
    changed, count = re.subn(r"(\| TREC.*?\| \d+\.\d+ \| )\d", r"\g<1>0", text)
    assert count == 1
    assert changed != text
    assert study.fill(changed) == text
