"""Further sets of rows: by flags and tables; sentences and random words beside the rows; prompts of a set."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import nearfar
from nearfar import InfoNceConfig, SgOpt1Config
from nearfar.cli import main
from nearfar.cli.train import split_sets
from nearfar.commands.train.inputs import load_inputs, resolve_sets
from nearfar.commands.train.prepare import prepare
from nearfar.config.values import flag
from nearfar.encoder.tokens import vocabulary_texts
from nearfar.types import NearfarError
from tests.tiny import save_tiny, sentences, write_pairs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, pairs, dev pairs, and sentences."""
    folder = tmp_path_factory.mktemp("sentences")
    save_tiny(folder / "tiny")
    lines = [f"{first}\t{second}" for first, second in zip(sentences(40, seed=1), sentences(40, seed=2), strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *lines]) + "\n")
    (folder / "sentences.txt").write_text("\n".join(dict.fromkeys(sentences(90, seed=3))) + "\n")
    write_pairs(folder / "dev.tsv", 20)
    return folder


def settings(folder: Path, output: Path, **more: Any) -> dict[str, Any]:
    return {
        "data": (str(folder / "pairs.tsv"),),
        "model": str(folder / "tiny"),
        "output": str(output),
        "evaluate_on": str(folder / "dev.tsv"),
        "batch_size": 8,
        "max_steps": 2,
        "evaluate_every": 2,
        "keep": "last",
        "precision": "fp32",
        **more,
    }


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def test_sentences_are_the_recipe_for_them(folder: Path) -> None:
    table = {"data": [str(folder / "sentences.txt")]}
    config = InfoNceConfig(**settings(folder, folder / "run", sets=(table,), seed=7, limit=20, dropout=0.0))
    _, further = resolve_sets(config)
    expected = {"model": config.model, "output": config.output, "seed": 7, "limit": 20, "dropout": 0.0, "weight": 0.3}
    assert further.config == SgOpt1Config(**expected, views="0-0", data=tuple(table["data"]), batch_size=64)


@pytest.mark.long
def test_a_second_data_flag_is_the_table_of_a_set(folder: Path, tmp_path: Path) -> None:
    text = str(folder / "sentences.txt")
    table = {"method": "sg-opt1", "data": [text], "views": "0-0", "batch_size": 64, "weight": 0.2}
    for name, more in {"table": {"sets": [table]}, "none": {}}.items():
        nearfar.train("info-nce", **settings(folder, tmp_path / name, **more))
    given = settings(folder, tmp_path / "flag")
    flags = [word for key, value in given.items() if key != "data" for word in (flag(key), str(value))]
    data = ["--data", *given["data"], "--data", f"{text}=0.2"]
    assert main(["train", "info-nce", *data, *flags]) == 0
    ours, theirs, alone = (weights(tmp_path / name) for name in ("flag", "table", "none"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert any(not torch.equal(ours[name], alone[name]) for name in alone)
    (written,) = tomllib.loads((tmp_path / "flag" / "config.toml").read_text())["sets"]
    assert written.items() >= table.items()


def test_the_number_after_a_file_is_the_weight_of_its_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d=0.5").write_text("a file of this name\n")
    words = ["--data", "a", "b=0.7", "--seed", "2", "--data", "c=d=1e-2", "--data=d=0.5", "e", "--fingerprints"]
    flags, values = split_sets(words)
    assert flags == ["--data", "a", "b", "--seed", "2", "--fingerprints"]
    assert values == {"weight": 0.7, "sets": [{"data": ["c=d"], "weight": 0.01}, {"data": ["d=0.5", "e"]}]}
    assert split_sets(["--seed", "2"]) == (["--seed", "2"], {})
    with pytest.raises(NearfarError, match="--data: needs a value"):
        split_sets(["--data", "a", "--data"])
    file = tmp_path / "rows.tsv"
    file.touch()
    with pytest.raises(NearfarError, match=r"rows[.]tsv=much: 'much' is no weight; give a number"):
        split_sets(["--data", "a", "--data", f"{file}=much"])


@pytest.mark.parametrize("sets", [["texts.txt"], [3], "texts.txt"])
def test_sets_in_python_are_tables(sets: Any, folder: Path) -> None:
    with pytest.raises(NearfarError, match=r"sets.* must be a (table|list)"):
        nearfar.train("info-nce", **settings(folder, folder / "refused", sets=sets))


def test_rows_in_memory_may_be_those_of_a_set(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = [{"anchor": f"the dog {number}", "positive": f"a dog {number}"} for number in range(20)]
    given = settings(folder, tmp_path / "run", sets=[{"data": rows, "weight": 0.5}], max_steps=1)
    nearfar.train("info-nce", **given)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert "set 2, info-nce: 20 rows" in facts


def test_own_sentences_have_no_held_out_text(folder: Path) -> None:
    sets = ({"data": ["own"]},)
    config = InfoNceConfig(**settings(folder, folder / "run", sets=sets, evaluate_on=None, hold_out=8))
    (rows, further), dev = load_inputs(resolve_sets(config))
    assert dev.held_out is not None
    texts = {str(row[0]) for row in further.texts}
    assert len(texts) > 40
    assert not texts & set(dev.held_out.texts)
    assert texts <= {text for row in rows.texts for text in row}


@pytest.mark.long
def test_pairs_train_beside_random_words_by_default(folder: Path, tmp_path: Path) -> None:
    given = settings(folder, tmp_path / "run")
    nearfar.train(**given)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert any(fact.startswith("set 2, sg-opt1: vocabulary, generated") for fact in facts)
    count = len(set(vocabulary_texts(str(folder / "tiny"))))
    assert f"set 2, sg-opt1: {count:,} rows" in facts
    assert "each step takes a batch of every set; the weights of their losses are 1, 0.3" in facts
    assert nearfar.train(**given, resume=True).steps == 2
    with pytest.raises(NearfarError, match="sets"):
        nearfar.train(**given, sets=[{"data": str(folder / "sentences.txt")}], resume=True)


@pytest.mark.long
def test_prompts_of_a_set_are_those_of_its_texts_alone(folder: Path) -> None:
    """The embeddings of a further set with prompts are those of its prompted texts; the model's prompts stay."""
    table = {"method": "info-nce", "data": [str(folder / "pairs.tsv")], "query_prompt": "the ", "document_prompt": "a "}
    run = prepare(InfoNceConfig(**settings(folder, folder / "run", sets=(table,), dropout=0.0)))
    (_, plain, _), (method, batch, _) = next(run.mixture.epoch(0))
    items = method.extract_items(batch)
    assert {item.prompt for item in items} == {"the ", "a "}
    assert {item.prompt for item in run.mixture.losses[0].extract_items(plain)} == {""}
    expected = run.encoder.encode([item.prompt + item.text for item in items], precision="fp32")
    run.encoder.eval()
    assert (method.represent(items).detach() - torch.from_numpy(expected)).abs().max() < 1e-5
    assert not any(run.encoder.prompts.values())
