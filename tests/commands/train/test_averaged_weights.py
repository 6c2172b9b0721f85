"""Runs with averaged weights (--ema, --start-weight) and a learning rate by layer: what is kept, evaluated, resumed."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nearfar import FinetuneConfig, TrainConfig, finetune, train, training
from nearfar.config.training import RunConfig
from nearfar.runs.run import Run
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.interrupted_runs import lines_of, steps_of
from tests.method_configs import config as method_config
from tests.method_configs import write_data
from tests.tiny import write_colours

pytestmark = pytest.mark.long
DECAY = 0.8
Weights: TypeAlias = dict[str, Tensor]
RUNS = {
    "train": {},
    "frozen embeddings": {},
    "adapters": {"lora_rank": 2},
    "micro-batches": {"micro_batch": 3, "accumulate": 2},
    "bf16": {"precision": "bf16"},
    "finetune": {},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_data(tmp_path_factory.mktemp("data"))
    write_colours(folder / "colours.tsv")
    save_tiny_for_pairs(folder / "pairs")
    return folder


def config_of(name: str, folder: Path, output: Path, **settings: Any) -> RunConfig:
    """9 steps and a checkpoint every 3."""
    settings = {"epochs": 9, "max_steps": 9, "ema": DECAY, **RUNS[name], **settings}
    if name != "finetune":
        method = "sg-opt" if name == "frozen embeddings" else "scl"
        return method_config(method, folder, output=str(output), **settings)
    shared = {"batch_size": 10, "learning_rate": 3e-3, "evaluate_every": 4, "checkpoint_every": 3}
    task, model = str(folder / "colours.tsv"), str(folder / "pairs")
    return FinetuneConfig(output=str(output), task=task, model=model, validation_rows=20, **{**shared, **settings})


def run(config: RunConfig) -> None:
    if isinstance(config, TrainConfig):
        train(config)
    else:
        finetune(config)


def kept(config: RunConfig) -> Weights:
    return load_file(Path(config.output) / "model" / "model.safetensors")


@pytest.fixture
def weights_after_steps(monkeypatch: pytest.MonkeyPatch) -> list[Weights]:
    """Records the trained weights of encoder and head after each step of a run."""
    recorded: list[Weights] = []
    modules: dict[str, nn.Module] = {}
    train_run, step = Run.train, training.clipped_step

    def with_modules(self: Run) -> None:
        modules.update(self.state.modules)
        train_run(self)

    def recording(optimiser: torch.optim.AdamW, **settings: float) -> None:
        step(optimiser, **settings)
        named = [(f"{key}.{name}", p) for key, module in modules.items() for name, p in module.named_parameters()]
        recorded.append({name: p.detach().clone() for name, p in named if p.requires_grad})

    monkeypatch.setattr(Run, "train", with_modules)
    monkeypatch.setattr(training, "clipped_step", recording)
    return recorded


def average_of(recorded: list[Weights]) -> Weights:
    """The average after the last step, by its definition, in float64."""
    powers = [DECAY ** (len(recorded) - 1 - place) for place in range(len(recorded))]
    return {
        name: sum(power * one[name].double() for power, one in zip(powers, recorded, strict=True)) / sum(powers)
        for name in recorded[0]
    }


def distance(trained: Weights, saved: Weights) -> float:
    """Largest difference between the trained weights and the saved ones of the same name."""
    found = []
    for name, tensor in trained.items():
        plain = name.removeprefix("encoder.").removeprefix("backbone.").removeprefix("head0.")
        same = saved.get(plain, saved.get(f"bert.{plain}"))
        if same is not None:
            found.append(float((tensor.double() - same.double()).abs().max()))
    assert len(found) >= len(saved) - 5  # frozen embeddings
    return max(found)


BY_NIGHT = ("frozen embeddings", "micro-batches", "bf16")  # of adapters not: a model has them merged


@pytest.mark.parametrize(
    "name", ["train", "finetune", *(pytest.param(name, marks=pytest.mark.nightly) for name in BY_NIGHT)]
)
def test_the_last_average_is_kept(name: str, folder: Path, tmp_path: Path, weights_after_steps: list[Weights]) -> None:
    config = config_of(name, folder, tmp_path / "run", keep="last")
    run(config)
    assert len(weights_after_steps) == 9
    assert distance(average_of(weights_after_steps), kept(config)) <= 1e-6
    assert distance(weights_after_steps[-1], kept(config)) > 1e-4
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["config"]["ema"], record["config"]["layer_decay"]) == (DECAY, 1.0)


def test_evaluations_and_the_saved_model_average_with_the_start(folder: Path, tmp_path: Path) -> None:
    runs = {
        share: config_of("train", folder, tmp_path / str(share), ema=None, keep="last", start_weight=share)
        for share in (0.0, 0.25)
    }
    for config in runs.values():
        run(config)
    plain, averaged = kept(runs[0.0]), kept(runs[0.25])
    before = load_file(Path(runs[0.0].model) / "model.safetensors")
    shared = [name for name in plain if name in before]
    assert len(shared) >= 20
    for name in shared:
        torch.testing.assert_close(averaged[name], 0.25 * before[name] + 0.75 * plain[name], rtol=0, atol=1e-6)
    assert max(float((averaged[name] - plain[name]).abs().max()) for name in shared) > 1e-4
    assert steps_of(runs[0.0].output) == steps_of(runs[0.25].output)
    scores = [[line for line in lines_of(config.output) if "loss" not in line] for config in runs.values()]
    assert scores[0][0] == scores[1][0]
    assert all(one != two for one, two in zip(scores[0][1:], scores[1][1:], strict=True))


@pytest.mark.parametrize("name", ["train", pytest.param("adapters", marks=pytest.mark.nightly), "finetune"])
def test_a_layer_decay_slows_the_lower_layers(name: str, folder: Path, tmp_path: Path) -> None:
    """AdamW's first step moves each weight that has a gradient by its learning rate."""

    def moves(decay: float) -> dict[str, float]:
        output = tmp_path / str(decay)
        settings: dict[str, Any] = {"ema": None, "keep": "last", "max_steps": 1, "warmup": 0.0, "learning_rate": 1e-3}
        if name == "finetune":
            settings["dropout"] = 0.0
        config = config_of(name, folder, output, layer_decay=decay, **settings)
        run(config)
        before = load_file(Path(config.model) / "model.safetensors")
        prefix = "bert." if name == "finetune" else ""
        after = kept(config)
        return {key: float((after[prefix + key] - before[key]).abs().max()) for key in before if prefix + key in after}

    full, slowed = moves(1.0), moves(0.25)
    for part, factor in (("layer.1.output.dense.weight", 1.0), ("layer.0.output.dense.weight", 0.25)):
        assert slowed[f"encoder.{part}"] == pytest.approx(factor * full[f"encoder.{part}"], rel=0.02)
    table = "embeddings.word_embeddings.weight"
    assert slowed[table] == pytest.approx(full[table] / 16, rel=0.02)
    assert (full[table] > 0) == (name != "adapters")
    if name == "finetune":
        assert slowed["pooler.dense.weight"] == pytest.approx(full["pooler.dense.weight"], rel=0.02)
