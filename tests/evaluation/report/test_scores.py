"""Score tables of reports: every number and every mark, against hand-written results."""

from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import pytest

from nearfar.evaluation.comparison import EvaluationRun, compare_runs
from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report import retrieval, similarity, transfer
from nearfar.evaluation.report.blocks import Figure, Section
from nearfar.evaluation.report.inputs import EvaluatedModel
from nearfar.evaluation.results import EvaluationResult
from tests.evaluation.report.cases import comparison, estimate, evaluation, ranked, read, row_of, side
from tests.evaluation.report.cases import transfer as probed


def column(table: Table, title: str) -> list[Cell]:
    index = list(table.columns).index(title)
    return [row[index] for row in table.cells]


def marks(table: Table, title: str) -> list[str]:
    return [cell.mark for cell in column(table, title)]


def main_table(sides, computed=None) -> Table:
    """The table of similarity, with the marks of a comparison of the ``sides``."""
    table = similarity(sides, None if computed is None else read(computed), "all").blocks[0]
    assert isinstance(table, Table)
    return table


A = side("A", evaluation("A", {"one": 70.126, "two": 60.0}))
B = side("B", evaluation("B", {"one": 69.0, "two": 61.0}))
AVERAGE = "average of these 2"


def test_scores_not_told_apart_from_the_best_are_marked_by_a_comparison() -> None:
    rows = {"one": row_of(70.126, 69.0, separable=False), "two": row_of(60.0, 61.0, separable=True)}
    average = {"tasks": ["two", "one"]} | row_of(65.063, 65.0, separable=False)
    tested = comparison(A, B, rows, overall=average)
    table = main_table([A, B], tested)
    assert [marks(table, name) for name in ("one", "two", AVERAGE)] == [
        ["best", "near"],
        ["", "best"],
        ["best", "near"],
    ]
    assert not any("Not all scores were tested" in note for note in table.notes)
    tested["config"]["aggregate"] = "wmean"
    assert marks(main_table([A, B], tested), "one") == ["best", ""]  # a test of another aggregate marks nothing


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("better", "is better than"),
        ("level", "is level with"),
        ("no worse", "is not told apart from"),
        ("cannot tell", "is not told apart from"),
    ],
)
@pytest.mark.parametrize("best", ["A", "B"])
def test_the_headline_says_what_the_test_says(says: str, words: str, best: str) -> None:
    """The lead of the best side, whichever of the two comes first in the comparison."""
    sides = [side(name, evaluation(name, {"one": 70.0 + 2 * (name == best)})) for name in ("A", "B")]
    row = row_of(*([72.0, 70.0] if best == "A" else [70.0, 72.0]), separable=True)
    tested = comparison(*sides, {"one": row | ({} if says == "better" else {"verdict": says})})
    other = "B" if best == "A" else "A"
    assert similarity(sides, read(tested), "all").headlines == [
        f"Similarity, task one (Spearman × 100, all): the best of 2 is {best} with 72.00 [70.8, 74.0]. It {words} "
        f"{other} (by 2.00 [1.00, 3.00])."
    ]


def test_scores_are_shown_as_dots_with_their_intervals() -> None:
    seeds = [evaluation(f"s-{n}", {"one": value}, seed=n) for n, value in enumerate((70.0, 73.0))]
    (figure,) = [one for one in similarity([A, side("s", *seeds)], None, "all").blocks if isinstance(one, Figure)]
    (chart,) = figure.charts
    assert chart.labels == ["one", "two"]
    first, second = chart.lines
    assert (first.name, first.x, first.spans) == ("A", [70.126, 60.0], [(68.876, 72.126), (58.75, 62.0)])
    deviation = stdev([70.0, 73.0])
    assert (second.x, second.spans) == ([71.5, None], [(71.5 - deviation, 71.5 + deviation), None])
    many = [side(str(n), evaluation(str(n), {"one": 1.0, "two": 2.0})) for n in range(30)]
    for sides in ([A], many):
        assert not any(isinstance(block, Figure) for block in similarity(sides, None, "all").blocks)


def test_several_seeds_have_mean_and_standard_deviation() -> None:
    values = [70.0, 71.5, 73.0]
    seeds = [evaluation(f"s-{n}", {"one": value}, seed=n) for n, value in enumerate(values)]
    lower = [{kind: estimate(value - 1) for kind in ("all", "mean", "wmean")} for value in values]
    for one, own in zip(seeds, lower, strict=True):
        one["averages"] = {"seven": {"tasks": ["one"], "spearman": own, "pearson": own}}
    table = main_table([side("s", *seeds), A])
    score = Cell(f"{mean(values):.2f}", f"± {stdev(values):.2f}", "best")
    assert table.cells[0][:2] == [Cell("s", "3 seeds: 0, 1, 2"), score]
    assert column(table, "average of seven")[0].text == f"{mean(values) - 1:.2f}"
    assert [cell.text for cell in column(table, "two")] == ["–", "60.00"]
    assert "–: not evaluated." in table.notes
    assert table.title.endswith("[95% interval], for several seeds the mean ± standard deviation")


