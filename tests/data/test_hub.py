"""Hub data sets and saved folders: splits, class names, and errors of an unreachable hub."""

import os
import subprocess
import sys

import datasets
import pytest

from nearfar.data.sources import load_folder, load_hub, read_dataset
from nearfar.types import NearfarError

FEATURES = datasets.Features(
    {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["entailment", "contradiction"])}
)
TRAIN = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, -1, 0]}, features=FEATURES)
TEST = datasets.Dataset.from_dict({"text": ["d"], "label": [0]}, features=FEATURES)
SPLITS = datasets.DatasetDict(train=TRAIN, test=TEST)


@pytest.fixture
def hub(fake_hub):
    """A hub; the list records the arguments of each call of ``load_dataset``."""
    return fake_hub(lambda name, config, split: SPLITS if split is None else SPLITS[split])


def test_a_folder_of_the_same_name_is_not_read_instead(hub, tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NearfarError, match="the folder owner/name in the working directory hides it"):
        load_hub("owner/name", split="train")
    assert hub == []


@pytest.mark.long
def test_offline_opens_no_connection_in_a_real_process(tmp_path):
    script = (
        "import datasets, socket, sys\n"
        "from nearfar.data.sources import load_hub; from nearfar.types import NearfarError\n"
        "sys.addaudithook(lambda event, _: event in ('socket.connect', 'socket.getaddrinfo') and sys.exit(event))\n"
        "try: load_hub('stanfordnlp/snli', split='train')\n"
        "except NearfarError as error: print(error)\n"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    completed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("hub:stanfordnlp/snli: ConnectionError: Couldn't reach 'stanfordnlp/snli'")


def test_rows_have_class_names_with_any_dataset_format():
    rows = list(read_dataset(TRAIN.with_format("numpy"), ["label", "text"], title="here"))
    assert [row for _, row in rows] == [("contradiction", "a"), (-1, "b"), ("entailment", "c")]
    assert [str(where) for where, _ in rows] == ["here, row 1", "here, row 2", "here, row 3"]


def test_saved_folders(tmp_path):
    TRAIN.save_to_disk(str(tmp_path / "one"))
    SPLITS.save_to_disk(str(tmp_path / "many"))
    assert load_folder(tmp_path / "one").to_list() == TRAIN.to_list()
    assert load_folder(tmp_path / "many", split="test").to_list() == TEST.to_list()
    with pytest.raises(NearfarError, match="is a single data set without splits; remove 'test'"):
        load_folder(tmp_path / "one", split="test")
    with pytest.raises(NearfarError, match=r"many has several splits. Name one: .*many:train, .*many:test"):
        load_folder(tmp_path / "many")
    with pytest.raises(NearfarError, match=r"has no split 'dev'. Name one: "):
        load_folder(tmp_path / "many", split="dev")
