"""Runs by the public function: output files, interrupting and resuming, and refused inputs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError
from nearfar.commands.train.command import train
from nearfar.commands.train.prepare import plan
from nearfar.config import AugmentConfig, SbertConfig, SclConfig, TrainConfig, dump_toml
from nearfar.methods import BuiltMethod, Loss, liao
from nearfar.training.trainer import Interrupted
from tests.tiny import save_tiny, sentences, write_nli, write_pairs

pytestmark = pytest.mark.long
POLLS = 180_000  # only to end a test that hangs
TIMEOUT = 1800  # seconds, likewise


@pytest.fixture
def config(tmp_path: Path) -> SclConfig:
    """12 steps of 10 rows, evaluated every 4, a checkpoint every 3."""
    return SclConfig(
        output=str(tmp_path / "run"),
        model=str(save_tiny(tmp_path / "tiny")),
        data=(str(write_nli(tmp_path / "nli.tsv")),),
        evaluate_on=str(write_pairs(tmp_path / "pairs.tsv")),
        batch_size=10,
        learning_rate=1e-3,
        evaluate_every=4,
        checkpoint_every=3,
        max_negatives=5,  # sampled at random, so resume must restore the generator
    )


def metrics(run: str) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "items_per_second"} for line in lines]


def weights(run: str) -> dict[str, torch.Tensor]:
    return load_file(Path(run) / "model" / "model.safetensors")


def assert_same_run(first: str, second: str) -> None:
    assert metrics(first) == metrics(second)
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("config_class", [SbertConfig, SclConfig, AugmentConfig])
def test_a_run_writes_a_model_and_its_record(config: SclConfig, config_class: type[TrainConfig]) -> None:
    shared = {
        name: getattr(config, name)
        for name in ("output", "model", "data", "evaluate_on", "batch_size", "evaluate_every")
    }
    config_of_kind = config_class(**shared, learning_rate=1e-3)
    trained = train(config_of_kind)
    run = Path(config.output)
    assert sorted(path.name for path in run.iterdir()) == [
        "config.toml",
        "metrics.jsonl",
        "model",
        "nearfar_seen.safetensors",
        "run.json",
    ]
    assert (run / "config.toml").read_text() == dump_toml(config_of_kind)
    assert trained.model == run / "model"

    steps = [line for line in metrics(config.output) if "loss" in line]
    scores = [(line["step"], line["spearman"]) for line in metrics(config.output) if "spearman" in line]
    assert [line["step"] for line in steps] == list(range(1, trained.steps + 1))
    assert [step for step, _ in scores] == [0, *range(4, trained.steps, 4), trained.steps]
    assert trained.best_score == max(score for step, score in scores if step)
    assert trained.start_score == scores[0][1]
    assert json.loads((run / "run.json").read_text())["config"]["batch_size"] == 10

    before, after = Encoder.from_pretrained(config.model), Encoder.from_pretrained(run / "model")
    texts = sentences(5)
    assert after.pooling == "mean_without_cls"
    assert np.abs(after.encode(texts) - before.encode(texts)).max() > 1e-3
    theirs = SentenceTransformer(str(run / "model"), device="cpu").encode(texts)
    assert np.abs(after.encode(texts) - theirs).max() <= 1e-6


def test_the_loss_decreases(config: SclConfig) -> None:
    train(replace(config, epochs=8, max_negatives="all"))
    losses = [line["loss"] for line in metrics(config.output) if "loss" in line]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])


def test_the_same_seed_gives_the_same_run(config: SclConfig, tmp_path: Path) -> None:
    train(config)
    train(replace(config, output=str(tmp_path / "again")))
    assert_same_run(config.output, str(tmp_path / "again"))
    train(replace(config, output=str(tmp_path / "other"), seed=2))
    assert metrics(config.output) != metrics(str(tmp_path / "other"))


def start(config: TrainConfig, *flags: str) -> subprocess.Popen[bytes]:
    """Start the run in its own process by the command line; its output goes to a file next to the run folder."""
    file = Path(config.output).with_suffix(".toml")
    file.write_text(dump_toml(config))
    command = [sys.executable, "-m", "nearfar", "train", str(file), *flags]
    with printed(config).open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )


def printed(config: TrainConfig) -> Path:
    return Path(config.output).with_suffix(".txt")


def wait_for_step(process: subprocess.Popen[bytes], config: TrainConfig, step: int) -> None:
    file = Path(config.output) / "metrics.jsonl"
    for _ in range(POLLS):
        if file.exists() and f'{{"step": {step}, "epoch"' in file.read_text():
            return
        if process.poll() is not None:
            break
        time.sleep(0.005)
    raise AssertionError(f"never came to step {step}: {printed(config).read_text()}")


@pytest.mark.parametrize("kills", [(38,), pytest.param(None, marks=pytest.mark.nightly, id="three random steps")])
def test_killed_at_any_step_it_ends_bit_identical(
    kills: tuple[int, ...] | None, config: SclConfig, tmp_path: Path
) -> None:
    """By kill -9 at any point; the uninterrupted run has its own process too, so that threads are equal."""
    config = replace(config, epochs=8, keep="last", ema=0.9, layer_decay=0.5)  # 96 steps
    uninterrupted = start(replace(config, output=str(tmp_path / "whole")))
    if kills is None:
        kills = tuple(np.sort(np.random.default_rng().choice(np.arange(1, 90), size=3, replace=False)).tolist())
    process = start(config)
    for step in kills:
        wait_for_step(process, config, step)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = start(config, "--resume")
    assert process.wait(timeout=TIMEOUT) == 0, printed(config).read_text()
    assert uninterrupted.wait(timeout=TIMEOUT) == 0
    try:
        assert_same_run(config.output, str(tmp_path / "whole"))
    except AssertionError as error:
        raise AssertionError(f"killed at steps {kills}") from error


def test_ctrl_c_saves_and_says_how_to_resume(config: SclConfig, tmp_path: Path) -> None:
    config = replace(config, epochs=8, checkpoint_every=1000)
    process = start(config)
    wait_for_step(process, config, 5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=TIMEOUT) == 130
    assert f"nearfar train {tmp_path / 'run.toml'} --resume" in printed(config).read_text()
    assert not (Path(config.output) / "model").exists()
    train(config, resume=True)
    train(replace(config, output=str(tmp_path / "whole")))
    np.testing.assert_equal(metrics(config.output)[-1]["step"], metrics(str(tmp_path / "whole"))[-1]["step"])


def test_interrupted_in_a_notebook(config: SclConfig) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    config = replace(config, epochs=50)

    def press() -> None:
        while not (Path(config.output) / "metrics.jsonl").exists() or len(metrics(config.output)) < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(Interrupted):
        train(config)
    thread.join()
    assert (Path(config.output) / "checkpoint" / "progress.json").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_nan_loss_stops_the_run(config: SclConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = liao.METHODS["scl"]

    def broken(*arguments: Any) -> BuiltMethod:
        built = entry.build(*arguments)
        method = built.method
        steps, loss_fn = iter(range(100)), method.loss_fn

        def nan_at_step_5(batch: object, rows: torch.Tensor) -> Loss:
            return Loss(loss_fn(batch, rows).total * (float("nan") if next(steps) == 4 else 1), {})

        return built._replace(method=replace(method, loss_fn=nan_at_step_5))

    monkeypatch.setitem(liao.METHODS, "scl", replace(entry, build=broken))
    with pytest.raises(
        NearfarError, match=r"(?s)step 5: the loss is not finite.*checkpoint.*rows \d+, \d+.*anchor  "
    ) as caught:
        train(config)
    assert str(Path(config.output) / "checkpoint") in str(caught.value)
    assert json.loads((Path(config.output) / "checkpoint" / "progress.json").read_text())["step"] == 3


def test_a_gradient_that_is_not_finite_stops_the_run_before_the_step(
    config: SclConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = liao.METHODS["scl"]

    def broken(*arguments: Any) -> BuiltMethod:
        built = entry.build(*arguments)
        method, loss_fn = built.method, built.method.loss_fn

        def loss_with_infinite_gradient(batch: object, rows: torch.Tensor) -> Loss:
            total = loss_fn(batch, rows).total
            return Loss(total + (total - total).sqrt(), {})

        return built._replace(method=replace(method, loss_fn=loss_with_infinite_gradient))

    monkeypatch.setitem(liao.METHODS, "scl", replace(entry, build=broken))
    with pytest.raises(NearfarError, match=r"step 1: the gradient is not finite.*No checkpoint was saved yet"):
        train(config)


def test_accumulated_batches_form_one_step(config: SclConfig) -> None:
    trained = train(replace(config, accumulate=5))
    assert trained.steps == 3  # 12 batches: 5, 5, 2


def test_max_steps_ends_the_schedule_too(config: SclConfig) -> None:
    assert train(replace(config, max_steps=5, warmup=0.0)).steps == 5
    rates = [line["learning_rate"] for line in metrics(config.output) if "loss" in line]
    np.testing.assert_allclose(rates, [1e-3 * share for share in (1, 0.8, 0.6, 0.4, 0.2)])


def test_patience_stops_early(config: SclConfig) -> None:
    trained = train(replace(config, epochs=40, evaluate_every=1, patience=3, learning_rate=1e-9))
    history = json.loads((Path(config.output) / "run.json").read_text())["history"]
    assert trained.steps < 40
    best = max(score for _, score in history)
    assert dict(history)[trained.best_step] == best
    assert trained.steps - trained.best_step == 3


def test_the_best_weights_are_kept(config: SclConfig, tmp_path: Path) -> None:
    from nearfar.data.sts import load_pairs
    from nearfar.evaluation.sts import evaluate_sts

    config = replace(config, epochs=3, learning_rate=1e-2)
    best = train(config)
    last = train(replace(config, output=str(tmp_path / "last"), keep="last"))
    assert best.best_step == last.best_step < last.steps
    pairs = load_pairs(config.evaluate_on)
    for trained, expected in ((best, best.best_score), (last, None)):
        encoder = Encoder.from_pretrained(trained.model)
        score = evaluate_sts(encoder.encode, {"x": {"x": pairs}}, resamples=0).tasks["x"].spearman.all.score
        assert (score == pytest.approx(100 * best.best_score, abs=0.01)) == (expected is not None)


def test_bf16_trains_float32_weights(config: SclConfig) -> None:
    train(replace(config, precision="bf16"))
    assert {tensor.dtype for tensor in weights(config.output).values()} == {torch.float32}
    assert all(np.isfinite(line["loss"]) for line in metrics(config.output) if "loss" in line)


def test_existing_run_folders_are_refused(config: SclConfig, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match="no run to resume"):
        train(config, resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(NearfarError, match="already exists and holds no run"):
        train(replace(config, output=str(tmp_path / "mine")))
    finished = train(config)
    with pytest.raises(NearfarError, match="already holds this run, and it is finished"):
        train(config)
    assert train(config, resume=True) == finished
    with pytest.raises(NearfarError, match=r"other settings \(--batch-size, --seed\)"):
        train(replace(config, seed=3, batch_size=20), resume=True)
    with pytest.raises(NearfarError, match="run of another method"):
        train(SbertConfig(output=config.output), resume=True)
    (Path(config.output) / "run.json").unlink()
    with pytest.raises(NearfarError, match=r"unfinished\. Continue it with --resume"):
        train(config)
    with pytest.raises(NearfarError, match="Not a directory"):
        train(replace(config, output=str(tmp_path / "nli.tsv" / "run")))


def test_invalid_training_inputs_are_refused(config: SclConfig, tmp_path: Path) -> None:
    def refuse(match: str, **changes: object) -> None:
        with pytest.raises(NearfarError, match=match):
            train(replace(config, **changes))  # type: ignore[arg-type]
        assert not Path(config.output).exists()  # a refused run leaves no files

    header = "premise\thypothesis\tlabel\n"
    (tmp_path / "neutral.tsv").write_text(header + "a dog\ta cat\tneutral\na man\ta bird\tcontradiction\n" * 6)
    refuse("none of the 12 rows is an entailment", data=(str(tmp_path / "neutral.tsv"),))
    (tmp_path / "one.tsv").write_text(header + "a dog\ta dog runs\tentailment\na dog\ta cat\tneutral\n" * 6)
    refuse("all 12 rows have the same premise", data=(str(tmp_path / "one.tsv"),))
    refuse("--batch-size 500: there are 120 rows in .*nli.tsv. Set it from 1 to 120", batch_size=500)
    refuse("nowhere.tsv", data=(str(tmp_path / "nowhere.tsv"),))
    refuse(r"nli.tsv.*no column 'gold'|no column 'gold'", label_column="gold")
    refuse("no such model folder", model=str(tmp_path / "nowhere"))
    (tmp_path / "flat.tsv").write_text("score\tsentence1\tsentence2\n" + "3\ta dog\ta cat\n3\ta man\ta bird\n" * 3)
    with pytest.raises(NearfarError, match="no correlation to choose the best step by"):
        train(replace(config, evaluate_on=str(tmp_path / "flat.tsv")))


def test_plan_counts_and_shows(config: SclConfig) -> None:
    counted = plan(config)
    assert not Path(config.output).exists()
    assert "120 rows: 40 entailment, 40 neutral, 40 contradiction" in counted.facts
    assert "40 premises" in counted.facts
    assert len(counted.batches) == 3
    assert counted.steps == train(config).steps
    assert counted.parameters == sum(tensor.numel() for tensor in weights(config.output).values())
    assert sum(line.startswith("anchor") for line in counted.batches[0]) == 3
    assert any(
        "over 6 tokens and are truncated" in note for note in plan(replace(config, max_length=6, output="other")).facts
    )
