"""Runs of every method: output files, a decreasing loss, and bit-identical resuming."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, BertModel

from nearfar import Encoder
from nearfar.commands.train import TrainResult, train
from nearfar.commands.train.prepare import prepare
from nearfar.config.training import RunConfig
from nearfar.registry import METHODS
from nearfar.settings import dump_toml
from tests.interrupted_runs import assert_same_run, interrupt_at_step, lines_of, steps_of, weights_of
from tests.method_configs import by_night, config, further_set, write_data
from tests.tiny import sentences

pytestmark = pytest.mark.long

MEASURES = {"alignment", "uniformity", "mean_cosine", "effective_rank"}
STEP_KEYS = {"step", "epoch", "loss", "learning_rate", "gradient_norm"}
KINDS_OF_BATCHES = ("scl", "simcse-unsup", "supcon-text")
"""Methods with rows by premise, shuffled rows and balanced rows; all others resume at night."""
Finished: TypeAlias = tuple[RunConfig, TrainResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With 41 rows an epoch has four batches or more, so that a run resumes inside one."""
    return write_data(tmp_path_factory.mktemp("data"), rows=41)


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """A finished run of a method with dropout: 7 steps, evaluated every 4, a checkpoint every 3."""

    @cache
    def run(method: str) -> Finished:
        output = str(tmp_path_factory.mktemp("finished") / "run")
        settings = config(
            method, folder, output=output, epochs=3, max_steps=7, keep="last", learning_rate=1e-2, warmup=0.0
        )
        return settings, train(settings)

    return run


def terms_of_the_loss(settings: RunConfig) -> set[str]:
    ((method, batch, _),) = next(prepare(settings).mixture.epoch(0))
    return set(method.loss(batch).terms)


@pytest.mark.parametrize("method", by_night(METHODS, (*KINDS_OF_BATCHES, "regression", "distill", "bt")))
def test_a_run_writes_a_model_and_its_record(method: str, folder: Path, finished: Callable[[str], Finished]) -> None:
    settings, trained = finished(method)
    run = Path(settings.output)
    files = ["config.toml", "metrics.jsonl", "model", "nearfar_seen.safetensors", "run.json"]
    assert sorted(path.name for path in run.iterdir()) == files
    assert (run / "config.toml").read_text() == dump_toml(settings)
    run_info = json.loads((run / "run.json").read_text())
    assert (run_info["step"], run_info["finished"], run_info["config"]["data"]) == (7, True, list(settings.data))
    assert trained.steps == 7

    terms = terms_of_the_loss(settings)
    for line in steps_of(run):
        assert line.keys() == STEP_KEYS | terms
        assert all(math.isfinite(value) for value in line.values())
        assert line["gradient_norm"] > 1e-4
    evaluated = [line for line in lines_of(run) if "spearman" in line]
    assert [line["step"] for line in evaluated] == [0, 4, 7]
    for line in evaluated:
        assert line.keys() == {"step", "spearman", "metric", "best"} | MEASURES
        assert all(math.isfinite(line[name]) for name in MEASURES)
    assert evaluated[0]["uniformity"] != evaluated[-1]["uniformity"]

    texts = [*sentences(20, seed=3), "a dog . 3"]
    pooling = None if getattr(settings, "pooling", None) is None else settings.pooling
    before = Encoder.from_pretrained(folder / "noisy", pooling=pooling).encode(texts)
    after = Encoder.from_pretrained(run / "model").encode(texts)
    assert np.abs(after - before).max() > 1e-2
    theirs = SentenceTransformer(str(run / "model"), device="cpu").encode(texts)
    assert np.abs(after - theirs).max() <= 1e-6


