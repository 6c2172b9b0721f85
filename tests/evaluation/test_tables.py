"""Tables of hand-written results: every number, and the reason for every missing number."""

import pytest

from nearfar.evaluation.render import to_markdown
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult
from nearfar.evaluation.tables import result_markdown
from nearfar.evaluation.tables.evaluation import evaluation_tables
from tests.evaluation.report.cases import PROVENANCE, estimate


def evaluation_markdown(content):
    return result_markdown(EvaluationResult.from_dict(content))


def comparison_markdown(content):
    return result_markdown(ComparisonResult.from_dict(content))


@pytest.fixture
def result():
    why = estimate(None, "undefined on b: why")
    three = {"all": estimate(70.126), "mean": why, "wmean": why}
    subsets = {
        "a|b": {"pairs": 7, "spearman": estimate(60.0), "pearson": estimate(50.0)},
        "b": {"pairs": 2, "spearman": estimate(None), "pearson": estimate(None)},
    }
    for values in subsets.values():
        values |= {"digest": "d", "gold": [1] * values["pairs"], "cosines_e6": [2] * values["pairs"]}
    task = {"pairs": 9, "zero_vectors": 4, "spearman": three, "pearson": three, "subsets": subsets}
    equal_scores = {kind: {"score": 33.333, "low": None, "high": None} for kind in ("all", "mean", "wmean")}
    average = {"tasks": ["mine"], "spearman": equal_scores, "pearson": equal_scores}
    return {
        "schema": 1,
        "kind": "evaluation",
        "model": "my [bold]model[/bold]",
        "config": {"resamples": 1000, "pooling": "mean"},
        "provenance": PROVENANCE,
        "unavailable": {"sts12": "no such folder."},
        "averages": {"seven": average},
        "tasks": {"mine": task},
    }


@pytest.fixture
def comparison():
    row = {"pairs": 9, "first": 71.0, "second": 69.5, "difference": 1.5, "low": 0.25, "high": 2.75, "p": 0.01}
    row |= {"p_holm": 0.02, "verdict": "better", "units": 9}
    none = dict.fromkeys(("second", "difference", "low", "high", "p", "p_holm", "verdict"))
    overall = {key: value for key, value in row.items() if key != "pairs"}
    return {
        "schema": 1,
        "kind": "comparison",
        "first": {"name": "A", "models": ["A", "A"]},
        "second": {"name": "B", "models": ["B"]},
        "config": {"aggregate": "wmean", "resamples": 10_000, "level": 0.05, "margin": 0.5},
        "provenance": PROVENANCE,
        "not_compared": ["sts16"],
        "tasks": {
            "one": row,
            "two": row | {"difference": -1.5, "low": -2.75, "high": -0.25, "verdict": "worse"},
            "three": row | {"verdict": "cannot tell", "more_units": 1234},
            "same": row | {"verdict": "level"},
            "least": row | {"verdict": "no worse"},
            "four": {"pairs": 2, "first": 50.0, "reason": "undefined for B: why"} | none,
        },
        "overall": {"tasks": ["one", "two"]} | overall,
    }


def test_an_evaluation(result):
    lines = evaluation_markdown(result).splitlines()
    assert lines[0] == "# Evaluation of my [bold]model[/bold]"
    assert "## my [bold]model[/bold]: Spearman x 100 [95% interval]" in lines
    for line in (
        "| task | pairs | all | mean | wmean |",
        "| mine | 9 | 70.13 [68.9, 72.1] | undefined | undefined |",
        "| mine / a\\|b | 7 | 60.00 [58.8, 62.0] |  |  |",
        "| mine / a\\|b | 7 | 50.00 [48.8, 52.0] |  |  |",  # Pearson's table
        "| average of seven |  | 33.33 | 33.33 | 33.33 |",
    ):
        assert line in lines
    for note in (
        "mine, mean and wmean: undefined on b: why.",
        "mine: 4 pairs with a zero vector; their cosine is set to 0.",
        "Intervals: 95%, from 1000 bootstrap resamples of pairs.",
        "Pooling: mean.",
    ):
        assert lines.count(note) == 2
    assert lines.count("sts12: not evaluated. no such folder.") == 1
    assert lines[-1] == "`nearfar evaluate m`, 2024-01-02T03:04:05+00:00, commit abc; python 3.11; fast, 2."
    (table,) = evaluation_tables(EvaluationResult.from_dict(result))
    assert not any("a|b" in row[0] for row in table.rows)


