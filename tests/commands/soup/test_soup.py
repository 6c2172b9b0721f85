"""Averages of models: their weights, what a greedy average keeps, and the record."""

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

from nearfar import Encoder, NearfarError, evaluate, push, soup, train
from nearfar.cli import main
from nearfar.commands.soup.command import SoupResult
from nearfar.data.fingerprints import text_hashes
from nearfar.data.sts import load_pairs
from nearfar.disk import read_seen
from nearfar.evaluation.sts import evaluate_sts
from nearfar.runs.fingerprints import fingerprint_model
from tests.commands.soup.helpers import weights, write_noisy
from tests.tiny import save_tiny, sentences, write_nli


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


@pytest.mark.long
@pytest.mark.parametrize(("given", "shares"), [(None, [1 / 3] * 3), ("2, 1,1", [0.5, 0.25, 0.25])])
def test_the_weights_are_the_mean(given: Any, shares: list[float], folder: Path) -> None:
    result = soup("a", "b", "c", weights=given, output="out")
    assert_same(weights("out"), mean(["a", "b", "c"], shares))
    assert max(float((weights("out")[key] - weights("a")[key]).abs().max()) for key in weights("a")) > 0.01
    assert [(one.model, one.weight, one.score) for one in result.models] == [
        (name, share, None) for name, share in zip("abc", shares, strict=True)
    ]
    texts = sentences(5)
    vectors = Encoder.from_pretrained("out").encode(texts)
    assert np.abs(SentenceTransformer("out", device="cpu").encode(texts) - vectors).max() <= 1e-6
    assert not np.allclose(vectors, Encoder.from_pretrained("a").encode(texts), atol=1e-3)
    assert Encoder.from_pretrained("out").pooling == "cls"


@pytest.mark.long
def test_the_mean_of_equal_models_is_the_model_bit_for_bit(folder: Path) -> None:
    for name in ("a2", "a3"):
        shutil.copytree("a", name)
    soup("a", "a2", "a3", weights="0.3,0.1,7", output="out")
    assert all(torch.equal(tensor, weights("a")[key]) for key, tensor in weights("out").items())


@pytest.mark.long
def test_modules_after_the_pooling_are_averaged_too(folder: Path) -> None:
    for seed, name in enumerate(("d", "e")):
        encoder = Encoder.from_pretrained("a")
        torch.manual_seed(seed)
        encoder.add_dense()
        encoder.save_pretrained(name)
    soup("d", "e", output="out")
    (dense,) = (path.name for path in Path("out").glob("*_Dense"))
    ours, one, two = (load_file(Path(name, dense, "model.safetensors")) for name in ("out", "d", "e"))
    assert_same(ours, {key: ((one[key].double() + two[key].double()) / 2).float() for key in one})
    assert not torch.equal(one["linear.weight"], two["linear.weight"])


@pytest.mark.long
def test_the_folder_records_its_models_and_what_they_have_seen(folder: Path) -> None:
    result = soup("a", Path("b"), weights="3,1", output="new/out")
    record = json.loads(Path("new/out/soup.json").read_text())
    assert record == json.loads(json.dumps(result.to_dict()))
    assert record["models"] == [
        {"model": name, "fingerprint": fingerprint_model(name), "weight": share}
        for name, share in (("a", 0.75), ("b", 0.25))
    ]
    assert record.keys() == {"models", "provenance"}
    seen = read_seen(Path("new/out"))
    assert seen is not None
    for part, hashes in enumerate(seen):
        assert set(hashes.tolist()) == set(text_hashes([f"a{part}", f"b{part}"]).tolist())
    soup("a", "b", output="bare", fingerprints=False)
    assert read_seen(Path("bare")) is None


@pytest.mark.long
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


@pytest.mark.long
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
    assert result.score >= max(one.score or 0 for one in result.models)
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


@pytest.mark.long
def test_a_score_that_does_not_fall_is_enough(folder: Path) -> None:
    """Equal models have equal scores, in the order in which they are named."""
    shutil.copytree("a", "a2")
    result = soup("a", "a2", greedy=True, evaluate_on="pairs.tsv", output="out")
    assert [one.weight for one in result.models] == [0.5, 0.5]
    assert all(torch.equal(tensor, weights("a")[key]) for key, tensor in weights("out").items())


@pytest.mark.long
def test_evaluate_reports_what_the_models_of_an_average_have_seen(folder: Path) -> None:
    for seed in (1, 2):
        write_nli(folder / f"nli{seed}.tsv", premises=12, seed=seed)
        train(
            "scl", model="tiny", data=f"nli{seed}.tsv", evaluate_on="pairs.tsv", max_steps=2, batch_size=6,
            seed=seed, output=f"run{seed}",
        )  # fmt: skip
    soup("run1", "run2", output="out")
    rows = [line.split("\t")[:2] for seed in (1, 2) for line in Path(f"nli{seed}.tsv").read_text().splitlines()[1:4]]
    unseen = [(f"{text} unseen", f"{text} new") for text in sentences(6, seed=5)]
    lines = [f"{number}\t{one}\t{two}" for number, (one, two) in enumerate([*rows, *unseen])]
    Path("test.tsv").write_text("score\tsentence1\tsentence2\n" + "\n".join(lines) + "\n")
    shares = evaluate("out", pairs=["test.tsv"], resamples=0, progress=False).tasks["test.tsv"].seen
    assert shares is not None
    assert shares.pairs == 0.5
    one = evaluate("run1", pairs=["test.tsv"], resamples=0, progress=False).tasks["test.tsv"].seen
    assert one is not None
    assert one.pairs == 0.25


@pytest.mark.long
def test_runs_from_different_models_are_averaged_with_a_warning(folder: Path) -> None:
    save_tiny(folder / "other", seed=3)
    shared: dict[str, Any] = {"data": "nli.tsv", "evaluate_on": "pairs.tsv", "max_steps": 1, "batch_size": 10}
    for run, model in (("run1", "tiny"), ("run2", "other"), ("run3", "tiny")):
        train("scl", model=model, seed=int(run[-1]), output=run, **shared)
    with pytest.warns(UserWarning, match="^run1 and run2/model were trained from different models"):
        soup("run1", "run2/model", output="out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soup("run1", "run3/model", output="out2")


@pytest.mark.long
def test_an_average_is_pushed_without_the_names_of_folders(folder: Path) -> None:
    result = soup(folder / "a", folder / "b", output="out")
    assert SoupResult.load(Path("out/soup.json")) == result
    pushed = push("out", "me/average", dry_run=True)
    assert {"model.safetensors", "README.md", "nearfar_seen.safetensors"} < pushed.files.keys()
    assert "soup.json" not in pushed.files
    assert "nearfar averaged the weights of 2 trained models" in pushed.card
    assert str(folder) not in pushed.card
    Path("out/soup.json").write_text("{")
    with pytest.raises(NearfarError, match=r"soup\.json: .*Average the models again"):
        push("out", "me/average", dry_run=True)


@pytest.mark.long
def test_the_command_prints_shares_and_scores(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("soup a b c --weights 2,1,1 --output out".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["   50.00%  a", "   25.00%  b", "   25.00%  c", "Wrote the average of 3 models to out"]
    write_noisy("bad", seed=9, scale=5.0)
    assert main("soup a bad --greedy --evaluate-on pairs.tsv --output best".split()) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    score = dev_score(Encoder.from_pretrained("a"))
    assert first == f"  100.00%  spearman {score:.2f}  a"
    assert second.endswith("  bad  (left out)")
    assert last == f"Wrote a alone to best: spearman {score:.2f} on pairs.tsv"
