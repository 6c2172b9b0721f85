"""Training with rows alone: held-out rows choose the step, test the result, and are used again later."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nearfar
from nearfar.cli import main
from nearfar.commands.compare import compare
from nearfar.commands.evaluate import evaluate
from nearfar.commands.train import train
from nearfar.commands.train.choose import resolve_config
from nearfar.commands.train.dev import finds
from nearfar.commands.train.inputs import load_inputs, resolve_sets
from nearfar.commands.train.plan import plan
from nearfar.commands.train.run import EncoderRun
from nearfar.data.fingerprints import text_hashes
from nearfar.disk.model_folder import read_seen
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.results import ComparisonResult, EvaluationResult
from nearfar.evaluation.statistics import correlation_spread, smallest_difference
from nearfar.runs.held_out import before_after, load_held_out
from nearfar.training import Evaluation
from nearfar.types import NearfarError
from tests.interrupted_runs import lines_of
from tests.tiny import WORDS, save_tiny, write_nli, write_pairs

pytestmark = pytest.mark.long
SHORT: dict[str, Any] = {"batch_size": 10, "max_steps": 4, "evaluate_every": 2, "checkpoint_every": 1}
SETTINGS: dict[str, Any] = {**SHORT, "hold_out": 0.2}
KINDS = {
    "pairs.tsv": ("info-nce", "mrr@10"),
    "triplets.tsv": ("info-nce", "mrr@10"),
    "nli.tsv": ("nli-order", "mrr@10"),
    "labelled.tsv": ("supcon-text", "accuracy"),
    "scored.tsv": ("regression", "spearman"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder and files of each kind."""
    folder = tmp_path_factory.mktemp("rows")
    save_tiny(folder / "tiny")
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=6)) + f" {number}" for number in range(240)]
    rows = [(texts[n], f"{texts[n]} {texts[n + 80].split()[0]}", texts[n + 160]) for n in range(80)]
    lines = {
        "pairs.tsv": ["question\tanswer", *("\t".join(row[:2]) for row in rows)],
        "triplets.tsv": ["anchor\tpositive\tnegative", *("\t".join(row) for row in rows)],
        "labelled.tsv": ["text\tlabel", *(f"{text} {n}\t{draw.choice('ab')}" for n, text in enumerate(texts))],
    }
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n")
    (folder / "sentences.txt").write_text("\n".join(texts) + "\n")
    write_nli(folder / "nli.tsv", 80)
    write_pairs(folder / "scored.tsv", 80)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A finished run on pairs."""
    train(**on_pairs(folder, output=folder / "run"))
    return folder / "run"


def on_pairs(folder: Path, **settings: Any) -> dict[str, Any]:
    """Arguments of a run on pairs by one objective."""
    columns = {"anchor_column": "question", "positive_column": "answer"}
    rows = {"method": "info-nce", "data": folder / "pairs.tsv", "model": folder / "tiny", **columns}
    return {**rows, **SETTINGS, **settings}


@pytest.mark.parametrize(
    "name", [name if name == "triplets.tsv" else pytest.param(name, marks=pytest.mark.nightly) for name in KINDS]
)
def test_each_kind_of_rows(name: str, folder: Path, tmp_path: Path) -> None:
    method, metric = KINDS[name]
    model = str(folder / "tiny")
    trained = nearfar.train(data=folder / name, model=model, output=tmp_path / "run", **SETTINGS)
    run = tmp_path / "run"
    info = json.loads((run / "run.json").read_text())
    assert f'method = "{method}"' in (run / "config.toml").read_text()
    assert (trained.metric, trained.dev) == (info["metric"], info["dev"]) == (metric, "the held-out dev rows")
    scores = [line[metric] for line in lines_of(run) if "best" in line]
    assert len(scores) == 3
    assert trained.best_score == max(scores)

    compared = trained.comparison
    assert compared == ComparisonResult.load(run / "held_out" / "before-after.json")
    held_out = load_held_out(run)
    assert compared.tasks["held-out"].pairs == held_out.anchors("test") > 0
    after, before = evaluate(run, held_out=True, progress=False), evaluate(model, held_out_of=run, progress=False)
    assert compared.tasks["held-out"].first == pytest.approx(score_of(after), abs=1e-4)
    assert compared.tasks["held-out"].second == pytest.approx(score_of(before), abs=1e-4)
    again = compare(run, model, progress=False)
    assert again.tasks["held-out"] == compared.tasks["held-out"]

    seen, texts = read_seen(run), held_out.texts
    assert seen is not None
    assert not np.isin(text_hashes(texts), seen.trained_texts).any()
    assert 0 < np.isin(text_hashes(texts), seen.chosen_texts).sum() < len(texts), "the rest are test rows"


def score_of(result: EvaluationResult) -> float:
    scored: Any = result.all_tasks["held-out"]
    found = {"similarity": lambda: scored.spearman.all, "classification": lambda: scored.accuracy}
    score: float = found.get(scored.kind, lambda: scored.compared)().score
    return score


def test_the_progress_and_the_table_say_what_was_measured(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    flags = "--batch-size 10 --max-steps 2 --evaluate-every 1 --model tiny --hold-out 16".split()
    assert main(["train", "--data", "pairs.tsv", "--output", str(tmp_path / "run"), *flags]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "pairs (columns question, answer): training by info-nce" in shown
    assert "held out: 8 anchors that choose the best step (dev), and 8 that test the result" in shown
    assert "step 0: MRR@10 100.00" in shown  # so that the start's scores have no spread
    finds = 100 * smallest_difference(8, 0.9, bound=1)
    assert f"the 8 test anchors find a difference of {finds:.1f} points or more in 8 of 10 cases, if" in shown
    assert f"nearfar compare {tmp_path / 'run'} tiny --held-out" in shown


@pytest.mark.parametrize("name", ["nli.tsv", "labelled.tsv", "scored.tsv"])
def test_what_is_found_follows_from_the_scores_of_the_start(name: str, folder: Path, tmp_path: Path) -> None:
    given = {"data": folder / name, "model": str(folder / "tiny"), "output": tmp_path / "run", "hold_out": 32}
    _, dev = load_inputs(resolve_sets(resolve_config(None, given)))
    measured = dev.measure(Encoder.from_pretrained(str(folder / "tiny")), "fp32")
    held_out = dev.held_out
    assert measured.score is not None
    assert measured.spread is not None
    assert held_out is not None
    largest = (measured.score * (1 - measured.score)) ** 0.5
    if name == "nli.tsv":
        assert 0 < measured.spread < largest
    else:
        expected = largest if name == "labelled.tsv" else correlation_spread(measured.score)
        assert measured.spread == pytest.approx(expected)
    correlation = 0.5 if name == "labelled.tsv" else 0.9
    bound = 0 if name == "scored.tsv" else 1
    points = 100 * smallest_difference(held_out.anchors("test"), correlation, measured.spread, bound=bound)
    assert f" find a difference of {points:.1f} points or more in 8 of 10 cases; --hold-out" in finds(
        held_out, measured.spread
    )


def test_sentences_have_no_score(folder: Path, tmp_path: Path) -> None:
    settings = {"data": folder / "sentences.txt", "model": folder / "tiny", "projection": 24}
    trained = nearfar.train(output=tmp_path / "run", batch_size=10, max_steps=4, evaluate_every=2, **settings)
    assert (trained.start_score, trained.best_score, trained.best_step, trained.comparison) == (None,) * 4
    assert not (tmp_path / "run" / "held_out").exists()
    evaluated = [line for line in lines_of(tmp_path / "run") if "metric" in line]
    assert [line["step"] for line in evaluated] == [0, 2, 4]
    assert all(line["metric"] is None and "uniformity" in line for line in evaluated)


def test_the_last_weights_are_kept_without_a_dev_set(folder: Path, tmp_path: Path) -> None:
    trained = train(**on_pairs(folder, hold_out=0, output=tmp_path / "a"))
    train(**on_pairs(folder, hold_out=0, output=tmp_path / "b", keep="last"))
    assert (trained.start_score, trained.best_score, trained.best_step, trained.comparison) == (None, None, None, None)
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in "ab")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_start_that_no_step_beats_is_kept_as_it_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own pooling, although another was trained."""
    evaluate_step = EncoderRun.evaluate

    def falling(run: EncoderRun) -> Evaluation:
        return evaluate_step(run)._replace(score=-float(run.progress.step))

    monkeypatch.setattr(EncoderRun, "evaluate", falling)
    trained = train(**on_pairs(folder, output=tmp_path / "run", pooling="cls", learning_rate=1e-2))
    start, kept = (Encoder.from_pretrained(model) for model in (folder / "tiny", tmp_path / "run" / "model"))
    assert kept.pooling == "mean"
    assert np.array_equal(start.encode(WORDS), kept.encode(WORDS))
    assert trained.comparison is not None
    assert trained.comparison.tasks["held-out"].difference == 0