def test_without_resamples_intervals_are_not_mentioned_and_fitted_models_are_marked(result):
    result["config"] = {"resamples": 0, "pooling": None, "transductive": True}
    text = evaluation_markdown(result)
    assert "Intervals" not in text
    assert "Pooling" not in text
    assert "(transductive)" in text


def test_a_comparison(comparison):
    lines = comparison_markdown(comparison).splitlines()
    assert lines[0] == "# A against B"
    for line in (
        "## Spearman x 100 (wmean): first A (mean of 2 runs), second B",
        "| task | first | second | first - second [95%] | verdict |",
        "| one | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | first better |",
        "| two | 71.00 | 69.50 | -1.50 [-2.75, -0.25] | second better |",
        "| three | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | cannot tell: about 1,234 more pairs would |",
        "| same | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | level |",
        "| least | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | first no worse |",
        "| four | 50.00 | undefined |  | undefined |",
        "| average | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | first better |",
        "average: mean over one, two.",
        "four: undefined for B: why.",
        "Not compared, because not all sides were evaluated on them: sts16.",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((2, 2), "and training runs (10000 resamples)."),
        ((2, 1), "and training runs (10000 resamples); it says nothing of other training runs of second, one model."),
        (
            (1, 1),
            " share a text together (10000 resamples); it says nothing of other training runs of first and second",
        ),
    ],
)
def test_a_side_of_one_run_says_nothing_of_others(comparison, runs, expected):
    for name, count in zip(("first", "second"), runs, strict=True):
        comparison[name]["models"] = ["A"] * count
    (note,) = [line for line in comparison_markdown(comparison).splitlines() if line.startswith("Interval:")]
    assert expected in note


@pytest.fixture
def probed(result):
    accuracy = {"kind": "classification", "protocol": "exact", "digest": "d", "rows": 50, "accuracy": estimate(80.0)}
    learned = {"kind": "relatedness", "digest": "d", "pairs": 40, "pearson": estimate(60.0), "spearman": estimate(55.0)}
    tasks = {
        "mr": accuracy,
        "mrpc": accuracy | {"f1": estimate(85.0)},
        "cr": accuracy | {"accuracy": estimate(None, "NaN")},
        "learned": learned,
    }
    averages = {"two": {"tasks": ["mr"], "accuracy": estimate(81.0)}}
    return result | {"transfer": {"protocol": "exact", "nhid": 0, "averages": averages, "tasks": tasks}}


def test_transfer_tasks(probed):
    lines = evaluation_markdown(probed).splitlines()
    for line in (
        "| mr | 50 | accuracy | 80.00 [78.8, 82.0] |  |",
        "| mrpc | 50 | accuracy | 80.00 [78.8, 82.0] | F1 85.00 [83.8, 87.0] |",
        "| cr | 50 | accuracy | undefined |  |",
        "| learned | 40 | Pearson | 60.00 [58.8, 62.0] | Spearman 55.00 [53.8, 57.0] |",
        "| average of two |  | accuracy | 81.00 [79.8, 83.0] |  |",
        "Probes with protocol exact, 0 hidden units, 10 folds.",
        "cr: NaN.",
    ):
        assert line in lines
    (transfer,) = evaluation_tables(EvaluationResult.from_dict(probed | {"tasks": {}}))
    assert "sts12: not evaluated. no such folder." in transfer.notes


def test_fine_tuned_models_are_marked(probed):
    cola = {"kind": "classification", "protocol": "finetune", "digest": "d", "rows": 50}
    cola |= {"accuracy": estimate(80.0), "matthews": estimate(44.0)}
    transfer = probed["transfer"] | {"protocol": "finetune", "averages": {}}
    transfer["tasks"] = {"cola": cola, "learned": transfer["tasks"]["learned"]}
    text = evaluation_markdown(probed | {"tasks": {}, "averages": {}, "transfer": transfer})
    for line in (
        "## my [bold]model[/bold]: fine-tuned, x 100 [95% interval]",
        "| cola | 50 | accuracy | 80.00 [78.8, 82.0] | Matthews 44.00 [42.8, 46.0] |",
        "Intervals: 95%, from 1000 bootstrap resamples of the tested rows.",
    ):
        assert line in text
    assert "Probes" not in text


