"""A small file is trained on as a whole, and each of its rows is tested by a model that was not trained on it."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nearfar
from nearfar.commands.compare import compare
from nearfar.commands.evaluate import evaluate
from nearfar.commands.train import after
from nearfar.commands.train.guard import SHARES, Guard
from nearfar.data import hold_out
from nearfar.data.fingerprints import text_hashes
from nearfar.data.hold_out import HeldOut
from nearfar.data.rows import TextData
from nearfar.disk.model_folder import read_seen
from nearfar.encoder.encoder import Encoder
from nearfar.evaluation.results import EvaluationResult
from nearfar.runs.held_out import before_after, load_held_out
from nearfar.types import NearfarError
from tests.tiny import WORDS, save_tiny, write_nli, write_pairs

pytestmark = pytest.mark.long
SETTINGS: dict[str, Any] = {"batch_size": 64, "max_steps": 1, "warmup": 0.0, "learning_rate": 1e-2, "start_weight": 0.0}
COUNT, FOLDS = 30, 3


@pytest.fixture(scope="module", autouse=True)
def three_folds() -> Iterator[None]:
    """In place of five."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hold_out, "FOLDS", FOLDS)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder; pairs of which the last anchor has two positives; scored pairs; NLI rows."""
    folder = tmp_path_factory.mktemp("folds")
    save_tiny(folder / "tiny")
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=4)) + f" {number}" for number in range(2 * COUNT)]
    rows = [f"{texts[n]}\t{texts[COUNT + n]}" for n in range(COUNT - 1)] + [f"{texts[COUNT - 2]}\t{texts[-1]}"]
    (folder / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    write_nli(folder / "nli.tsv", 20)
    write_pairs(folder / "scored.tsv", COUNT)
    return folder


def settings(folder: Path, run: Path, name: str = "pairs.tsv", **more: Any) -> dict[str, Any]:
    return {"data": str(folder / name), "model": str(folder / "tiny"), "output": str(run), **SETTINGS, **more}


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A finished run on the pairs, whose folds' models are in ``models``."""
    test_fold = after._test_fold

    def kept(config: Any, *arguments: Any) -> EvaluationResult:
        encoder = Encoder.from_pretrained(config.output)
        encoder.save_pretrained(folder / "models" / Path(config.output).name)
        return test_fold(config, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(after, "_test_fold", kept)
        nearfar.train("info-nce", **settings(folder, folder / "run"))
    return folder / "run"


def test_each_row_is_ranked_by_a_model_that_was_not_trained_on_it(run: Path, folder: Path) -> None:
    held_out = load_held_out(run)
    assert sorted(held_out.rows) == sorted(
        tuple(row.split("\t")) for row in (folder / "pairs.tsv").read_text().splitlines()[1:]
    )
    task, ranks = held_out.retrieval("test"), {}
    assert (len(task.queries), len(task.documents), len(set(held_out.folds))) == (COUNT - 1, COUNT, FOLDS)
    for fold in range(1, FOLDS + 1):
        model, texts = folder / "models" / str(fold), held_out.texts_of(fold)
        seen = read_seen(model)
        assert seen is not None
        trained = np.isin(
            text_hashes(list(dict.fromkeys(text for row in held_out.rows for text in row))), seen.trained_texts
        )
        assert trained.sum() == 2 * COUNT - 1 - len(set(texts))
        assert not np.isin(text_hashes(texts), seen.trained_texts).any()
        encoder = Encoder.from_pretrained(model)
        cosines = encoder.encode(task.queries, normalize=True) @ encoder.encode(task.documents, normalize=True).T
        for number, query in enumerate(task.queries):
            if query in texts:
                best = max(cosines[number][document] for document in task.relevant[number])
                ranks[query] = 1 + int((cosines[number] > best).sum())
    expected = [1 / rank if rank <= 10 else 0 for rank in (ranks[query] for query in task.queries)]
    stored = EvaluationResult.load(run / "held_out" / "after.json").retrieval["held-out"]
    assert stored.per_query["mrr@10"] == pytest.approx(expected, abs=1e-6)
    assert stored.measures["mrr@10"].score == pytest.approx(100 * np.mean(expected), abs=1e-3)
    start = evaluate(str(folder / "tiny"), held_out_of=run, resamples=0, progress=False)
    assert stored.digest == start.retrieval["held-out"].digest
    assert read_seen(run) is not None
    assert np.isin(text_hashes(held_out.texts), read_seen(run).trained_texts).all()


def test_what_is_shown(run: Path, folder: Path) -> None:
    assert not list(run.glob("fold*"))
    names = {"held_out.json", "before-after.json", "after.json", "before.json"}
    assert {file.name for file in (run / "held_out").glob("*.json")} == names
    compared = compare(run, folder / "tiny", held_out=True, progress=False)
    assert compared.tasks["held-out"].pairs == COUNT - 1
    assert compared.sides[0].folds == FOLDS
    table = before_after(compared)
    assert table.title == f"MRR@10 x 100 on {COUNT - 1} rows, tested in {FOLDS} folds"
    note = "Each row is tested by one of 3 models that were trained with the same settings without its fold"
    assert table.notes[0].startswith(note)
    assert note in " ".join((run / "model" / "README.md").read_text().split())
    with pytest.raises(NearfarError, match="its model is trained on all rows, which are tested in folds"):
        evaluate(run, held_out=True, progress=False)


def test_a_run_that_was_stopped_in_a_fold_continues_there(
    run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is whole, fold 1 is done, and fold 2 is stopped before its test."""
    given = settings(folder, tmp_path / "run", checkpoint_every=1)
    trained: list[str] = []
    test_fold = after._test_fold

    def counted(config: Any, *arguments: Any) -> EvaluationResult:
        trained.append(Path(config.output).name)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return test_fold(config, *arguments)

    monkeypatch.setattr(after, "_test_fold", counted)
    with pytest.raises(KeyboardInterrupt):
        nearfar.train("info-nce", **given)
    assert (tmp_path / "run" / "held_out" / "fold-1.json").is_file()
    again = nearfar.train("info-nce", **given, resume=True)
    assert trained == ["1", "2", "2", "3"]
    assert again.comparison is not None
    assert again.comparison.tasks == nearfar.train("info-nce", **settings(folder, run), resume=True).comparison.tasks


@pytest.mark.parametrize(
    ("method", "name"), [("regression", "scored.tsv"), pytest.param("scl", "nli.tsv", marks=pytest.mark.nightly)]
)
def test_other_rows(method: str, name: str, folder: Path, tmp_path: Path) -> None:
    trained = nearfar.train(method, **settings(folder, tmp_path / "run", name, batch_size=16))
    assert trained.comparison is not None
    tested = trained.comparison.tasks["held-out"]
    assert tested.pairs == load_held_out(tmp_path / "run").anchors("test")
    assert (trained.best_step, trained.comparison.sides[0].folds) == (None, FOLDS)
    before = evaluate(str(folder / "tiny"), held_out_of=tmp_path / "run", resamples=0, progress=False)
    (scores,) = before.all_tasks.values()
    assert tested.second == pytest.approx(
        (scores.spearman.all if name == "scored.tsv" else scores.compared).score, abs=1e-3
    )


def labelled(texts: list[str], labels: NDArray[np.intp]) -> HeldOut:
    rows = TextData([(text,) for text in texts], labels.tolist(), (), 0, 0, tuple("abcde"))
    return hold_out.in_folds(rows).held_out  # type: ignore[union-attr]


def test_folds_have_each_label_and_keep_equal_texts_and_rare_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_out, "FOLDS", 5)
    labels = np.array([0] * 23 + [1] * 11 + [2] * 3 + [3] * 2 + [4] * 3)
    texts = [f"text {number}" for number in range(len(labels))]
    texts[1], texts[40], texts[41] = "Text 0!", "text 39", "text 39"  # equal to others; of label 4 one text is left
    held_out = labelled(texts, labels)
    fold_of = dict(zip(held_out.rows, held_out.folds, strict=True))
    assert fold_of["text 0", "a"] == fold_of["Text 0!", "a"]
    assert {label for _, label in held_out.rows} == set("abc")
    assert {label for _, label in held_out.training} == set("de")
    for label, most in (("a", 2), ("b", 1), ("c", 1)):  # a text of label a comes twice
        counts = np.bincount([fold for row, fold in fold_of.items() if row[1] == label], minlength=6)[1:]
        assert counts.max() - counts.min() <= most
        assert all(len(fold_of) - count >= 2 for count in counts)
    order = np.random.default_rng(0).permutation(len(texts))
    again = labelled([texts[row] for row in order], labels[order])
    assert dict(zip(again.rows, again.folds, strict=True)) == fold_of


def test_connected_rows_are_in_one_fold_and_too_few_are_in_none() -> None:
    chains = [(f"q {n // 2}", f"a {(n + 1) // 2}") for n in range(12)]  # one group of 6 anchors and 7 positives
    singles = [(f"single {n}", f"answer {n}") for n in range(20)]
    rows = TextData([*chains, *singles], None, (), 0, 0)
    split = hold_out.in_folds(rows)
    assert split is not None
    fold_of = dict(zip(split.held_out.rows, split.held_out.folds, strict=True))
    assert len({fold_of[row] for row in chains}) == 1
    sizes = Counter({row[0]: fold for row, fold in fold_of.items()}.values())
    assert sorted(sizes.values()) == [8, 9, 9]
    assert len(split.rows.rows) == 32
    assert hold_out.in_folds(TextData(singles[:9], None, (), 0, 0)) is None
    assert hold_out.in_folds(TextData([(f"q {n}", f"a {n}") for n in range(400)], None, (), 0, 0)) is None
    many = [("q", f"a {n}") for n in range(3)] + [(f"q {n}", "a 0") for n in range(30)] + singles
    largest = hold_out.in_folds(TextData(many, None, (), 0, 0))  # over half of the anchors: it is always trained on
    assert largest is not None
    assert set(largest.held_out.rows) == set(singles)
    assert largest.facts[0].startswith("all 53 rows are trained on; 20 of 51 anchors")


@pytest.mark.parametrize("kept", [0.5, None])
def test_folds_have_the_share_that_the_guard_kept(
    kept: float | None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, of_folds = iter(SHARES), list[Any]()
    monkeypatch.setattr(Guard, "passes", lambda *_: next(tries) == kept)
    train_run = after.train_run
    monkeypatch.setattr(after, "train_run", lambda one, **how: (of_folds.append(one), train_run(one, **how)))
    result = nearfar.train(**settings(folder, tmp_path / "run", guard=str(folder / "scored.tsv"), start_weight=0.2))
    assert [(one.guard, one.start_weight) for one in of_folds] == [((), pytest.approx(0.6))] * (FOLDS if kept else 0)
    assert result.model_is_start is (kept is None)
    assert result.comparison is not None
    (test,) = result.comparison.tasks.values()
    assert (test.first == test.second) is (kept is None)
