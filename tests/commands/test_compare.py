"""Comparisons of all kinds of sides: functions, result files, folders of result files, lists."""

import json
import shutil

import numpy as np
import pytest

from nearfar.cli import main
from nearfar.commands.compare import compare
from nearfar.commands.evaluate import evaluate
from nearfar.commands.train import train
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.runs.held_out import load_held_out
from nearfar.types import NearfarError
from tests.tiny import save_tiny, write_anchors, write_pairs


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
    how = {"tasks": [pairs], "resamples": 0, "name": folder.name, "progress": False}
    for seed in seeds:
        evaluate(encoder(noise, seed), training_seed=seed, output=folder / f"{seed}.json", **how)
    return folder


@pytest.mark.long
def test_files_models_and_contents_give_the_same_comparison(pairs, tmp_path):
    good = write_results(tmp_path / "good", pairs, 10, [0]) / "0.json"
    bad = write_results(tmp_path / "bad", pairs, 40, [0]) / "0.json"
    settings = {"resamples": 200, "progress": False}
    by_file = compare(good, str(bad), **settings)
    by_content = compare(EvaluationResult.load(good), EvaluationResult.load(bad), **settings)
    by_model = compare(good, encoder(40), **settings)  # evaluated on the file's tasks
    both_models = compare(encoder(10), encoder(40), tasks=[pairs], **settings)
    for other in (by_content, by_model, both_models):
        assert other.tasks == by_file.tasks
    row = by_file.tasks[pairs]
    assert row.verdict == "better"
    assert row.difference > 0
    assert by_file.first.sources == [str(good)]
    assert by_file.second.name == "bad"


@pytest.mark.long
def test_folders_and_lists_are_runs_of_one_side(pairs, tmp_path):
    good = write_results(tmp_path / "good", pairs, 10, [0, 1, 2])
    bad = write_results(tmp_path / "bad", pairs, 40, [0, 1, 2])
    by_folder = compare(good, bad, resamples=100, progress=False)
    assert by_folder.first.training_seeds == [0, 1, 2]
    by_list = compare(
        sorted(good.glob("*.json")), [str(bad / f"{n}.json") for n in range(3)], resamples=100, progress=False
    )
    assert len(by_list.first.models) == 3
    assert by_list.tasks == by_folder.tasks


def test_a_comparison_is_written_with_its_table(pairs, tmp_path):
    found = compare(encoder(10), encoder(40), tasks=pairs, resamples=50, output=tmp_path / "c.json", progress=False)
    assert json.loads((tmp_path / "c.json").read_text()) == found.to_dict()
    assert ComparisonResult.load(tmp_path / "c.json") == found
    assert "| first | second | first - second [95%] | verdict |" in (tmp_path / "c.md").read_text()
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
    (tmp_path / "a.run").write_text("q1 Q0 d1 1 0.9 a\n")
    with pytest.raises(NearfarError, match=r"a\.run: is a file, but a side is .* Run files of TREC need .* --qrels"):
        compare(tmp_path / "a.run", good, progress=False)
    with pytest.raises(NearfarError, match=r"empty: is neither a model .* nor a folder of result files"):
        compare(good, tmp_path / "empty", progress=False)
    with pytest.raises(NearfarError, match="empty list"):
        compare(good, [], progress=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that holds out rows of pairs, its start beside it."""
    folder = tmp_path_factory.mktemp("run")
    save_tiny(folder / "tiny")
    write_anchors(folder / "pairs.tsv", 200)
    settings = {"batch_size": 10, "max_steps": 2, "evaluate_every": 2, "keep": "last", "hold_out": 40}
    train("info-nce", data=folder / "pairs.tsv", model=folder / "tiny", output=folder / "run", **settings)
    return folder / "run"


@pytest.mark.long
def test_what_training_evaluated_is_not_evaluated_again(run, tmp_path, monkeypatch):
    start = run.parent / "tiny"
    before_after = ComparisonResult.load(run / "held_out" / "before-after.json")
    with monkeypatch.context() as patch:
        patch.setattr("nearfar.commands.compare.evaluate", None)  # is not called
        stored = compare(run, start, held_out=True, progress=False)
        assert compare(start, run / "model", progress=False).tasks["held-out"].first == stored.tasks["held-out"].second
    assert stored.tasks == before_after.tasks
    assert before_after.queries is not None
    assert compare(run, start, examples=True, progress=False).queries == before_after.queries
    assert [side.name for side in stored.sides] == [str(run), str(start)]
    computed = compare(evaluate(run, held_out=True), evaluate(start, held_out_of=run), progress=False)
    assert computed.tasks == stored.tasks
    shutil.copytree(run, tmp_path / "run")
    changed = tmp_path / "changed"
    save_tiny(changed, seed=1)
    shutil.copytree(changed, tmp_path / "run" / "model", dirs_exist_ok=True)  # other weights under the same name
    again = compare(tmp_path / "run", start, held_out=True, resamples=100, progress=False)
    assert again.tasks["held-out"].first == evaluate(changed, held_out_of=run).retrieval["held-out"].compared.score


@pytest.mark.long
def test_examples_are_queries_of_the_rows_with_their_hits(run, tmp_path, capsys):
    other = save_tiny(tmp_path / "other", seed=1)
    flags = ["--held-out", "--examples", "--output", str(tmp_path / "c.json")]
    assert main(["compare", str(run), str(other), *flags]) == 0
    printed = capsys.readouterr().out
    found = ComparisonResult.load(tmp_path / "c.json").queries
    task = load_held_out(run).retrieval("test")
    assert found.higher + found.lower + found.same == len(task.queries)
    assert f"right hit ranks higher for {found.higher} of {len(task.queries)} test queries" in " ".join(printed.split())
    values = [
        evaluate(model, held_out_of=run, progress=False).retrieval["held-out"].per_query["mrr@10"]
        for model in (run, other)
    ]
    changes = [round(after - before, 6) for after, before in zip(*values, strict=True)]
    assert found.higher == sum(change > 0 for change in changes) > 0
    shown = max(found.examples, key=lambda example: example.change)
    place = task.queries.index(shown.query)
    assert changes[place] == max(changes)
    assert shown.right == [task.documents[document] for document in task.relevant[place]]
    assert shown.first.rank == round(1 / values[0][place])
    assert [hit.text in shown.right for hit in shown.first.hits] == [hit.right for hit in shown.first.hits]
    page = (tmp_path / "c.md").read_text()
    for text in (shown.query, shown.right[0]):
        assert text in printed
        assert text in page


@pytest.mark.long
def test_examples_need_two_models_and_held_out_queries(run, tmp_path):
    start = run.parent / "tiny"
    result = evaluate(start, held_out_of=run, resamples=0, progress=False)
    scored = write_pairs(tmp_path / "scored.tsv", 80)
    settings = {"data": scored, "model": start, "output": tmp_path / "scored", "max_steps": 1, "hold_out": 0.2}
    train("regression", **settings)
    for sides in ((run, result), (run, start, start), (start, start), (tmp_path / "scored", start)):
        with pytest.raises(NearfarError, match="--examples: shows held-out queries of two models"):
            compare(*sides, examples=True, progress=False)
