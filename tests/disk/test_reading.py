"""Files that nearfar wrote and somebody changed."""

from pathlib import Path

import pytest

from nearfar.disk.reading import read_json
from nearfar.types import NearfarError


@pytest.mark.parametrize("text", ['{"a": "x\\ud800y"}', '["\\uDC00"]', '{"\\udbff": 1}'])
def test_half_a_surrogate_pair_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(NearfarError, match=r"a\.json: .*half a surrogate pair"):
        read_json(tmp_path / "a.json")


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["\\ud83d\\ude00", "\\\\ud800"]')
    assert read_json(tmp_path / "a.json") == ["\U0001f600", "\\ud800"]
