"""A search over settings: its candidates, its rounds, what it writes, and how it goes on."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nearfar
from nearfar.cli import main
from nearfar.config.training import TrainConfig
from nearfar.data.fingerprints import text_hashes
from nearfar.data.hold_out import HeldOut
from nearfar.disk.model_folder import read_seen
from nearfar.methods.simcse import InfoNceConfig
from nearfar.runs.held_out import load_held_out
from nearfar.runtime import memory
from nearfar.studies import steps
from nearfar.studies import tune as tuning
from nearfar.studies.tune import Try, TuneResult, candidates, halve, tune
from nearfar.training import Interrupted
from nearfar.types import NearfarError
from tests.interrupted_runs import weights_of
from tests.tiny import WORDS, save_tiny, write_pairs

pytestmark = pytest.mark.long
RECIPE = InfoNceConfig(output="x", learning_rate=4e-4, epochs=2, start_weight=0.7, batch_size=64)

# --- candidates ---


def test_the_recipe_is_the_first_candidate_and_the_others_are_around_it() -> None:
    every = candidates(RECIPE, (), rows=1300)
    assert every[0] == {"learning_rate": 4e-4, "epochs": 2, "start_weight": 0.7, "batch_size": 64}
    assert every == candidates(replace(RECIPE, seed=2), (), rows=1300)
    assert len({tuple(one.values()) for one in every}) == len(every) > 20
    assert {one["learning_rate"] for one in every} == {1e-4, 2e-4, 4e-4, 8e-4, 16e-4}
    assert {one["epochs"] for one in every} == {1, 2, 4}
    assert {one["start_weight"] for one in every} == {0.5, 0.7, 0.85}
    assert {one["batch_size"] for one in every} == {32, 64, 128}
    first = every[:8]
    assert len({one["epochs"] for one in first}) == 3
    assert len({one["learning_rate"] for one in first}) >= 4, "a few points are spread over all values"


@pytest.mark.parametrize(
    ("recipe", "fixed", "rows", "expected"),
    [
        (RECIPE, ("batch_size", "epochs"), 1300, {"learning_rate": 5, "start_weight": 3}),
        (RECIPE, ("learning_rate",), 100, {"epochs": 3, "start_weight": 3, "batch_size": 2}),
        (
            replace(RECIPE, epochs=1, batch_size=2),
            ("start_weight",),
            9,
            {"learning_rate": 5, "epochs": 2, "batch_size": 2},
        ),
        (
            replace(RECIPE, start_weight=0.0, lora_rank=2),
            ("epochs", "batch_size"),
            9,
            {"learning_rate": 5, "start_weight": 1},
        ),
    ],
)
def test_what_is_searched(recipe: TrainConfig, fixed: Sequence[str], rows: int, expected: dict[str, int]) -> None:
    every = candidates(recipe, fixed, rows)
    assert {name: len({one[name] for one in every}) for name in every[0]} == expected


def test_nothing_is_left_to_search() -> None:
    with pytest.raises(NearfarError, match="--learning-rate, --epochs, --start-weight, --batch-size: all are given"):
        candidates(RECIPE, ("learning_rate", "epochs", "start_weight", "batch_size"), 100)


# --- rounds ---


def attempts(
    scores: Sequence[float | None], *, seconds: float = 1.0, whole: Sequence[float] | None = None
) -> tuple[Callable[[int, int], Try], list[tuple[int, int]]]:
    """Tries with these scores, of whole runs with others; and which of them began.

    A quarter takes one second, of other candidates than the first ``seconds``.
    """
    begun: list[tuple[int, int]] = []

    def attempt(candidate: int, part: int) -> Try:
        begun.append((candidate, part))
        score = whole[candidate] if whole and part == 1 else scores[candidate]
        took = 4 / part * (seconds if candidate else 1)
        return Try(candidate=candidate, part=part, settings={}, score=score, seconds=took, run=Path(), steps=1)

    return attempt, begun


def test_the_better_half_goes_on_and_the_recipe_always() -> None:
    attempt, begun = attempts([0, 5, 3, 1, 4, 2, 6])
    winner, tries = halve(attempt, 7, 10_000)
    quarter, half, whole = ([candidate for candidate, own in begun if own == part] for part in (4, 2, 1))
    assert quarter == [0, 1, 2, 3, 4, 5, 6]
    assert half == [0, 6, 1, 4, 2], "the best four, and the recipe before them"
    assert whole == [0, 6, 1, 4]
    assert (winner, [(one.candidate, one.part) for one in tries]) == (6, begun)


def test_whole_runs_decide_and_the_recipe_wins_ties() -> None:
    assert halve(attempts([0, 5, 3, 1], whole=[9, 8, 7, 0])[0], 4, 10_000)[0] == 0
    assert halve(attempts([5, 5, 5, 5])[0], 4, 10_000)[0] == 0
    assert halve(attempts([0, 5, 3, 1], whole=[9, 9.5, 7, 0])[0], 4, 10_000)[0] == 1


def test_what_fails_is_last() -> None:
    attempt, begun = attempts([-50, None, -90, None])
    assert halve(attempt, 4, 10_000)[0] == 0
    assert [candidate for candidate, part in begun if part == 2] == [0, 2]


def test_time_decides_how_many_tries_begin() -> None:
    """Tries take 1, 2 and 4 seconds, and rounds end after 8, 16 and 24."""
    attempt, begun = attempts([*range(32)])
    halve(attempt, 32, 24)
    assert [candidate for candidate, part in begun if part == 4] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [candidate for candidate, part in begun if part == 2] == [0, 7, 6, 5]
    assert [candidate for candidate, part in begun if part == 1] == [0, 7]


def test_the_best_other_candidate_is_in_each_round() -> None:
    """Rounds end after 7.3, 14.7 and 22 seconds, and the recipe's whole run after 22."""
    attempt, begun = attempts([*range(32)], seconds=3)
    assert halve(attempt, 32, 22)[0] == 3
    assert begun == [(0, 4), (1, 4), (2, 4), (3, 4), (0, 2), (3, 2), (0, 1), (3, 1)]