def test_changed_rows_are_found_on_resume_and_a_lost_table_is_made_again(run: Path, folder: Path) -> None:
    file = run / "held_out" / "before-after.json"
    before = ComparisonResult.load(file)
    given = on_pairs(folder, output=run)
    file.with_suffix(".md").unlink()  # a run that was killed between the two
    again = train(resume=True, **given)
    assert again.comparison is not None
    assert again.comparison.tasks == before.tasks
    assert file.with_suffix(".md").is_file()
    with pytest.raises(NearfarError, match="--hold-out"):
        train(resume=True, **{**given, "hold_out": 20})


def given(folder: Path, tmp_path: Path, **settings: Any) -> dict[str, Any]:
    data = {"data": (str(folder / "triplets.tsv"),), "model": str(folder / "tiny"), "output": str(tmp_path / "run")}
    return {**data, **SETTINGS, **settings}


def test_a_further_set_does_not_train_on_held_out_texts(folder: Path, tmp_path: Path) -> None:
    further = {"method": "simcse-unsup", "data": str(folder / "sentences.txt")}
    train(**on_pairs(folder, output=tmp_path / "run", sets=[further]))
    held = set(load_held_out(tmp_path / "run").texts) & set((folder / "sentences.txt").read_text().splitlines())
    assert len(held) == 16
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    assert "set 2, simcse-unsup: 224 rows" in facts


