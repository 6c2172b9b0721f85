"""Comparisons of all kinds of sides: functions, result files, folders of result files, lists."""

import json

import numpy as np
import pytest

from nearfar.commands.compare import compare
from nearfar.commands.evaluate.command import evaluate
from nearfar.evaluation.results import ComparisonResult
from nearfar.types import NearfarError


@pytest.fixture
def pairs(tmp_path):
    gold = np.random.default_rng(0).integers(0, 11, 120) / 2
    lines = [f"{score}\tleft {n}\tright {n} {score}" for n, score in enumerate(gold)]
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(["score\tsentence1\tsentence2", *lines]) + "\n", encoding="utf-8")
    return str(file)


def encoder(noise, seed=0):
    def encode(texts):
        rng = np.random.default_rng(seed)
        angle = [0.0 if text.startswith("left") else 80 - 15 * float(text.split()[2]) for text in texts]
        angle = np.radians(angle + noise * rng.normal(size=len(texts)))
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    return encode


def write_results(folder, pairs, noise, seeds):
    for seed in seeds:
        evaluate(
            encoder(noise, seed),
            tasks=[pairs],
            resamples=0,
            training_seed=seed,
            name=folder.name,
            output=folder / f"{seed}.json",
            progress=False,
        )
    return folder


@pytest.mark.long
def test_files_models_and_contents_give_the_same_comparison(pairs, tmp_path):
    good = write_results(tmp_path / "good", pairs, 10, [0]) / "0.json"
    bad = write_results(tmp_path / "bad", pairs, 40, [0]) / "0.json"
    settings = {"resamples": 200, "progress": False}
    by_file = compare(good, str(bad), **settings)
    by_content = compare(json.loads(good.read_text()), json.loads(bad.read_text()), **settings)
    by_model = compare(good, encoder(40), **settings)  # evaluated on the file's tasks
    both_models = compare(encoder(10), encoder(40), tasks=[pairs], **settings)
    for other in (by_content, by_model, both_models):
        assert other.tasks == by_file.tasks
    row = by_file.tasks[pairs]
    assert row.separable is True
    assert row.difference > 0
    assert by_file.first.sources == [str(good)]
    assert by_file.second.name == "bad"


@pytest.mark.long
def test_folders_and_lists_are_runs_of_one_side(pairs, tmp_path):
    good = write_results(tmp_path / "good", pairs, 10, [0, 1, 2])
    bad = write_results(tmp_path / "bad", pairs, 40, [0, 1, 2])
    by_folder = compare(good, bad, resamples=100, progress=False)
    assert by_folder.first.training_seeds == [0, 1, 2]
    assert by_folder.tasks[pairs].seeds.test == "paired t-test over seeds"
    by_list = compare(
        sorted(good.glob("*.json")), [str(bad / f"{n}.json") for n in range(3)], resamples=100, progress=False
    )
    assert len(by_list.first.models) == 3
    assert by_list.tasks == by_folder.tasks


def test_a_comparison_is_written_with_its_table(pairs, tmp_path):
    found = compare(encoder(10), encoder(40), tasks=pairs, resamples=50, output=tmp_path / "c.json", progress=False)
    assert json.loads((tmp_path / "c.json").read_text()) == found.to_dict()
    assert ComparisonResult.load(tmp_path / "c.json") == found
    assert "| first | second | first - second |" in (tmp_path / "c.md").read_text()
    with pytest.raises(NearfarError, match=r"c\.json: .* its kind is 'comparison'"):
        compare(tmp_path / "c.json", encoder(10), progress=False)


def test_sides_that_cannot_be_read_are_named(pairs, tmp_path):
    good = write_results(tmp_path / "good", pairs, 10, [0]) / "0.json"
    broken = tmp_path / "broken.json"
    broken.write_text(good.read_text()[:-100])
    with pytest.raises(NearfarError, match=r"broken\.json: is not a complete JSON file"):
        compare(good, broken, progress=False)
    with pytest.raises(NearfarError, match=r"absent\.json: cannot be read"):
        compare(tmp_path / "absent.json", good, progress=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NearfarError, match=r"empty: is neither a model .* nor a folder of result files"):
        compare(good, tmp_path / "empty", progress=False)
    with pytest.raises(NearfarError, match="empty list"):
        compare(good, [], progress=False)
