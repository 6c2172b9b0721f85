"""Named sets: found in the local folder, else on the hub, and never replaced by another set."""

from functools import partial

import datasets
import pytest

from nearfar.data.catalog import find
from nearfar.types import NearfarError
from tests.data.files import error_of

TABLE = datasets.Dataset.from_dict({"text": ["from the hub"]})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A local data folder with SNLI dev and test, two subsets of STS12, and SICK test."""
    for name in ("nli/SNLI/dev", "nli/SNLI/test", "sts/STS12/MSRpar", "sts/STS12/MSRvid", "sts/SICK/test"):
        path = tmp_path / "data" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text\n{name}\n")
    monkeypatch.setenv("NEARFAR_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


@pytest.fixture
def hub(fake_hub):
    """A hub with every data set; the list records name, config and split of each download."""
    return fake_hub(lambda name, config, split: TABLE)


def texts(spec):
    return [row[0] for found in find(spec) for _, row in found.rows(["text"])]


def names(spec):
    return [found.name for found in find(spec)]


error = partial(error_of, find)


def test_local_splits_have_precedence_and_keep_the_requested_order(folder, hub):
    assert texts("snli:test+dev") == ["nli/SNLI/test", "nli/SNLI/dev"]
    assert names("sts12:MSRvid") == ["MSRvid"]
    assert texts("sickr") == ["sts/SICK/test"]
    assert find("sickr")[0].scale == (1.0, 5.0)
    assert hub == []


def test_missing_splits_come_from_the_hub(folder, hub):
    assert texts("snli") == ["from the hub"]
    assert texts("snli:dev+train") == ["nli/SNLI/dev", "from the hub"]
    assert hub == [("stanfordnlp/snli", None, "train")] * 2


def test_splits_are_renamed_for_the_hub(folder, hub, monkeypatch):
    assert names("mnli:dev_matched+dev_mismatched") == ["dev_matched", "dev_mismatched"]
    assert [call[2] for call in hub] == ["validation_matched", "validation_mismatched"]
    monkeypatch.delenv("NEARFAR_DATA")
    assert find("stsb:dev")[0].title == "hub:mteb/stsbenchmark-sts:validation"


def test_an_incomplete_task_comes_completely_from_the_hub(folder, hub):
    assert names("sts12") == ["all"]
    assert names("sickr-full") == ["all"]
    assert hub == [("mteb/sts12-sts", None, "test"), ("mteb/sickr-sts", None, "test")]


def test_unknown_splits_raise(folder, hub):
    assert "has no such split; it has: train, dev, test" in error("snli:validation")
    assert "Available: sts12:MSRpar+MSRvid" in error("sts12:headlines")
    for spec in ("snli:", "snli:dev+", "snli:dev+dev"):
        assert "name each split once" in error(spec)
    assert hub == []


def test_paths(folder, hub):
    path = folder / "my.rows.csv"
    path.write_text("text\nmine\n")
    (folder / "odd:name.tsv").write_text("text\nodd\n")
    assert (names(str(path)), texts(str(path))) == (["my.rows"], ["mine"])
    assert texts(str(folder / "odd:name.tsv")) == ["odd"]
    assert "a file has no splits" in error(f"{path}:dev")
    assert "no such file" in error("data/my.row.csv")
    assert "Did you mean 'my.rows.csv'?" in error("data/my.row.csv")
    assert "the folder elsewhere/deep/er does not exist" in error("elsewhere/deep/er/rows.csv")
    assert "no such file" in error("rows.csv")
    assert hub == []


def test_a_named_set_has_precedence_over_a_file(folder, hub):
    (folder.parent / "snli").write_text("text\n")
    with pytest.warns(UserWarning, match=r"snli: the data set of this name is read, not what is here; .* \./snli"):
        assert texts("snli:dev") == ["nli/SNLI/dev"]
    with pytest.raises(NearfarError, match="unknown extension"):
        texts("./snli")


def test_hub_names(folder, hub):
    assert names("hub:owner/name") == ["name"]
    assert names("hub:owner/name:train+test") == ["train", "test"]
    assert names("hub:owner/name/config:train[:1000]") == ["train[:1000]"]
    assert hub == [
        ("owner/name", None, None),
        ("owner/name", None, "train"),
        ("owner/name", None, "test"),
        ("owner/name", "config", "train[:1000]"),
    ]


def test_sets_of_one_file_have_no_splits(folder, hub):
    for name in ("text/wiki.txt", "text/sentences.txt.gz", "senteval/MR.tsv", "senteval/CR.tsv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"text\n{name}\n")
    assert texts("mr") == ["senteval/MR.tsv"]
    assert [found.data for found in find("wiki") + find("sentences")] == [
        folder / "text" / "wiki.txt",
        folder / "text" / "sentences.txt.gz",
    ]
    assert error("mr:CR") == "mr has no split 'CR'. It has: all."
    message = error("mpqa")
    assert message.startswith(f"mpqa was not found:\n  Missing: {folder / 'senteval' / 'MPQA.tsv'}.\n")
    assert "Available" not in message
    assert hub == []