def test_undefined_scores_have_a_reason() -> None:
    undefined = evaluation("U", {"one": None, "two": 50.0})
    undefined["config"]["transductive"] = True
    table = main_table([A, side("U", undefined)])
    assert [cell.text for cell in column(table, "one")] == ["70.13", "undefined"]
    assert any("transductive" in note for note in table.notes)
    table = main_table([side("U", undefined, evaluation("U", {"one": 1.0, "two": 2.0}))])
    assert "U, one: undefined, only 1 of 2 runs have it: why." in table.notes
    table = main_table([side("P", evaluation("P", {"one": 1.0, "two": 2.0}), evaluation("P", {"two": 2.0}))])
    assert "P, one: undefined, only 1 of 2 runs have it." in table.notes


def test_scores_on_different_data_have_no_best() -> None:
    other = evaluation("B", {"one": 69.0, "two": 61.0})
    other["tasks"]["one"]["subsets"]["only"]["digest"] = "e"
    table = main_table([A, side("B", other)])
    assert [marks(table, name) for name in ("one", "two", AVERAGE)] == [["", ""], ["", "best"], ["", ""]]
    assert "one: scored on different data, so no best score is marked." in table.notes


def test_transfer_tasks_are_separated_by_protocol() -> None:
    def one(name: str, score: float | None, protocol: str = "senteval"):
        transfer_tasks = probed({"mr": score, "mrpc": 70.0}, protocol=protocol)
        return side(name, evaluation(name, {}) | {"transfer": transfer_tasks})

    sides = [one("A", 80.0), B, one("E", 99.0, "exact"), one("C", 90.0)]
    first, _, second = transfer(sides, None).blocks  # one model of the second protocol has no chart
    assert isinstance(first, Table)
    assert isinstance(second, Table)
    tasks = ["mr", "mrpc", "mrpc, F1", "learned, Pearson", "learned, Spearman"]
    assert first.columns == ["model", *tasks, AVERAGE]
    assert [row[0].text for row in first.cells] == ["A", "C"]
    assert marks(first, "mr") == ["", "best"]
    assert column(first, AVERAGE)[1].text == "80.00"
    assert "protocol exact" in second.title
    assert [cell.text for cell in column(second, "mr")] == ["99.00"]
    assert similarity([one("A", 1.0)], None, "all") == ([], [])


QUERIES = np.random.default_rng(0).random(50).round(6)


def ranked_side(name, values, *, main="ndcg@10"):
    return EvaluatedModel(name, (ranked(values, name=name, main=main),))


GOOD = ranked_side("good", {"a": np.minimum(QUERIES + 0.2, 1), "b": QUERIES})
BAD = ranked_side("bad", {"a": QUERIES, "b": QUERIES[::-1]})


def lookup(*sides, measure=None):
    return compare_runs(*(one.runs for one in sides), measure=measure, resamples=200)


def test_retrieval_has_a_column_for_each_task_and_the_average():
    other = EvaluatedModel("other", (EvaluationRun("o.json", EvaluationResult(model="o", config={}, tasks={})),))
    shown = retrieval([GOOD, BAD, other], lookup(GOOD, BAD))
    main, _, more = shown.blocks
    assert isinstance(main, Table)
    assert main.columns == ["model", "a, ndcg@10", "b, ndcg@10", AVERAGE]
    score = GOOD.runs[0].result.retrieval["a"].compared.score
    assert main.rows[0][1] == Cell(f"{score:.2f}", f"[{score - 1:.1f}, {score + 1:.1f}]", "best")
    assert main.rows[1][1].mark == ""  # significantly worse
    assert [row[2].mark for row in main.rows] == ["best", "best"]  # the same mean
    assert isinstance(more, Section)
    (line,) = shown.headlines
    assert line.startswith("Retrieval, average of these 2 (means over queries × 100): the best of 2 is good with")
    assert "It is better than bad (by " in line
    assert retrieval([other], None) == ([], [])


def test_a_comparison_of_another_measure_marks_nothing():
    table = retrieval([GOOD, BAD], lookup(GOOD, BAD, measure="mrr@10")).blocks[0]
    assert any("no comparison tests the differences" in note for note in table.notes)
    noisy = [
        ranked_side("good", {"a": QUERIES}, main="mrr@10"),
        ranked_side("bad", {"a": np.roll(QUERIES, 1) - 0.001}, main="mrr@10"),
    ]
    assert retrieval(noisy, lookup(*noisy)).blocks[0].rows[1][1].mark == "near"


def test_tasks_of_different_measures_have_no_average():
    first, second = ranked_side("m", {"a": QUERIES}), ranked_side("m", {"b": QUERIES}, main="mrr@10")
    tasks = first.runs[0].result.retrieval | second.runs[0].result.retrieval
    both = EvaluationRun("m.json", replace(first.runs[0].result, retrieval=tasks))
    table = retrieval([EvaluatedModel("m", (both,))], None).blocks[0]
    assert table.columns == ["model", "a, ndcg@10", "b, mrr@10"]