def test_without_time_for_two_candidates_the_recipe_is_trained_whole_at_once() -> None:
    attempt, begun = attempts([0, 1, 2])
    assert halve(attempt, 3, 21)[0] == 0
    assert begun == [(0, 4), (0, 1)]


# --- a search ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder, pairs and scored pairs."""
    folder = tmp_path_factory.mktemp("tune")
    save_tiny(folder / "tiny")
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=6)) + f" {number}" for number in range(90)]
    rows = [f"{text}\t{' '.join(draw.sample(text.split()[:-1], 4))} {number}" for number, text in enumerate(texts)]
    (folder / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    write_pairs(folder / "dev.tsv")
    return folder


def recipe(folder: Path, output: Path, **more: Any) -> InfoNceConfig:
    own: dict[str, Any] = {"data": (str(folder / "pairs.tsv"),), "model": str(folder / "tiny"), "output": str(output)}
    own |= {"hold_out": 24, "learning_rate": 1e-2, "batch_size": 8, "evaluate_every": 5}
    return InfoNceConfig(**own | more)


NO_LIMIT = 1e5
"""Minutes, so that no test looks at a clock."""


@pytest.fixture(scope="module")
def finished(folder: Path) -> tuple[TuneResult, list[str]]:
    """A finished search, and which parts of the held-out rows were read before its test."""
    asked: list[str] = []
    retrieval, test = HeldOut.retrieval, tuning._test

    def recorded(self: HeldOut, part: Any, **how: Any) -> Any:
        asked.append(part)
        return retrieval(self, part, **how)

    def tested(*arguments: Any) -> TuneResult:
        patch.setattr(HeldOut, "retrieval", retrieval)
        return test(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MOST", 1)
        patch.setattr(HeldOut, "retrieval", recorded)
        patch.setattr(tuning, "_test", tested)
        return tune(recipe(folder, folder / "tuned"), budget=NO_LIMIT), asked


def test_every_try_is_a_run_of_a_part_of_its_steps(finished: tuple[TuneResult, list[str]]) -> None:
    result, _ = finished
    lengths = {(one.candidate, one.part): one.steps for one in result.tries}
    in_round = [[part for _, part in lengths].count(part) for part in (4, 2, 1)]
    assert in_round in ([2, 0, 1], [2, 2, 1], [2, 2, 2]), "the better one, and the recipe"
    for one in result.tries:
        whole = one.settings["epochs"] * -(-66 // one.settings["batch_size"])
        assert one.steps == -(-whole // one.part)
        assert one.score is not None
        assert one.error is None
    best = max((one for one in result.tries if one.part == 1), key=lambda one: one.score or 0)
    assert result.winner == best.candidate


def test_the_test_rows_are_used_once_after_the_search(finished: tuple[TuneResult, list[str]]) -> None:
    result, asked = finished
    assert set(asked) == {"dev"}
    run = Path(result.config.output)
    held_out, seen = load_held_out(run), read_seen(run)
    assert seen is not None
    tested = [text for row in held_out.text_rows("test") for text in row]
    assert not np.isin(text_hashes(tested), [*seen.trained_texts, *seen.chosen_texts]).any()
    assert result.trained.comparison is not None
    assert result.trained.comparison.tasks["held-out"].pairs == held_out.anchors("test") == 12


def test_what_is_written(finished: tuple[TuneResult, list[str]], folder: Path) -> None:
    result, _ = finished
    output = folder / "tuned"
    record = json.loads((output / "tune.json").read_text())
    assert len(record["tries"]) == len(result.tries)
    assert record["winner"] == {name: getattr(result.config, name) for name in record["winner"]}
    assert (record["budget"], record["config"]["learning_rate"]) == (NO_LIMIT, 1e-2)
    table = result.table()
    assert table.rows[0][0] == "1 recipe"
    assert sum("winner" in str(row[0]) for row in table.rows) == 1
    assert f"2 settings, {len(result.tries)} tries" in table.notes[0]
    assert "| 1 recipe |" in (output / "tune.md").read_text()
    assert not list(output.glob("tries/*/run/model")), "no model of a try is kept"
    assert (output / "best" / "model" / "modules.json").is_file()
    if result.winner:
        assert result.comparison is not None
        sides = [Path(side.name).name for side in result.comparison.sides]
        assert sides == ["best", "recipe"]


def test_the_winner_is_the_run_that_its_settings_give(
    finished: tuple[TuneResult, list[str]], folder: Path, tmp_path: Path
) -> None:
    result, _ = finished
    again = nearfar.train(replace(result.config, output=str(tmp_path / "again")))
    assert again.comparison is not None
    assert result.trained.comparison is not None
    assert again.comparison.tasks == result.trained.comparison.tasks
    ours, theirs = weights_of(result.config.output), weights_of(tmp_path / "again")
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours if "seen" not in name)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, finished: tuple[TuneResult, list[str]]) -> list[float]:
    """Learning rates of the jobs that ran, which train nothing: the lowest rate is the best. Nothing is tested."""
    rates: list[float] = []

    def job(settings: dict[str, Any], _inputs: object, folder: Path) -> None:
        rates.append(settings["values"].get("learning_rate", InfoNceConfig.learning_rate))
        (folder / "run" / "model").mkdir(parents=True)
        (folder / "numbers.json").write_text(json.dumps({"validation": -rates[-1], "steps": 1}))

    def test(config: InfoNceConfig, winner: int, tries: list[Try]) -> TuneResult:
        return TuneResult(config, winner, tries, finished[0].trained, None)

    monkeypatch.setattr(steps, "train", job)
    monkeypatch.setattr(tuning, "_test", test)
    monkeypatch.setattr(tuning, "MOST", 1)
    monkeypatch.setattr(memory, "release", lambda: None)  # it takes longer than these jobs
    return rates


def test_a_stopped_search_goes_on(
    trained: list[float], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished tries are not trained again, unless the rows have changed."""
    data = tmp_path / "pairs.tsv"
    data.write_text((folder / "pairs.tsv").read_text())
    config, job = recipe(folder, tmp_path / "tuned", data=(str(data),)), steps.train

    def stopped(*arguments: Any) -> None:
        if len(trained) == 3:
            raise KeyboardInterrupt
        job(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "train", stopped)
        with pytest.raises(KeyboardInterrupt):
            tune(config, budget=NO_LIMIT)
    with pytest.raises(NearfarError, match="holds a search already; continue it with --resume"):
        tune(config, budget=NO_LIMIT)
    result = tune(config, budget=NO_LIMIT, resume=True)
    assert trained == [1e-2, 5e-3] * 3
    assert [(one.candidate, one.part) for one in result.tries] == [(0, 4), (1, 4), (0, 2), (1, 2), (0, 1), (1, 1)]
    assert result.winner == 1
    kept = [one.part for one in result.tries if (one.run / "model").exists()]
    assert kept == [1, 1], "short runs leave no model"
    assert tune(config, budget=NO_LIMIT, resume=True).winner == 1
    assert len(trained) == 6
    data.write_text(data.read_text() + "one more dog\tone more cat\n")
    tune(config, budget=NO_LIMIT, resume=True)
    assert len(trained) == 12


def test_a_try_that_fails_is_in_the_table(
    trained: list[float], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, failing = steps.train, 5e-3

    def fails(settings: dict[str, Any], *arguments: Any) -> None:
        if settings["values"]["learning_rate"] == failing:
            raise NearfarError("step 3: the loss is not finite.")
        job(settings, *arguments)

    monkeypatch.setattr(steps, "train", fails)
    result = tune(recipe(folder, tmp_path / "tuned"), budget=NO_LIMIT)
    assert [(one.candidate, one.part, one.error) for one in result.tries] == [
        (0, 4, None),
        (1, 4, "step 3: the loss is not finite."),
        (0, 1, None),
    ]
    assert [row[-2] for row in result.table().rows] == ["-0.01", "failed", "-0.01"]
    failing = 1e-2
    with pytest.raises(NearfarError, match=r"^step 3: the loss is not finite\.$"):
        tune(recipe(folder, tmp_path / "other"), budget=NO_LIMIT)
    assert trained == [1e-2, 1e-2]


@pytest.mark.parametrize(
    ("changes", "budget", "message"),
    [
        ({"hold_out": None}, 1, "a search needs held-out rows.*--hold-out 0.3 holds some out, but the best of many"),
        ({"hold_out": 0}, 1, "Leave out --evaluate-on and --hold-out 0"),
        ({"hold_out": None, "evaluate_on": "dev.tsv"}, 1, "a search needs held-out rows"),
        ({"keep": "last"}, 1, "--keep last, --guard: the best score"),
        ({"guard": ("stsb:dev",)}, 1, "--keep last, --guard: the best score"),
        ({}, 0, "--budget: must be above 0|--budget: "),
        ({}, "ten", "--budget: "),
    ],
)
def test_what_cannot_be_searched(
    changes: dict[str, Any], budget: Any, message: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(NearfarError, match=message):
        tune(recipe(folder, tmp_path / "tuned", **changes), budget=budget)
    assert not (tmp_path / "tuned").exists()


def test_an_output_that_is_not_free(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match="there is no search to resume"):
        tune(recipe(folder, tmp_path / "tuned"), budget=1, resume=True)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NearfarError, match="already exists"):
        tune(recipe(folder, tmp_path), budget=1)


# --- the command ---


def test_the_command_says_what_was_tried_and_tested(
    finished: tuple[TuneResult, list[str]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A setting that is given is not searched."""
    result, _ = finished
    given: dict[str, Any] = {}

    def search(config: InfoNceConfig, **how: Any) -> TuneResult:
        given.update(how, config=config)
        return result

    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(nearfar, "tune", search)
    flags = "--data pairs.tsv --model tiny --batch-size=8 --start_weight 0 --output tuned --budget 10 --resume".split()
    assert main(["tune", *flags]) == 0
    assert (given["budget"], given["resume"]) == (10, True)
    assert (given["config"].batch_size, given["config"].distinct_texts) == (8, True), "the recipe's other settings"
    searched = candidates(given["config"], given["fixed"], 66)[0]
    assert list(searched) == ["learning_rate", "epochs"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "few pairs (columns anchor, positive): training by info-nce, the recommended method" in shown
    assert "MRR@10 x 100 on the held-out dev rows" in shown
    assert f"2 settings, {len(result.tries)} tries: the winner's score on the dev rows is too high" in shown
    assert "MRR@10 x 100 on 12 held-out test rows" in shown
    assert f"in {folder / 'tuned' / 'best' / 'model'}" in shown
    assert ("first - second [95%]" in shown) == (result.winner > 0)


def test_ctrl_c_says_how_to_go_on(
    trained: list[float],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr(tuning, "_test", stop)
    monkeypatch.chdir(folder)
    words = ["tune", "info-nce", *"--data pairs.tsv --model tiny --hold-out 24 --budget 1e5".split()]
    assert main([*words, "--output", str(tmp_path / "tuned")]) == 130
    shown = " ".join(capsys.readouterr().out.split())
    assert "held out: 12 anchors that choose the best step (dev), and 12 that test the result" in shown
    assert "quarter run, learning rate 2e-05, epochs 1, start weight 0, batch size 64: -0.00 on the dev rows" in shown
    assert "whole run, learning rate 1e-05, epochs 2, start weight 0.3, batch size 32: " in shown
    assert f"; the tries are saved. Resume with: {' '.join(['nearfar', *words])}" in shown
    assert trained


def test_the_budget_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "info-nce", "--output", "x"]) == 2
    assert "nearfar tune info-nce: lacks --budget" in " ".join(capsys.readouterr().err.split())
    assert main(["tune", "--help"]) == 0
    assert "usage: nearfar tune --data FILE --budget MINUTES" in capsys.readouterr().out
