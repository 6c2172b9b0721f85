"""Uploads to a hub on this machine: files, card, errors of the hub and of the folder."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearfar import Encoder, NearfarError, evaluate, push
from nearfar.cli import main
from tests.commands.push.conftest import Hub
from tests.tiny import write_pairs


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def paths(folder: Path) -> Iterable[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


@pytest.mark.long
def test_the_uploaded_files_are_the_model(run: Path, hub: Hub, tmp_path: Path) -> None:
    done = push(run, "me/mine", private=True)
    assert hub.repositories["me/mine"]["private"]
    assert sorted(hub.files) == paths(run / "model") == list(done.files)
    assert {path: len(content) for path, content in hub.files.items()} == done.files
    assert len(hub.commits) == 1
    assert done.url == "https://hub/me/mine/commit/0"
    uploaded = Encoder.from_pretrained(str(written(tmp_path / "downloaded", hub.files)))
    texts = ["a dog runs", "the cat"]
    assert (uploaded.encode(texts) == Encoder.from_pretrained(str(run)).encode(texts)).all()
    assert hub.files["README.md"].decode() == done.card


def test_an_existing_repository_gets_another_commit(run: Path, hub: Hub) -> None:
    push(run / "model", "me/mine", message="First")
    push(run / "model", "me/mine", message="Second", pull_request=True)
    assert [(commit["commit_message"], commit["create_pr"]) for commit in hub.commits] == [
        ("First", False),
        ("Second", True),
    ]


def test_a_dry_run_sends_nothing(run: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file: file.read_bytes() for file in (run / "model").rglob("*") if file.is_file()}
    assert main(["push", str(run), "me/mine", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert 'SentenceTransformer("me/mine")' in printed
    assert all(f"  {path}  " in printed for path in paths(run / "model"))
    assert printed.endswith("Dry run: nothing was uploaded.\n")
    assert not hub.repositories
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.long
def test_a_card_of_the_users_is_uploaded_as_it_is(run: Path, hub: Hub, tmp_path: Path) -> None:
    model = Path(shutil.copytree(run / "model", tmp_path / "model"))
    (model / "README.md").write_text("---\ntags: [mine]\n---\n# My own\n")
    assert not push(model, "me/mine").is_own_card
    assert hub.files["README.md"] == (model / "README.md").read_bytes()
    with pytest.raises(NearfarError, match="is not nearfar's, so --results and --examples cannot be added"):
        push(model, "me/mine", results=str(result_of(run, tmp_path)))


def result_of(run: Path, folder: Path) -> Path:
    scored = str(write_pairs(folder / "scored.tsv", 40))
    evaluate(str(run), tasks=[scored], resamples=20, output=str(folder / "result.json"))
    return folder / "result.json"


def test_results_are_in_the_card(run: Path, hub: Hub, tmp_path: Path) -> None:
    card = push(run, "me/mine", results=str(result_of(run, tmp_path))).card
    assert "### Spearman x 100 [95% interval]" in card
    assert "| scored.tsv | 40 |" in card
    assert str(tmp_path) not in card


def test_hidden_files_stay_here(run: Path, hub: Hub, tmp_path: Path) -> None:
    model = Path(shutil.copytree(run / "model", tmp_path / "model"))
    written(model, {".cache/token": b"secret", ".env": b"secret", "1_Pooling/.hidden": b"secret"})
    push(model, "me/mine")
    assert sorted(hub.files) == paths(run / "model")


def test_a_link_to_another_folder_is_refused(run: Path, hub: Hub, tmp_path: Path) -> None:
    model = Path(shutil.copytree(run / "model", tmp_path / "model"))
    (tmp_path / "private.txt").write_text("secret")
    (model / "notes.txt").symlink_to(tmp_path / "private.txt")
    with pytest.raises(NearfarError, match=r"notes.txt: is a link to .*private.txt, outside the model folder"):
        push(model, "me/mine")
    assert not hub.repositories


class RefusedError(Exception):
    """As huggingface_hub's error of an answer, whose class of responses depends on the version."""

    def __init__(self, status: int) -> None:
        self.response, self.server_message = SimpleNamespace(status_code=status), "You may not"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (403, r": 403, You may not\. Nothing was uploaded\. Log in by hf auth login"),
        (500, r": 500, You may not\. Nothing was uploaded\.$"),
        (ConnectionError("no route"), ": no route. Nothing was uploaded"),
        (ValueError("bad metadata\nthe second line"), r": bad metadata\. Nothing was uploaded\.$"),
    ],
)
def test_what_goes_wrong_is_one_sentence(run: Path, hub: Hub, error: int | Exception, message: str) -> None:
    hub.error = RefusedError(error) if isinstance(error, int) else error
    with pytest.raises(NearfarError, match="me/mine: https://hub cannot be reached or refused the upload" + message):
        push(run, "me/mine")


def test_names_and_folders(run: Path, tmp_path: Path) -> None:
    for model, name, message in (
        (run, "mine", "mine: give owner/name, such as me/my-encoder"),
        (tmp_path / "gone", "me/mine", "gone: is no model folder"),
        (tmp_path, "me/mine", re.escape(f"{tmp_path}: is no model folder")),
    ):
        with pytest.raises(NearfarError, match=message):
            push(model, name, dry_run=True)