@pytest.mark.parametrize("method", by_night(METHODS, KINDS_OF_BATCHES))
def test_an_interrupted_run_resumes_bit_identical(
    method: str, finished: Callable[[str], Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted one step after a checkpoint, in the second epoch where epochs are short, with dropout."""
    settings, _ = finished(method)
    assert_resume_matches(settings.output, replace(settings, output=str(tmp_path / "parted")), monkeypatch)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("simcse-sup", {"mlp": "kept", "sets": ["labels"], "micro_batch": 3}),
        ("info-nce", {"sets": ["sentences", "order"], "mix": "proportional", "accumulate": 2}),
        ("sg-opt", {"precision": "bf16", "views": "1-2"}),
        ("regression", {"head": "linear", "head_learning_rate": 1e-2, "lora_rank": 2, "accumulate": 2}),
        *(
            pytest.param(method, settings, marks=pytest.mark.nightly)
            for method, settings in (
                ("scl", {"micro_batch": 3, "max_negatives": 5, "sets": ["sentences"]}),
                (
                    "info-nce",
                    {"directions": "both", "distinct_texts": True, "sets": ["order", "labels"], "mix": "weighted"},
                ),
                ("simcse-unsup", {"mlm_weight": 0.5}),
                ("sg", {"guide_dropout": True, "freeze_embeddings": False}),
                ("regression", {"objective": "angle", "micro_batch": 4}),
                ("nli-order", {"order_pairs": "batch", "directions": "all", "sets": ["sentences"], "micro_batch": 5}),
                ("bt+sg-opt", {"lora_rank": 3, "drift_weight": 0.0, "keep": "best"}),
            )
        ),
    ],
)
def test_all_state_is_restored_on_resume(
    method: str, settings: dict[str, Any], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads, adapters, further sets with their own epochs, and cached views."""
    if "sets" in settings:
        settings = settings | {"sets": tuple(further_set(kind, folder) for kind in settings["sets"])}
    given = config(method, folder, **{"epochs": 6, "max_steps": 7, "keep": "last", **settings})
    whole, parted = (replace(given, output=str(tmp_path / name)) for name in ("whole", "parted"))
    train(whole)
    assert_resume_matches(whole.output, parted, monkeypatch)
    assert {tensor.dtype for name, tensor in weights_of(whole.output).items() if "seen" not in name} == {torch.float32}


def assert_resume_matches(whole: str, parted: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at_step(5, monkeypatch, lambda: train(parted))  # after the checkpoint of step 3
    progress = json.loads((Path(parted.output) / "checkpoint" / "progress.json").read_text())
    assert progress["step"] == 3
    assert progress["batch"] > 0
    assert not (Path(parted.output) / "model").exists()
    assert train(parted, resume=True).steps == 7
    assert_same_run(whole, parted.output)


@pytest.mark.parametrize("method", by_night(METHODS, ("nli-order",)))
def test_the_loss_decreases(method: str, folder: Path, tmp_path: Path) -> None:
    patience = {"patience": None} if METHODS[method].patience else {}
    settings = {"learning_rate": 3e-3, "warmup": 0.0, "evaluate_every": 1000, "checkpoint_every": 1000, **patience}
    settings |= {"output": str(tmp_path / "run"), "model": str(folder / "tiny"), "epochs": 20, "max_steps": 40}
    train(config(method, folder, **settings))
    losses = [line["loss"] for line in steps_of(tmp_path / "run")]
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_a_further_set(folder: Path, tmp_path: Path) -> None:
    sets = (further_set("nli", folder, temperature=0.5, weight=0.25),)
    settings = config("simcse-unsup", folder, output=str(tmp_path / "run"), sets=sets)
    train(replace(settings, mlm_weight=0.1))  # type: ignore[call-arg]
    first = steps_of(tmp_path / "run")[0]
    own = {"simcse-unsup.loss", "simcse-unsup.accuracy", "mlm.loss"}
    assert first.keys() == STEP_KEYS | own | {"scl.loss", "scl.scl", "scl.ce", "scl.accuracy"}
    for line in steps_of(tmp_path / "run"):
        parts = line["simcse-unsup.loss"] + 0.1 * line["mlm.loss"] + 0.25 * line["scl.loss"]
        assert line["loss"] == pytest.approx(parts, abs=1e-5)
        assert line["scl.loss"] == pytest.approx(0.7 * line["scl.ce"] + 0.3 * line["scl.scl"], abs=1e-5)
        assert line["scl.accuracy"] <= 1
    train(str(tmp_path / "run" / "config.toml"), output=str(tmp_path / "again"), max_steps=2)
    assert steps_of(tmp_path / "again")[0]["loss"] == first["loss"]


def test_only_adapters_are_trained(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"head": "linear", "keep": "last", "lora_rank": 2}
    settings = config("regression", folder, output=str(tmp_path / "run"), epochs=2, learning_rate=1e-2, **extra)
    interrupt_at_step(5, monkeypatch, lambda: train(settings))
    before = AutoModel.from_pretrained(folder / "noisy").state_dict()
    saved = load_file(tmp_path / "run" / "checkpoint" / "weights.safetensors")
    moments = load_file(tmp_path / "run" / "checkpoint" / "optimiser.safetensors")
    assert any(name.startswith("head0.") for name in saved)
    assert any(name.startswith("head0.") for name in moments)
    assert all("lora_" in name for name in moments if name.startswith("encoder."))
    own = {name.replace("encoder.backbone.", "").replace("base_layer.", ""): tensor for name, tensor in saved.items()}
    assert before.keys() <= own.keys()
    assert all(torch.equal(own[name], before[name]) for name in before)  # unchanged
    adapters = [tensor for name, tensor in saved.items() if "lora_B" in name]
    assert adapters
    assert all(tensor.abs().max() > 1e-4 for tensor in adapters)  # their initial value is 0

    train(settings, resume=True)
    after = AutoModel.from_pretrained(tmp_path / "run" / "model").state_dict()
    assert after.keys() == before.keys()  # a plain encoder, adapters merged
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    layers = [name for name in before if name.startswith("encoder.layer.") and before[name].ndim == 2]
    assert moved == set(layers)
    ours = Encoder.from_pretrained(tmp_path / "run" / "model").encode(sentences(5))
    theirs = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu").encode(sentences(5))
    assert np.abs(ours - theirs).max() <= 1e-6


def test_a_kept_tanh_layer_is_saved(folder: Path, tmp_path: Path) -> None:
    saved = {}
    for mlp in ("kept", "train_only", "none"):
        train(config("simcse-unsup", folder, output=str(tmp_path / mlp), mlp=mlp, max_steps=2, keep="last"))
        vectors = SentenceTransformer(str(tmp_path / mlp / "model"), device="cpu").encode(sentences(9))
        assert np.abs(Encoder.from_pretrained(tmp_path / mlp / "model").encode(sentences(9)) - vectors).max() <= 1e-6
        saved[mlp] = ((tmp_path / mlp / "model" / "2_Dense").exists(), float(np.abs(vectors).max()))
    assert [exists for exists, _ in saved.values()] == [True, False, False]
    assert saved["kept"][1] < 1 < saved["none"][1]  # tanh
    # the next run continues with it
    train(
        config("regression", folder, output=str(tmp_path / "next"), model=str(tmp_path / "kept" / "model"), max_steps=2)
    )
    assert weights_of(tmp_path / "next").keys() == weights_of(tmp_path / "kept").keys()
    assert (tmp_path / "next" / "model" / "2_Dense").exists()


def test_frozen_embeddings_and_guide_do_not_change(folder: Path, tmp_path: Path) -> None:
    settings = config("sg-opt", folder, output=str(tmp_path / "run"), learning_rate=1e-2, keep="last")
    train(settings)
    before, after = (BertModel.from_pretrained(p).state_dict() for p in (folder / "noisy", tmp_path / "run" / "model"))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert not any(name.startswith("embeddings.") for name in moved)
    drift = [line["drift"] for line in steps_of(tmp_path / "run")]
    assert drift[0] == 0  # distance from the initial weights
    distance = sum(float((after[name] - before[name]).square().sum()) for name in before if name in moved)
    assert drift[-1] == pytest.approx(distance, rel=0.5)  # measured before the last step
