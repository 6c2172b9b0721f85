"""Groups: several seeds of one setting, trained, interrupted, resumed, evaluated and compared together."""

import io
import json
import re
from pathlib import Path
from statistics import mean, stdev

import pytest
from rich.console import Console

from nearfar.cli import main
from nearfar.commands.evaluate.command import evaluate_group
from nearfar.commands.train.command import train
from nearfar.commands.train.group import train_group
from nearfar.config import parse_seeds
from nearfar.evaluation.results import ScoreSummary
from nearfar.evaluation.tables.evaluation import spread_table
from nearfar.runs.group import runs_of
from nearfar.types import NearfarError
from tests.method_configs import config, write_data

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def group(folder: Path) -> Path:
    """A group of two runs."""
    train_group(settings(folder, folder / "group"), (1, 2))
    return folder / "group"


def settings(folder: Path, output: Path, **changes: object):
    return config("scl", folder, output=str(output), max_steps=3, learning_rate=1e-3, **changes)


def test_a_group_equals_its_single_runs(group: Path, folder: Path, tmp_path: Path) -> None:
    single = train(settings(folder, tmp_path / "alone", seed=2))
    record = json.loads((group / "group.json").read_text())
    assert record["seeds"] == [1, 2]
    assert record["best_scores"][1] == single.best_score
    assert record["best"]["mean"] == pytest.approx(mean(record["best_scores"]))
    assert record["best"]["sd"] == pytest.approx(stdev(record["best_scores"]))
    assert runs_of(group) == [group / "seed-1", group / "seed-2"]
    assert runs_of(tmp_path) is None


def test_resume_keeps_finished_runs_and_trains_the_others(folder: Path, tmp_path: Path) -> None:
    one = settings(folder, tmp_path / "group")
    train_group(one, (1,))
    before = (tmp_path / "group" / "seed-1" / "run.json").read_text()
    with pytest.raises(NearfarError, match=r"is in the way\. Continue it with --resume"):
        train_group(one, (1, 2))
    with pytest.raises(NearfarError, match=r"other settings \(--temperature\)"):
        train_group(settings(folder, tmp_path / "group", temperature=0.5), (1, 2), resume=True)
    group = train_group(one, (1, 2), resume=True)
    assert (tmp_path / "group" / "seed-1" / "run.json").read_text() == before
    assert list(group.runs) == [1, 2]
    assert group.best == ScoreSummary.from_values([run.best_score for run in group.runs.values()])
    with pytest.raises(NearfarError, match="there is no group to resume"):
        train_group(settings(folder, tmp_path / "other"), (1, 2), resume=True)
    with pytest.raises(NearfarError, match="holds a single run"):
        train_group(settings(folder, tmp_path / "group" / "seed-1"), (1, 2), resume=True)


def test_all_runs_of_a_group_are_evaluated_and_compared(group: Path, folder: Path, tmp_path: Path, capsys) -> None:
    pairs = str(folder / "dev.tsv")
    results = evaluate_group(group, tasks=pairs, resamples=0, output=tmp_path / "results", progress=False)
    assert sorted(path.name for path in (tmp_path / "results").glob("*.json")) == ["seed-1.json", "seed-2.json"]
    assert [result.config["training_seed"] for result in results] == [1, 2]
    scores = [result.tasks[pairs].spearman.all.score for result in results]
    shown = io.StringIO()
    Console(file=shown, width=200).print(spread_table(results))
    numbers = [f"{x:.2f}" for x in (mean(scores), stdev(scores), min(scores), max(scores))]
    assert re.search(
        r"\s+".join(map(re.escape, [pairs, *numbers])).replace("/", "/"), shown.getvalue().replace("│", " ")
    )
    with pytest.raises(NearfarError, match="name a folder for them"):
        evaluate_group(group, tasks=pairs, output=tmp_path / "x.json", progress=False)
    with pytest.raises(NearfarError, match="is not a finished group"):
        evaluate_group(tmp_path, tasks=pairs, progress=False)
    # by the command line, and as a side of a comparison: the difference to the folder of results is 0
    assert main(["evaluate", str(group), "--tasks", pairs, "--resamples", "0"]) == 0
    assert "standard deviation" in capsys.readouterr().out
    file = tmp_path / "difference.json"
    sides = [str(group), str(tmp_path / "results"), str(folder / "tiny")]
    assert main(["compare", *sides[:2], "--tasks", pairs, "--resamples", "50", "--output", str(file)]) == 0
    assert json.loads(file.read_text())["overall"]["difference"] == 0
    assert main(["compare", *sides, "--tasks", pairs, "--resamples", "50", "--output", str(file)]) == 0
    assert len(json.loads(file.read_text())["comparisons"]) == 3


def test_the_command(folder: Path, tmp_path: Path, capsys) -> None:
    flags = f"--model {folder / 'tiny'} --data {folder / 'nli.tsv'} --evaluate-on {folder / 'dev.tsv'}".split()
    flags += f"--batch-size 10 --max-steps 2 --output {tmp_path / 'group'} --seeds 3,4".split()
    assert main(["train", "scl", *flags]) == 0
    output = capsys.readouterr().out
    assert re.search(r"Best Spearman on .*: mean [-\d.]+, standard deviation [\d.]+, from [-\d.]+ to [-\d.]+", output)
    assert runs_of(tmp_path / "group") == [tmp_path / "group" / "seed-3", tmp_path / "group" / "seed-4"]
    assert main(["train", "scl", *flags[:-1], "3,3"]) == 2


@pytest.mark.parametrize("value", ["", "1,", "a", "1,1", "1.5", "-1", "01,1"])
def test_seeds_are_whole_numbers(value: str) -> None:
    with pytest.raises(NearfarError, match="--seeds"):
        parse_seeds(value)
    assert parse_seeds("3, 1,12") == (3, 1, 12)