def test_a_second_training_from_a_trained_model(run: Path, folder: Path, tmp_path: Path) -> None:
    """Other rows of the same file, as those to which mining found negatives: what the start has seen is no test."""
    lines = (folder / "triplets.tsv").read_text().splitlines()
    (tmp_path / "some.tsv").write_text("\n".join(line for n, line in enumerate(lines) if n % 6 != 1) + "\n")
    settings = {"model": run, "output": tmp_path / "second", "data": tmp_path / "some.tsv"}
    planned = plan(resolve_config("info-nce", {**SETTINGS, **settings}))
    trained = train("info-nce", **SETTINGS, **settings)
    assert any("none of them tests" in fact for fact in planned.facts)
    first, second = (load_held_out(folder).text_rows("test") for folder in (run, tmp_path / "second"))
    assert {row[:2] for row in second} < {row[:2] for row in first}
    assert trained.comparison is not None
    assert [side.seen["held-out"].pairs for side in trained.comparison.sides] == [0, 0]
    again = compare(tmp_path / "second", run / "model", progress=False)  # as the last lines of training advise
    assert again.tasks["held-out"] == trained.comparison.tasks["held-out"]


def test_the_share_that_the_start_has_seen_is_told_wherever_the_scores_are(folder: Path, tmp_path: Path) -> None:
    everything = train(**on_pairs(folder, output=tmp_path / "everything", hold_out=0)).model
    trained = train(**on_pairs(folder, output=tmp_path / "run", model=everything))
    assert trained.comparison is not None
    note = before_after(trained.comparison).notes[0]
    assert "before 100% (100%), after 100% (100%)" in note
    scored = evaluate(tmp_path / "run", held_out=True, resamples=0, progress=False).retrieval["held-out"]
    assert scored.seen == trained.comparison.sides[0].seen["held-out"]


def test_a_dev_set_that_chose_the_step_is_no_test_set(folder: Path, tmp_path: Path) -> None:
    scored = str(folder / "scored.tsv")
    settings = {"data": folder / "triplets.tsv", "evaluate_on": scored, "hold_out": None, "max_steps": 1}

    train("info-nce", **given(folder, tmp_path, **settings))
    result = evaluate(tmp_path / "run", pairs=[scored], resamples=0, progress=False)  # warnings are errors in tests
    assert result.tasks[scored].seen is not None
    assert result.tasks[scored].seen.dev  # a note in each table


def test_held_out_rows_are_evaluated_with_the_prompts_of_training(folder: Path, tmp_path: Path) -> None:
    prompts = {"query_prompt": "the dog: ", "document_prompt": "a house: "}
    trained = train(**on_pairs(folder, output=tmp_path / "run", **prompts))
    run = tmp_path / "run"
    own = evaluate(run, held_out=True, resamples=0, progress=False)
    assert {name: own.config[name] for name in prompts} == prompts
    task = load_held_out(run).retrieval("test")
    encoder = nearfar.Encoder.from_pretrained(run / "model")
    queries = encoder.encode([f"the dog: {text}" for text in task.queries], prompt="", normalize=True)
    documents = encoder.encode([f"a house: {text}" for text in task.documents], prompt="", normalize=True)
    cosines = queries @ documents.T
    ranks = []
    for query, relevant in enumerate(task.relevant):
        cosines[query, [task.excluded[query]] if query in task.excluded else []] = -2
        ranks.append(min(1 + int((cosines[query] > cosines[query, place]).sum()) for place in relevant))
    expected = np.mean([1 / rank if rank <= 10 else 0 for rank in ranks])
    assert own.retrieval["held-out"].measures["mrr@10"].score == pytest.approx(100 * expected, abs=1e-3)
    assert trained.comparison is not None
    after = trained.comparison.tasks["held-out"]
    assert after.first == own.retrieval["held-out"].measures["mrr@10"].score
