"""Model cards: metadata, training, scores, citation, and what must not be in them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml

from nearfar import finetune, push, train
from nearfar.commands.model_card import is_own_card, model_card, write_card
from nearfar.disk.model_folder import CARD_MARK
from nearfar.evaluation.results import ComparisonResult
from nearfar.methods.gunel import PAPER as GUNEL
from nearfar.methods.simcse import PAPER as SIMCSE
from nearfar.registry import METHODS, find_entry
from nearfar.types import NearfarError
from tests.evaluation.report.cases import queries
from tests.hostile_text import HOSTILE, active_parts
from tests.tiny import make_workspace, save_tiny, sentences, write_pairs


@pytest.mark.long
def test_training_writes_the_card(run: Path) -> None:
    file = run / "model" / "README.md"
    assert is_own_card(file)
    text = file.read_text()
    assert text == model_card(run / "model", name="")
    data = huggingface_hub.ModelCard(text).data
    assert data.library_name == "sentence-transformers"
    assert data.pipeline_tag == "sentence-similarity"
    assert data.base_model is None  # a folder of this machine
    assert "trained it by the method `info-nce`, from `start`" in text
    assert "pairs.tsv: " in text
    assert "secret" not in text  # folders of this machine
    assert str(run) not in text
    for setting in ("| `batch_size` | 8 |", "| `temperature` | 0.1 |", "| `max_steps` | 2 |"):
        assert setting in text
    assert "`learning_rate`" not in text  # the default
    assert "- Batch size: 8; epochs: 1; steps: 2; " in text
    assert SIMCSE in text
    found = ComparisonResult.load(run / "held_out" / "before-after.json").tasks["held-out"]
    assert f"| {found.second:.2f} | {found.first:.2f} |" in text
    assert f"MRR@10 x 100 on 12 held-out test rows: {found.second:.2f} before training, {found.first:.2f} after" in text


@pytest.mark.long
def test_texts_of_the_data_are_shown_if_asked_for(run: Path) -> None:
    """Three held-out rows, and the queries that changed most with their hits; none of them without the flag."""
    comparison = ComparisonResult.load(run / "held_out" / "before-after.json")
    assert comparison.queries is not None
    texts = [f"{one.change:+.3f}  {one.query}\n" for one in comparison.queries.examples]
    texts += [f" {hit.score:.3f}  {hit.text}\n" for one in comparison.queries.examples for hit in one.first.hits]
    rows = [line.split("\t")[1:] for line in (run / "held_out" / "rows.tsv").read_text().splitlines()]
    texts += [f"| {' | '.join(row)} |" for row in rows[:4]]
    card = model_card(run / "model", name="", examples=True)
    assert [text for text in texts if text not in card] == []
    assert f"| {' | '.join(rows[4])} |" not in card
    assert "### Queries before and after training\n\nAfter training, the right hit ranks higher for " in card
    for without in (model_card(run / "model", name=""), push(run, "me/mine", dry_run=True).card):
        assert not any(text in without for text in texts)
    assert "### Rows of the data, held out" in push(run, "me/mine", examples=True, dry_run=True).card


@pytest.mark.long
def test_the_licence_is_that_of_the_start(run: Path, tmp_path: Path) -> None:
    """From the metadata of its card; where the start is gone, as the card of the model says; else with a hint."""
    place = tmp_path / "run"
    shutil.copytree(run, place)
    info, start = place / "run.json", Path(shutil.copytree(run.parent / "secret" / "start", tmp_path / "start"))
    info.write_text(info.read_text().replace(str(run.parent / "secret" / "start"), str(start)))
    assert huggingface_hub.ModelCard(model_card(place / "model", name="")).data.license is None
    assert "Not known. Name it in the metadata" in model_card(place / "model", name="")
    for text, shown in (
        ("---\nlicense: [\n---\n", None),
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: mine\nlicense_link: https://a.b/c\n---\n", "mine"),
    ):
        (start / "README.md").write_text(text)
        card = model_card(place / "model", name="")
        data = huggingface_hub.ModelCard(card).data
        assert (f"`{shown}`, as the card of the model says" in card) == (shown is not None)
        assert shown in (None, data.license, data.license_name)
    assert (data.license, data.license_link) == ("other", "https://a.b/c")
    write_card(place)
    shutil.rmtree(start)
    assert model_card(place / "model", name="") == (place / "model" / "README.md").read_text()


@pytest.mark.long
def test_named_data_and_base_models_are_linked(tmp_path: Path) -> None:
    make_workspace(tmp_path)
    tiny = str(save_tiny(tmp_path / "tiny"))
    train("scl", model=tiny, data="microworld", evaluate_on="microworld:dev", max_steps=1, output=str(tmp_path / "run"))
    config = tmp_path / "run" / "run.json"
    config.write_text(
        config.read_text().replace(f'"{tiny}"', '"owner/base"').replace('"microworld"', '"snli", "hub:a/b/c:train"')
    )
    text = model_card(tmp_path / "run" / "model", name="me/mine")
    data = huggingface_hub.ModelCard(text).data
    assert data.base_model == "owner/base"
    assert data.datasets == ["stanfordnlp/snli", "a/b"]
    assert "Licence of `snli`: CC BY-SA 4.0" in text
    assert "from `owner/base`" in text
    assert 'SentenceTransformer("me/mine")' in text


@pytest.mark.long
def test_paths_of_a_further_set_are_left_out(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    for name in ("first", "second"):
        (private / f"{name}.txt").write_text("\n".join(sentences(60, seed=len(name))) + "\n")
    tiny, teacher = str(save_tiny(private / "start")), str(save_tiny(private / "teacher", seed=1))
    further = {"method": "distill", "teacher": teacher, "data": private / "second.txt"}
    files: dict[str, Any] = {"data": private / "first.txt", "sets": [further]}
    files |= {"evaluate_on": write_pairs(private / "pairs.tsv", 20), "output": tmp_path / "run"}
    train("simcse-unsup", model=tiny, **files, max_steps=1, batch_size=8)
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "distill: teacher teacher: " in card
    assert "distill: second.txt: " in card
    assert "on pairs" in card
    assert "private" not in card


@pytest.mark.long
def test_a_classifier(tmp_path: Path) -> None:
    rows = [f"{text}\t{'yes' if 'dog' in text else 'no'}" for text in sentences(80, seed=3)]
    (tmp_path / "labelled.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    save_tiny(tmp_path / "tiny")
    how = {"max_steps": 1, "validation_rows": 20, "batch_size": 8}
    finetune(task=tmp_path / "labelled.tsv", model=tmp_path / "tiny", output=tmp_path / "run", **how)
    assert GUNEL in (tmp_path / "run" / "model" / "README.md").read_text()
    card = push(tmp_path / "run", "me/labels", dry_run=True).card
    data = huggingface_hub.ModelCard(card).data
    assert (data.library_name, data.pipeline_tag) == ("transformers", "text-classification")
    assert 'pipeline("text-classification", model="me/labels")' in card
    assert GUNEL in card
    assert str(tmp_path) not in card


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "tiny")
    card = push(model, "me/tiny", dry_run=True).card
    assert "saved by nearfar" not in card or "A [sentence-transformers]" in card
    assert "## Training" not in card
    with pytest.raises(NearfarError, match=r"--examples: .*tiny is not the model of a run that holds out rows"):
        push(model, "me/tiny", examples=True, dry_run=True)


def test_a_card_of_the_users_stays(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run" / "model"
    mine.mkdir(parents=True)
    (mine / "README.md").write_text("# Mine\n")
    write_card(tmp_path / "run")
    assert (mine / "README.md").read_text() == "# Mine\n"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_citation(method: str) -> None:
    entry = find_entry(method)
    assert entry is not None
    assert entry.papers
    assert all(paper.startswith("@") for paper in entry.papers)


@pytest.mark.long
def test_records_of_a_run_cannot_add_markup(run: Path, tmp_path: Path) -> None:
    """A run folder of somebody else: each text in its records is shown, and is no HTML and no link."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    comparison = copy / "held_out" / "before-after.json"
    recorded, compared = (copy / "run.json").read_text(), ComparisonResult.load(comparison).to_dict()
    for text in HOSTILE:
        info = json.loads(recorded)
        info["data"] = [text, f"/folder/{text}: 3 rows"]
        info["config"] |= {"model": text, "data": [text], "name": text}
        info["hardware"] |= {"processor": text, "instruction_sets": text}
        info["versions"] |= {"torch": text, text: "1"}
        info |= {"precision": text, "processes": text, "metric": text, "dev": text}
        (copy / "run.json").write_text(json.dumps(info))
        shown = queries(text, f"a\n{text}", f"\n```\n{text}")
        comparison.write_text(json.dumps(compared | {"queries": shown}))
        card = model_card(copy / "model", name="", examples=True)
        _, metadata, body = card.split("---\n", 2)
        assert isinstance(yaml.safe_load(metadata), dict)
        assert active_parts(body.replace(CARD_MARK, "")) == [], text


def test_the_name_of_a_folder_is_no_code(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'x")\nimport os; os.system("y") #`'
    shutil.copytree(run / "model", folder)
    card = model_card(folder, name="")
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert 'SentenceTransformer("x-import-os-os.system-y-")' in code
    assert "import os;" not in card
