"""Shares of tasks that a model has seen, scores on the unseen pairs, and what tables say of both."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import spearmanr

from nearfar.data.fingerprints import row_hashes
from nearfar.data.labelled import Split, TransferTask
from nearfar.data.retrieval import RetrievalTask
from nearfar.disk.model_folder import SeenHashes
from nearfar.evaluation.comparison import EvaluationRun, compare_pairwise, compare_runs
from nearfar.evaluation.probe_settings import Probe
from nearfar.evaluation.report import seen_in_training
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import EvaluationResult, SeenShares, SimilarityScores, TransferResults
from nearfar.evaluation.retrieval import evaluate_retrieval
from nearfar.evaluation.seen import MIN_UNSEEN_PAIRS, add_seen, scored_rows, seen_shares
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.tables import result_markdown
from nearfar.evaluation.tables.evaluation import mean_seen
from nearfar.evaluation.transfer import evaluate_transfer
from nearfar.types import ScoredPair

RNG = np.random.default_rng(0)
PAIRS = {
    "one": [ScoredPair(f"left {n}", f"right {n}", float(RNG.integers(6))) for n in range(80)],
    "two": [ScoredPair(f"first {n}", f"second {n}", float(RNG.integers(6))) for n in range(40)],
}
ALL = [*PAIRS["one"], *PAIRS["two"]]


def encode(texts: list[str]) -> np.ndarray:
    """A random vector for each text, the same whenever it is encoded."""
    return np.stack([np.random.default_rng([*text.encode()]).normal(size=4) for text in texts])


def seen(trained: list[tuple[object, ...]], chosen: list[tuple[object, ...]] | None = None) -> SeenHashes:
    parts = (*row_hashes(trained), *row_hashes(chosen or []))
    return SeenHashes(*(np.unique(hashes) for hashes in parts))


TASKS = {"sts": PAIRS, "small": {"small": ALL[:60]}}


@cache
def scored_tasks() -> dict[str, SimilarityScores]:
    return evaluate_sts(encode, TASKS, resamples=100).tasks


def evaluated(hashes: SeenHashes | None, *, name: str = "m", training_seed: int | None = None) -> EvaluationResult:
    """A result with two tasks, ``sts`` of two subsets, and ``small``."""
    config = {"resamples": 100, "training_seed": training_seed}
    result = EvaluationResult(model=name, config=config, tasks=scored_tasks())
    return result if hashes is None else add_seen(result, hashes, similarity=TASKS)


def test_shares_of_pairs_and_texts() -> None:
    rows = row_hashes([("a", "b"), ("c", "d"), ("e", "f"), ("g", "a")])
    found = seen_shares(seen([("B!", "A"), ("c", "x")], [("e", "f"), ("b", "a")]), rows)
    assert found == SeenShares(
        pairs=0.5,  # a-b in the other order, e-f
        texts=round(5 / 7, 6),  # a b c, e f
        chosen_pairs=0.25,  # e-f; a-b was trained on, too
        chosen_texts=round(2 / 7, 6),
        dev=None,
    )


def test_rows_of_one_text_have_no_pairs() -> None:
    found = seen_shares(seen([("a",)], [("b",)]), row_hashes([("a",), ("b",), ("c",), ("A.",)]))
    assert found.to_dict() == {"texts": 0.75, "chosen_texts": 0.25}


def test_a_task_inside_the_dev_set_is_marked() -> None:
    rows = row_hashes(pair[:2] for pair in ALL)
    for chosen, trained, dev in ((ALL, [], True), (ALL[1:], [], None), ([], ALL, None), (ALL, ALL, True)):
        assert seen_shares(seen(trained, chosen), rows).dev is dev


def test_unseen_scores_equal_a_direct_computation() -> None:
    known = [pair[:2] for pair in (*PAIRS["one"][10:30], *PAIRS["two"][:15])]
    result = evaluated(seen(known[:20], known[20:]))
    unseen = [pair for pair in ALL if pair[:2] not in known]
    vectors = [(encode([pair.first])[0], encode([pair.second])[0]) for pair in unseen]
    cosines = [round(a @ b / np.sqrt(a @ a * (b @ b)), 6) for a, b in vectors]
    expected = 100 * spearmanr([pair.score for pair in unseen], cosines).statistic
    scored = result.tasks["sts"]
    assert scored.unseen is not None
    assert scored.unseen.pairs == len(unseen) == 85
    assert scored.unseen.spearman.score == pytest.approx(expected, abs=1e-4)
    assert scored.unseen.spearman.score != pytest.approx(scored.spearman.all.score, abs=0.1)
    assert scored.unseen.spearman.low < scored.unseen.spearman.score < scored.unseen.spearman.high
    assert scored.seen.pairs == pytest.approx(35 / 120, abs=1e-6)
    assert scored.seen.chosen_pairs == pytest.approx(15 / 120, abs=1e-6)


@pytest.mark.parametrize(("left", "defined"), [(MIN_UNSEEN_PAIRS, True), (MIN_UNSEEN_PAIRS - 1, False), (1, False)])
def test_too_few_unseen_pairs_have_no_score(left: int, defined: bool) -> None:
    found = evaluated(seen([pair[:2] for pair in ALL[: 60 - left]])).tasks["small"].unseen
    assert found is not None
    assert (found.pairs, found.spearman.score is not None) == (left, defined)
    if not defined:
        assert found.spearman.reason == f"{left} unseen pair{'s' * (left > 1)}, where a score needs 50"


def test_without_a_seen_pair_there_is_no_score_beside_the_whole() -> None:
    result = evaluated(seen([("left 1", "right 2")]))
    assert result.tasks["sts"].seen == SeenShares(pairs=0.0, texts=round(2 / 240, 6), chosen_pairs=0, chosen_texts=0)
    assert "unseen" not in result.to_dict()["tasks"]["sts"]


def test_transfer_tasks_count_the_tested_rows() -> None:
    rows, labels = [(f"row {n}",) for n in range(40)], [0, 1] * 20
    splits = {
        "split": {"train": Split(rows[:20], labels[:20]), "test": Split(rows[20:], labels[20:])},
        "pool": {"all": Split(rows, labels)},
    }
    tasks = {name: TransferTask(name=name, splits=of, label_names=("a", "b")) for name, of in splits.items()}
    probed = evaluate_transfer(encode, tasks, probe=Probe(protocol="exact", folds=2), resamples=0)
    transfer = TransferResults(protocol="exact", averages={}, tasks=probed.tasks)
    result = EvaluationResult(model="m", config={}, tasks={}, transfer=transfer)
    tested = {name: scored_rows(task) for name, task in tasks.items()}
    found = add_seen(result, seen([(f"Row {n}",) for n in range(30)]), tested=tested)
    assert {name: one.seen.texts for name, one in found.transfer.tasks.items()} == {"split": 0.5, "pool": 0.75}
    assert "| split |  | 50% |" in result_markdown(found)


def test_retrieval_tasks_count_queries_and_their_relevant_documents() -> None:
    task = RetrievalTask(["q1", "q2"], ["a", "b", "c", "d"], [{0: 1, 1: 2}, {2: 1}], ["0", "1"], list("0123"))
    scored = evaluate_retrieval(encode, encode, {"own": task}, resamples=0)
    result = EvaluationResult(model="m", config={}, tasks={}, retrieval=scored.tasks)
    found = add_seen(result, seen([("q1", "b"), ("q1", "d")]), retrieval={"own": task}).retrieval["own"].seen
    assert found is not None
    assert found.pairs == pytest.approx(1 / 3, abs=1e-6), "q1-d is no relevant pair"
    assert found.texts == 0.4, "d is relevant to no query"


def compared(*sides: EvaluationResult | list[EvaluationResult]) -> list[list[EvaluationRun]]:
    runs = [side if isinstance(side, list) else [side] for side in sides]
    return [[EvaluationRun(run.model, run) for run in side] for side in runs]


UNEQUAL = (
    "The sides have seen unequal shares of the tested pairs (in brackets: of the texts) in training, which favours "
    "the side that has seen more: "
)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (seen(ALL[:6]), "sts first 40% (40%), second 5.0% (5.0%); small first 80% (80%), second 10% (10%)."),
        (seen([]), "sts first 40% (40%), second 0% (0%); small first 80% (80%), second 0% (0%)."),
        (None, "sts first 40% (40%), second not recorded; small first 80% (80%), second not recorded."),
        (seen(ALL[:48]), None),
        (seen([], ALL[:48]), None),
    ],
)
def test_a_comparison_of_unequal_shares_says_so(second: SeenHashes | None, words: str | None) -> None:
    found = compare_runs(*compared(evaluated(seen(ALL[:48])), evaluated(second)), resamples=50)
    text = result_markdown(found)
    assert (UNEQUAL in text) is (words is not None)
    equal = "The sides have seen equal shares of the tested pairs (in brackets: of the texts) in training: "
    assert (f"{equal}sts 40% (40%); small 80% (80%)." in text) is (words is None)
    if words:
        assert UNEQUAL + words in text
    assert (found.second.seen is None) is (second is None)
    assert found.first.seen["sts"].pairs == 0.4
    assert type(found).from_dict(found.to_dict()) == found


def test_several_sides_and_their_dev_sets() -> None:
    sides = compared(evaluated(seen([], ALL[:60]), name="a"), evaluated(seen([]), name="b"), evaluated(None, name="c"))
    text = result_markdown(compare_pairwise(sides, resamples=50))
    assert UNEQUAL + "sts a 50% (50%), b 0% (0%), c not recorded; small a 100% (100%), b 0% (0%), c not" in text
    assert "small is in the dev set that chose the training step of a: its score is a dev score" in text


def test_seeds_of_one_method() -> None:
    runs = [evaluated(seen(ALL[: 12 * number]), training_seed=number) for number in (1, 2)]
    mean = mean_seen([run.tasks["sts"].seen for run in runs])
    assert mean == SeenShares(pairs=0.15, texts=0.15, chosen_pairs=0.0, chosen_texts=0.0)
    assert mean_seen([runs[0].tasks["sts"].seen, None]) is None
    found = compare_runs(*compared(runs, [replace(run, model="n") for run in runs]), resamples=50)
    assert found.first.seen["sts"] == mean


def test_a_report_says_what_was_seen() -> None:
    known, unknown = evaluated(seen(ALL[:12]), name="a"), evaluated(None, name="b")
    sides = [EvaluatedModel(run.model, (EvaluationRun(run.model, run),)) for run in (known, unknown)]
    assert seen_in_training(sides)[0][1:] == [
        "a: share of the pairs (in brackets: of the texts): sts 10% (10%), small 20% (20%).",
        "b: its training left no record.",
    ]
    assert seen_in_training(sides[1:]) == []
