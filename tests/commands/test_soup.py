"""Averages of models: their weights, what a greedy average keeps, the record, and what is refused."""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

from nearfar import Encoder, NearfarError, push, soup, train
from nearfar.data.fingerprints import text_hashes
from nearfar.data.rows import load_pairs
from nearfar.disk.model_folder import SeenHashes, read_seen
from nearfar.encoder.classifier import Classifier
from nearfar.evaluation.sts import evaluate_sts
from nearfar.runs.fingerprints import fingerprint_model
from tests.tiny import make_workspace, save_tiny, sentences, write_nli

pytestmark = pytest.mark.long


def write_noisy(name: str, *, seed: int, scale: float = 0.05) -> None:
    """The encoder ``tiny`` with noise in its weights, and with hashes of its own."""
    encoder = Encoder.from_pretrained("tiny", pooling="cls")
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=draw))
    encoder.seen = SeenHashes(*(np.unique(text_hashes([f"{name}{part}"])) for part in range(4)))
    encoder.save_pretrained(name)


def weights(folder: str | Path) -> dict[str, Tensor]:
    return load_file(Path(folder) / "model.safetensors")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``a``, ``b``, ``c``: the encoder ``tiny`` with different noise in its weights."""
    folder = make_workspace(tmp_path_factory.mktemp("models"))
    with chdir(folder):
        for number, name in enumerate("abc"):
            write_noisy(name, seed=number)
    return folder


@pytest.fixture
def folder(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory with these models."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    return tmp_path


def mean(names: list[str], shares: list[float]) -> dict[str, Tensor]:
    """The weighted mean in float64, rounded once."""
    models = [weights(name) for name in names]
    return {
        key: sum(share * model[key].double() for share, model in zip(shares, models, strict=True)).float()  # type: ignore[union-attr]
        for key in models[0]
    }


def assert_same(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for key in ours:
        torch.testing.assert_close(ours[key], theirs[key], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("given", "shares"), [(None, [1 / 3] * 3), ((2, 1, 1), [0.5, 0.25, 0.25])])
def test_the_weights_are_the_mean(given: Any, shares: list[float], folder: Path) -> None:
    result = soup("a", "b", "c", weights=given, output="out")
    assert_same(weights("out"), mean(["a", "b", "c"], shares))
    assert [(one.model, one.weight, one.score) for one in result.models] == [
        (name, share, None) for name, share in zip("abc", shares, strict=True)
    ]
    texts = sentences(5)
    vectors = Encoder.from_pretrained("out").encode(texts)
    assert np.abs(SentenceTransformer("out", device="cpu").encode(texts) - vectors).max() <= 1e-6
    assert not np.allclose(vectors, Encoder.from_pretrained("a").encode(texts), atol=1e-3)
    assert Encoder.from_pretrained("out").pooling == "cls"


def test_the_mean_of_equal_models_is_the_model_bit_for_bit(folder: Path) -> None:
    for name in ("a2", "a3"):
        shutil.copytree("a", name)
    soup("a", "a2", "a3", weights=[0.3, 0.1, 7], output="out")
    assert all(torch.equal(tensor, weights("a")[key]) for key, tensor in weights("out").items())


def test_the_folder_records_its_models_and_what_they_have_seen(folder: Path) -> None:
    result = soup("a", Path("b"), weights=[3, 1], output="new/out")
    record = json.loads(Path("new/out/soup.json").read_text())
    assert record == json.loads(json.dumps(result.to_dict()))
    assert record["models"] == [
        {"model": name, "fingerprint": fingerprint_model(name), "weight": share}
        for name, share in (("a", 0.75), ("b", 0.25))
    ]
    seen = read_seen(Path("new/out"))
    assert seen is not None
    for part, hashes in enumerate(seen):
        assert set(hashes.tolist()) == set(text_hashes([f"a{part}", f"b{part}"]).tolist())
    soup("a", "b", output="bare", fingerprints=False)
    assert read_seen(Path("bare")) is None


def test_a_model_without_a_record_of_its_texts_is_named(folder: Path) -> None:
    for name in ("b", "c"):
        (folder / name / "nearfar_seen.safetensors").unlink()
    with pytest.warns(UserWarning, match="^b, c: has no record of the texts that it was trained on"):
        soup("a", "b", "c", output="out")
    assert read_seen(Path("out")) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soup("b", "c", output="none")
    assert read_seen(Path("none")) is None


def dev_score(model: Encoder) -> float:
    task = {"dev": {"dev": load_pairs("pairs.tsv")}}
    score = evaluate_sts(model.encode, task, resamples=0).tasks["dev"].spearman.all.score
    assert score is not None
    return score


def reference_greedy(names: list[str]) -> tuple[list[str], float]:
    """Recipe 1 of Wortsman et al. 2022 on state dicts."""
    encoder = Encoder.from_pretrained(names[0])

    def score(kept: list[str]) -> float:
        encoder.backbone.load_state_dict(mean(kept, [1 / len(kept)] * len(kept)), strict=False)
        return dev_score(encoder)

    kept: list[str] = []
    for name in sorted(names, key=lambda name: -score([name])):
        if not kept or score([*kept, name]) >= score(kept):
            kept.append(name)
    return kept, score(kept)


def test_a_greedy_average_is_recipe_1(folder: Path) -> None:
    names = [f"model{seed}" for seed in range(7)]
    for seed, name in enumerate(names):
        write_noisy(name, seed=seed, scale=0.02 + 0.03 * seed)
    kept, score = reference_greedy(names)
    assert 1 < len(kept) < len(names)
    result = soup(*names, greedy=True, evaluate_on="pairs.tsv", output="out")
    assert {one.model for one in result.used} == set(kept)
    assert {one.weight for one in result.used} == {1 / len(kept)}
    assert result.score == pytest.approx(score, abs=1e-3)
    assert [one.score for one in result.models] == [
        pytest.approx(dev_score(Encoder.from_pretrained(name)), abs=1e-3) for name in names
    ]
    assert_same(weights("out"), mean(kept, [1 / len(kept)] * len(kept)))
    assert dev_score(Encoder.from_pretrained("out")) == pytest.approx(result.score, abs=1e-3)
    assert (result.metric, result.evaluate_on) == ("spearman", "pairs.tsv")
    seen = read_seen(Path("out"))
    assert seen is not None
    assert set(text_hashes(f"{name}0" for name in kept).tolist()) == set(seen.trained_texts.tolist())
    dev_texts = text_hashes({text for pair in load_pairs("pairs.tsv") for text in pair[:2]})
    assert set(dev_texts.tolist()) < set(seen.chosen_texts.tolist())


def test_runs_from_different_models(folder: Path) -> None:
    """They are averaged with a warning, and others without."""
    save_tiny(folder / "other", seed=3)
    for seed, model in ((1, "tiny"), (2, "other")):
        write_nli(folder / f"nli{seed}.tsv", premises=12, seed=seed)
        shared: dict[str, Any] = {"data": f"nli{seed}.tsv", "evaluate_on": "pairs.tsv", "max_steps": 1, "batch_size": 6}
        train("scl", model=model, seed=seed, output=f"run{seed}", keep="last", **shared)
    with pytest.warns(UserWarning, match="^run1 and run2/model were trained from different models"):
        soup("run1", "run2/model", output="out")
    shutil.copytree("run1", "run3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soup("run1", "run3/model", output="same")


def test_an_average_is_pushed_without_the_names_of_folders(folder: Path) -> None:
    soup(folder / "a", folder / "b", output="out")
    pushed = push("out", "me/average", dry_run=True)
    assert {"model.safetensors", "README.md", "nearfar_seen.safetensors"} < pushed.files.keys()
    assert "soup.json" not in pushed.files
    assert "nearfar averaged the weights of several trained models" in pushed.card
    assert str(folder) not in pushed.card


# --- what is refused ---


def changed(name: str, change: Callable[[Encoder], object]) -> str:
    encoder = Encoder.from_pretrained("a")
    change(encoder)
    encoder.save_pretrained(name)
    return name


def refuse(match: str, *models: str, **settings: Any) -> None:
    with pytest.raises(NearfarError, match=match):
        soup(*models, **{"output": "out", **settings})
    assert not Path("out").exists()
    assert not list(Path().glob(".out*"))


def test_models_that_differ_in_more_than_their_weights_are_refused(folder: Path) -> None:
    save_tiny(folder / "roberta", "roberta")
    refuse("roberta: cannot be averaged with tiny: they have different architectures", "tiny", "roberta")
    refuse("they have different poolings", "tiny", "a")
    for what, change in (
        ("normalization", lambda encoder: setattr(encoder, "normalizes", True)),
        ("modules after the pooling", lambda encoder: encoder.add_dense()),
        ("maximum lengths", lambda encoder: setattr(encoder, "max_length", 20)),
        ("prompts or similarities", lambda encoder: encoder.set_prompts(query="q: ")),
    ):
        refuse(f"different .*{what}", "a", changed(what, change))
    for name, file, settings in (
        ("architectures", "config.json", {"num_attention_heads": 4}),
        ("tokenizers", "tokenizer.json", {"normalizer": None}),
    ):
        shutil.copytree("a", name)
        path = Path(name, file)
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))
        refuse(f"{name}: .*different {name}", "a", name)


def test_models_that_are_no_encoders_are_refused(folder: Path) -> None:
    Classifier.from_pretrained("tiny", label_names=["warm", "cold"]).save_pretrained("classifier")
    refuse("^classifier: is a classifier; soup averages sentence encoders", "classifier", "a")


def test_lists_of_models_that_cannot_be_averaged(folder: Path) -> None:
    refuse("two models or more are needed", "a")
    refuse(r"^\./a: is the same model as a; give it once, with a higher --weights", "a", "b", "./a")
    refuse("--weights: has 1 numbers, but must have one for each of the 2 models", "a", "b", weights=[2])
