"""--sentences: unlabelled texts, or random words of the vocabulary, train beside the rows as a second objective."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import nearfar
from nearfar import InfoNceConfig, SgOpt1Config
from nearfar.commands.train.inputs import load_inputs, resolve_objectives
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


def test_sentences_are_the_recipe_as_a_second_objective(folder: Path) -> None:
    config = InfoNceConfig(**settings(folder, folder / "run", sentences=("texts.txt",), seed=7, limit=20, dropout=0.0))
    _, second = resolve_objectives(config)
    expected = {"model": config.model, "output": config.output, "seed": 7, "limit": 20, "dropout": 0.0}
    assert second.config == SgOpt1Config(**expected, views="0-0", data=("texts.txt",), batch_size=64)


@pytest.mark.long
def test_a_run_equals_one_with_the_same_second_objective(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "second.toml"
    text = str(folder / "sentences.txt")
    file.write_text(f'method = "sg-opt1"\ndata = ["{text}"]\nviews = "0-0"\nbatch_size = 64\n')
    for name, more in {"file": {"second": str(file)}, "flag": {"sentences": (text,)}, "none": {}}.items():
        nearfar.train(InfoNceConfig(**settings(folder, tmp_path / name, **more)))
    ours, theirs, alone = (weights(tmp_path / name) for name in ("flag", "file", "none"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert any(not torch.equal(ours[name], alone[name]) for name in alone)
    written = tomllib.loads((tmp_path / "flag" / "second.toml").read_text())
    assert (written["method"], written["data"], written["views"]) == ("sg-opt1", [text], "0-0")


def test_own_sentences_have_no_held_out_text(folder: Path) -> None:
    config = InfoNceConfig(**settings(folder, folder / "run", sentences=("own",), evaluate_on=None, hold_out=8))
    (rows, second), dev = load_inputs(resolve_objectives(config))
    assert dev.held_out is not None
    texts = {str(row[0]) for row in second.texts}
    assert len(texts) > 40
    assert not texts & set(dev.held_out.texts)
    assert texts <= {text for row in rows.texts for text in row}


@pytest.mark.long
def test_pairs_train_beside_random_words_by_default(folder: Path, tmp_path: Path) -> None:
    given = settings(folder, tmp_path / "run")
    nearfar.train(**given)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert any(fact.startswith("second objective, sg-opt1: vocabulary, generated") for fact in facts)
    count = len(set(vocabulary_texts(str(folder / "tiny"))))
    assert f"second objective, sg-opt1: {count:,} rows" in facts
    assert nearfar.train(**given, resume=True).steps == 2
    with pytest.raises(NearfarError, match="sentences"):
        nearfar.train(**given | {"sentences": (str(folder / "sentences.txt"),)}, resume=True)