def test_accuracies_have_their_own_average(comparison):
    row = comparison["tasks"]["one"]
    comparison["tasks"] = {"mr": row | {"kind": "classification"}}
    comparison |= {"overall": None, "overall_transfer": {"tasks": ["mr"]} | row}
    text = comparison_markdown(comparison)
    for words in (
        "\n| mr, accuracy | 71.00 | 69.50 |",
        "\n| average accuracy | 71.00 |",
        "\nInterval: 95%, over rows, ",
        "\n## Accuracy x 100: first A (mean of 2 runs), second B\n",
    ):
        assert words in text
    assert "\n| average | " not in text


def test_several_sides_have_a_column_each(comparison):
    def pair(i, j, first, second, verdict):
        row = comparison["tasks"]["one"] | {"first": first, "second": second, "verdict": verdict}
        return {"pair": [i, j], "tasks": {"one": row}, "overall": {"tasks": ["one"]} | row, "overall_transfer": None}

    pairs = [
        pair(0, 1, 70.0, 72.0, "no worse"),
        pair(0, 2, 70.0, 60.0, "better"),
        pair(1, 2, 72.0, 60.0, "better"),
    ]
    sides = [{"name": name, "models": [name]} for name in "ABC"]
    several = {key: comparison[key] for key in ("config", "provenance", "not_compared")}
    several |= {"schema": 1, "kind": "comparisons", "sides": sides, "comparisons": pairs}
    lines = result_markdown(PairwiseResult.from_dict(several)).splitlines()
    assert lines[0] == "# A, B, C"
    assert "| task | A | B | C |" in lines
    assert "| one | 70.00 = | 72.00 * | 60.00 |" in lines
    assert "| average | 70.00 = | 72.00 * | 60.00 |" in lines
    assert "## Spearman x 100 (wmean): first B, second C" in lines


@pytest.fixture
def ranked(result):
    def scores(main, value):
        names = ("ndcg@10", "mrr@10", "map@100", "recall@1", "recall@10", "recall@100")
        measures = {name: estimate(value + number) for number, name in enumerate(names)}
        per_query = {name: [0.5, 0.5] for name in names}
        counts = {"empty documents": 2, "empty queries": 0}
        entry = {"queries": 2, "documents": 30, "main": main, "measures": measures, "per_query": per_query}
        return entry | {"counts": counts, "digest": "d"}

    return result | {"tasks": {}, "averages": {}, "retrieval": {"a": scores("ndcg@10", 40), "b": scores("mrr@10", 50)}}


def test_retrieval_on_screen_has_all_measures_of_few_tasks_or_one_of_all(ranked):
    def shown(content, **settings):
        return to_markdown(evaluation_tables(EvaluationResult.from_dict(content), screen=True, **settings)[0])

    text = shown(ranked)
    assert text.count("recall@100") == 2
    assert text.index("ndcg@10") < text.index("mrr@10")
    assert "average" not in text  # the main measures differ
    assert "a: empty documents (2)." in text
    one = shown(ranked, measure="recall@1")
    assert "43.00 [41.8, 45.0]" in one
    assert "53.00 [51.8, 55.0]" in one
    assert "48.00" in one  # the average
    assert "recall@10 " not in one
    many = ranked | {"retrieval": {f"t{n}": ranked["retrieval"]["a"] for n in range(4)}}
    assert "mrr@10" not in shown(many)


def test_retrieval_in_a_file_has_every_measure_as_a_column(ranked):
    page = evaluation_markdown(ranked)
    assert "| task | queries | documents | ndcg@10 | mrr@10 | map@100 | recall@1 | recall@10 | recall@100 |" in page
    assert "| b | 2 | 30 | 50.00 [48.8, 52.0] | 51.00 [49.8, 53.0] |" in page
    assert "| average |  |  | 45.00 | 46.00 | 47.00 | 48.00 | 49.00 | 50.00 |" in page
    assert "Main measure of a: ndcg@10." in page


def test_a_comparison_of_retrieval_names_the_measure(comparison):
    row = comparison["tasks"]["one"]
    rows = {name: row | {"kind": "retrieval", "measure": "mrr@10", "pairs": 9} for name in ("a", "b")}
    page = comparison_markdown(
        comparison | {"tasks": rows, "overall": None, "overall_retrieval": comparison["overall"]}
    )
    for words in (
        "mrr@10 x 100: first",
        "| a | ",
        "| average retrieval | ",
        "Interval: 95%, over queries, ",
    ):
        assert words in page
    mixed = comparison_markdown(comparison | {"tasks": comparison["tasks"] | {"c": rows["a"]}})
    for words in ("or retrieval x 100: first", "| c, mrr@10 | ", "over pairs or queries"):
        assert words in mixed
