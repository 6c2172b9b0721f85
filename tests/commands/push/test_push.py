"""Uploads to a hub on this machine: files, card, errors of the hub and of the folder."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from nearfar import Encoder, NearfarError, evaluate, push
from nearfar.cli import main
from tests.hub_server import LARGE, Hub
from tests.tiny import sentences

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=")  # of huggingface_hub, about its own calls


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
    assert "private" in str(hub.repositories["me/mine"])  # "private": true, or "visibility": "private", by version
    assert sorted(hub.files) == paths(run / "model") == list(done.files)
    assert max(done.files.values()) > LARGE  # one file goes by the storage
    assert {path: len(content) for path, content in hub.files.items()} == done.files
    assert len(hub.commits) == 1
    assert done.url == f"{hub.address}/me/mine/commit/0"
    uploaded = Encoder.from_pretrained(str(written(tmp_path / "downloaded", hub.files)))
    texts = ["a dog runs", "the cat"]
    assert (uploaded.encode(texts) == Encoder.from_pretrained(str(run)).encode(texts)).all()
    assert hub.files["README.md"].decode() == done.card


def test_an_existing_repository_gets_another_commit(run: Path, hub: Hub) -> None:
    push(run / "model", "me/mine", message="First")
    push(run / "model", "me/mine", message="Second", pull_request=True)
    assert [commit["summary"] for commit in hub.commits] == ["First", "Second"]
    assert "create_pr" not in hub.commits[0]["path"]
    assert "create_pr=1" in hub.commits[1]["path"]


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
    pairs = zip(sentences(40, seed=5), sentences(40, seed=6), strict=True)
    lines = [f"{number % 5}\t{first}\t{second}" for number, (first, second) in enumerate(pairs)]
    (folder / "scored.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *lines]) + "\n")
    evaluate(str(run), tasks=[str(folder / "scored.tsv")], resamples=20, output=str(folder / "result.json"))
    return folder / "result.json"


def test_results_are_in_the_card(run: Path, hub: Hub, tmp_path: Path) -> None:
    card = push(run, "me/mine", results=str(result_of(run, tmp_path))).card
    assert "### Spearman x 100 [95% interval]" in card
    assert "| scored.tsv | 40 |" in card
    assert "type: spearman" in card
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


@pytest.mark.parametrize(
    ("part", "status", "said", "message"),
    [
        ("create", 403, "You may not", r"me/mine: http.* refused the upload: 403, You may not\..*Log in by hf auth"),
        ("validate-yaml", 400, "bad metadata", "me/mine: .* refused the upload"),
        ("/commit/", 500, "out of order", "me/mine: .* refused the upload: 500, "),
    ],
)
def test_answers_of_the_hub(run: Path, hub: Hub, part: str, status: int, said: str, message: str) -> None:
    hub.fail[part] = status, said
    with pytest.raises(NearfarError, match=message):
        push(run, "me/mine")
    assert not hub.files


@pytest.mark.long
def test_a_wrong_token_and_a_storage_that_breaks_off(run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # between huggingface_hub's attempts
    with monkeypatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_other")
        with pytest.raises(NearfarError, match=r"refused the upload: 401, Invalid credentials.*Log in by hf auth"):
            push(run, "me/mine")
    hub.address = "http://127.0.0.1:9"  # where large files are to be sent
    with pytest.raises(NearfarError, match=r"cannot be reached or refused the upload: .*Connect.*Nothing was uploaded"):
        push(run, "me/mine")
    assert not hub.files


def test_names_and_folders(run: Path, tmp_path: Path) -> None:
    for model, name, message in (
        (run, "mine", "mine: give owner/name, such as me/my-encoder"),
        (tmp_path / "gone", "me/mine", "gone: there is no such folder"),
        (tmp_path, "me/mine", re.escape(f"{tmp_path}: is no model folder")),
    ):
        with pytest.raises(NearfarError, match=message):
            push(model, name, dry_run=True)
