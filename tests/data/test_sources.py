"""Sources: one function for files, saved folders and the hub; normalisation of texts."""

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data.cells import text_field
from nearfar.data.columns import Location
from nearfar.data.sources import open_table, read_columns
from nearfar.types import NearfarError

HERE = Location("dev.tsv", 7)
SPLITS = datasets.DatasetDict(
    train=datasets.Dataset.from_dict({"text": ["a", "b"]}), test=datasets.Dataset.from_dict({"text": ["c"]})
)


def texts(*args, **kwargs):
    return [row[0] for _, row in read_columns(*args, **kwargs)]


def test_a_table_can_be_read_again_and_has_a_title(tmp_path):
    (tmp_path / "rows.tsv").write_text("text\nd\n")
    table = open_table(tmp_path / "rows.tsv")
    assert list(table.rows(["text"])) == list(table.rows(["text"])) != []
    assert table.title == str(tmp_path / "rows.tsv")
    SPLITS.save_to_disk(str(tmp_path / "saved"))
    where, _ = next(open_table(tmp_path / "saved", split="test").rows(["text"]))
    assert str(where) == f"{tmp_path / 'saved'}:test, row 1"


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows.tsv").write_text("text\nd\n")
    assert texts("~/rows.tsv", ["text"]) == ["d"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("A man.", "A man."),
        (" A  man.\t", "A man."),
        ("A\x00man\x07\x7f\x85.\n", "A man ."),
        ("a\u00a0\u3000b\u2028c", "a b c"),
        ("👩‍👩‍👧 ❤️ ok", "👩‍👩‍👧 ❤️ ok"),  # with joiners and variation selectors
        ('"quoted" \\n', '"quoted" \\n'),
    ],
)
def test_white_space_is_normalized(value, text):
    assert text_field(value, "premise", HERE) == text


@pytest.mark.long
@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_normalizing_keeps_all_other_characters(value):
    kept = [character for character in value if not character.isspace() and not 0 <= ord(character) < 32]
    kept = [character for character in kept if not 127 <= ord(character) < 160]
    if kept:
        text = text_field(value, "premise", HERE)
        assert text.replace(" ", "") == "".join(kept)
        assert "  " not in text
        assert text_field(text, "premise", HERE) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "dev.tsv, line 7: column 'premise' is empty"),
        (" \x00\t", "dev.tsv, line 7: column 'premise' is empty"),
        (None, "dev.tsv, line 7: column 'premise' is empty"),
        (3, "dev.tsv, line 7: column 'premise' holds 3 (int), not text"),
        (["a"], "holds ['a'] (list), not text"),
        ("half \ud83d", "dev.tsv, line 7: column 'premise' holds half a surrogate pair"),
    ],
)
def test_values_that_are_not_text_raise(value, message):
    with pytest.raises(NearfarError) as caught:
        text_field(value, "premise", HERE)
    assert message in str(caught.value)
    assert str(caught.value).encode()  # can be printed
