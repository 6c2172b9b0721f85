"""Runs by the public function: output files, interrupting and resuming, and refused inputs."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar import NearfarError, SclConfig
from nearfar.cli import main
from nearfar.commands.train import TrainResult, train
from nearfar.methods import BuiltMethod, Loss, liao
from nearfar.settings import dump_toml
from nearfar.training.callbacks import MetricsFile
from tests.interrupted_runs import assert_same_run, lines_of, steps_of
from tests.tiny import save_tiny, write_nli, write_pairs

pytestmark = pytest.mark.long
POLLS = 180_000  # only to end a test that hangs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[SclConfig, TrainResult]:
    """A finished run of 14 steps of 10 rows, evaluated every 4, a checkpoint every 3."""
    folder = tmp_path_factory.mktemp("finished")
    config = SclConfig(
        output=str(folder / "run"),
        model=str(save_tiny(folder / "tiny")),
        data=(str(write_nli(folder / "nli.tsv")),),
        evaluate_on=str(write_pairs(folder / "pairs.tsv")),
        batch_size=10,
        learning_rate=1e-3,
        evaluate_every=4,
        checkpoint_every=3,
        max_negatives=5,  # sampled at random, so resume must restore the generator
    )
    return config, train(config)


@pytest.fixture
def config(finished: tuple[SclConfig, TrainResult], tmp_path: Path) -> SclConfig:
    """The same config with another folder."""
    return replace(finished[0], output=str(tmp_path / "run"))


def test_it_evaluates_every_few_steps_and_tells_the_best(finished: tuple[SclConfig, TrainResult]) -> None:
    config, trained = finished
    assert (trained.model, trained.steps, trained.metric) == (Path(config.output) / "model", 14, "spearman")
    scores = [(line["step"], line["spearman"]) for line in lines_of(config.output) if "spearman" in line]
    assert [step for step, _ in scores] == [0, 4, 8, 12, 14]
    assert trained.best_score == max(score for _, score in scores)
    assert dict(scores)[trained.best_step] == trained.best_score
    assert trained.start_score == scores[0][1]
    record = json.loads((Path(config.output) / "run.json").read_text())
    assert "120 rows: 40 entailment, 40 neutral, 40 contradiction" in record["data"]


def test_the_same_seed_gives_the_same_run(config: SclConfig) -> None:
    short = {seed: replace(config, output=f"{config.output}-{seed}", seed=seed, max_steps=2) for seed in (1, 2)}
    again = replace(short[1], output=config.output)
    for settings in (*short.values(), again):
        train(settings)
    assert_same_run(again.output, short[1].output)
    assert steps_of(short[1].output)[0] != steps_of(short[2].output)[0]


def start(config: SclConfig) -> subprocess.Popen[bytes]:
    """Start the run in its own process by the command line; its output goes to a file next to the run folder."""
    file = Path(config.output).with_suffix(".toml")
    file.write_text(dump_toml(config))
    command = [sys.executable, "-m", "nearfar", "train", str(file)]
    with file.with_suffix(".txt").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def kill_at_step(step: int, process: subprocess.Popen[bytes], config: SclConfig) -> None:
    file = Path(config.output) / "metrics.jsonl"
    for _ in range(POLLS):
        if file.exists() and f'{{"step": {step}, "epoch"' in file.read_text():
            process.kill()
            process.wait()
            return
        if process.poll() is not None:
            break
        time.sleep(0.005)
    raise AssertionError(f"never came to step {step}: {Path(config.output).with_suffix('.txt').read_text()}")


@pytest.mark.parametrize("step", [8, pytest.param(None, marks=pytest.mark.nightly, id="a random step")])
def test_killed_at_any_step_it_ends_bit_identical(step: int | None, config: SclConfig, tmp_path: Path) -> None:
    """By kill -9 at any point."""
    config = replace(config, epochs=2, keep="last", ema=0.9, layer_decay=0.5)  # 28 steps
    step = step or int(np.random.default_rng().integers(1, 20))
    process = start(config)
    train(replace(config, output=str(tmp_path / "whole")))
    kill_at_step(step, process, config)
    train(config, resume=True)
    try:
        assert_same_run(config.output, tmp_path / "whole")
    except AssertionError as error:
        raise AssertionError(f"killed at step {step}") from error


def test_ctrl_c_saves_and_says_how_to_resume(
    finished: tuple[SclConfig, TrainResult],
    config: SclConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It stops after a complete step, between two checkpoints."""
    monkeypatch.setattr(signal, "getsignal", signal.getsignal)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    on_step = MetricsFile.on_step

    def press_at_step_5(self: MetricsFile, report: object) -> None:
        on_step(self, report)  # type: ignore[arg-type]
        if report.step == 5:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGINT)

    file = Path(config.output).with_suffix(".toml")
    file.write_text(dump_toml(config))
    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "on_step", press_at_step_5)
        assert main(["train", str(file)]) == 130
    printed = capsys.readouterr()
    assert f"nearfar train {file} --resume" in " ".join((printed.out + printed.err).split())
    assert json.loads((Path(config.output) / "checkpoint" / "progress.json").read_text())["step"] == 5
    assert not (Path(config.output) / "model").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # also in a notebook
    train(config, resume=True)
    assert_same_run(config.output, finished[0].output)


def broken_from(step: int, total: torch.Tensor, kind: str, done: int) -> torch.Tensor:
    """The loss, which from a step on is not finite, or has a gradient that is not."""
    if done < step:
        return total
    return total * float("nan") if kind == "loss" else total + (total - total).sqrt()


@pytest.mark.parametrize(
    ("kind", "step", "saved"),
    [("loss", 5, "The last good checkpoint is .*checkpoint"), ("gradient", 1, "No checkpoint was saved yet")],
)
def test_what_is_not_finite_stops_the_run_before_the_step(
    kind: str, step: int, saved: str, config: SclConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, calls = liao.METHODS["scl"], iter(range(1, 100))

    def broken(*arguments: Any) -> BuiltMethod:
        built = entry.build(*arguments)
        method, loss_fn = built.method, built.method.loss_fn

        def loss(batch: object, rows: torch.Tensor) -> Loss:
            return Loss(broken_from(step, loss_fn(batch, rows).total, kind, next(calls)), {})

        return built._replace(method=replace(method, loss_fn=loss))

    monkeypatch.setitem(liao.METHODS, "scl", replace(entry, build=broken))
    sentence = rf"(?s)step {step}: the {kind} is not finite.*{saved}.*rows \d+, \d+.*premise  "
    with pytest.raises(NearfarError, match=sentence):
        train(config)
    progress = Path(config.output) / "checkpoint" / "progress.json"
    assert not progress.exists() if step == 1 else json.loads(progress.read_text())["step"] == 3


def test_max_steps_ends_the_schedule_too(config: SclConfig) -> None:
    assert train(replace(config, max_steps=5, warmup=0.0)).steps == 5
    rates = [line["learning_rate"] for line in steps_of(config.output)]
    np.testing.assert_allclose(rates, [1e-3 * share for share in (1, 0.8, 0.6, 0.4, 0.2)])


def test_a_finished_run_is_left_as_it_is(config: SclConfig) -> None:
    config = replace(config, max_steps=1)
    finished = train(config)
    assert train(config, resume=True) == finished
    with pytest.raises(NearfarError, match="already holds this run, and it is finished"):
        train(config)
