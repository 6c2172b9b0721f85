"""Tables of hand-written results: every number, and the reason for every missing number."""

import io

import pytest
from rich.console import Console

from nearfar.evaluation.render import to_rich
from nearfar.evaluation.results import ComparisonResult, EvaluationResult, PairwiseResult
from nearfar.evaluation.tables import evaluation as tables
from nearfar.evaluation.tables import pages as comparisons
from nearfar.evaluation.tables.pages import result_markdown
from tests.evaluation.report.cases import PROVENANCE


def estimate(score):
    return {"score": score, "low": score - 1.25, "high": score + 2}


def evaluation_markdown(content):
    return result_markdown(EvaluationResult.from_dict(content))


def evaluation_tables(content, **settings):
    shown = tables.evaluation_tables(EvaluationResult.from_dict(content), screen=True, **settings)
    return [to_rich(table) for table in shown]


def comparison_markdown(content):
    return result_markdown(ComparisonResult.from_dict(content))


def comparison_table(content):
    return to_rich(comparisons.comparison_table(ComparisonResult.from_dict(content)))


def undefined(reason):
    return {"score": None, "low": None, "high": None, "reason": reason}


@pytest.fixture
def result():
    three = {
        "all": estimate(70.126),
        "mean": undefined("undefined on b: why"),
        "wmean": undefined("undefined on b: why"),
    }
    subsets = {
        "a|b": {"pairs": 7, "spearman": estimate(60.0), "pearson": estimate(50.0)},
        "b": {"pairs": 2, "spearman": undefined("why"), "pearson": undefined("why")},
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
    row |= {"p_holm": 0.02, "separable": True}
    row |= {"seeds": {"p": 0.3, "test": "Welch's t-test over seeds", "p_rank": 0.25, "rank_test": "Wilcoxon"}}
    none = dict.fromkeys(("second", "difference", "low", "high", "p", "separable", "seeds"))
    overall = {key: value for key, value in row.items() if key not in ("pairs", "p_holm")}
    return {
        "schema": 1,
        "kind": "comparison",
        "first": {"name": "A", "models": ["A", "A"]},
        "second": {"name": "B", "models": ["B"]},
        "config": {"aggregate": "wmean", "resamples": 10_000, "level": 0.05},
        "provenance": PROVENANCE,
        "not_compared": ["sts16"],
        "tasks": {
            "one": row,
            "two": row | {"difference": -1.5, "low": -2.75, "high": -0.25},
            "three": row | {"separable": False},
            "four": {"pairs": 2, "first": 50.0, "reason": "undefined for B: why"} | none,
        },
        "overall": {"tasks": ["one", "two"]} | overall,
    }


def render(table, width=200):
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def test_an_evaluation_in_markdown(result):
    lines = evaluation_markdown(result).splitlines()
    assert lines[0] == "# Evaluation of my [bold]model[/bold]"
    assert "| task | pairs | all | mean | wmean |" in lines
    assert "| mine | 9 | 70.13 [68.9, 72.1] | undefined | undefined |" in lines
    assert "| mine / a\\|b | 7 | 60.00 [58.8, 62.0] |  |  |" in lines
    assert "| mine / a\\|b | 7 | 50.00 [48.8, 52.0] |  |  |" in lines  # Pearson's table
    assert "| average of seven |  | 33.33 | 33.33 | 33.33 |" in lines
    for note in (
        "mine, mean and wmean: undefined on b: why.",
        "mine: 4 pairs with a zero vector; their cosine is set to 0.",
        "Intervals: 95%, from 1000 bootstrap resamples of pairs.",
        "Pooling: mean.",
    ):
        assert lines.count(note) == 2
    assert lines.count("sts12: not evaluated. no such folder.") == 1
    assert lines[-1] == "`nearfar evaluate m`, 2024-01-02T03:04:05+00:00, commit abc; python 3.11; fast, 2."


def test_an_evaluation_on_screen(result):
    (table,) = evaluation_tables(result)
    text = render(table)
    assert "my [bold]model[/bold]: Spearman x 100" in text  # names are escaped
    assert "70.13 [68.9, 72.1]" in text
    assert "a|b" not in text
    assert "undefined on b: why" in text
    assert "50.00 [48.8, 52.0]" in render(*evaluation_tables(result, metrics=["pearson"], subsets=True))


def test_without_resamples_intervals_are_not_mentioned(result):
    result["config"] = {"resamples": 0, "pooling": None}
    text = evaluation_markdown(result)
    assert "Intervals" not in text
    assert "Pooling" not in text


def test_a_comparison_in_markdown(comparison):
    lines = comparison_markdown(comparison).splitlines()
    assert lines[0] == "# A against B"
    assert "## Spearman x 100 (wmean): first A (mean of 2 runs), second B" in lines
    assert "| one | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | 0.0100 | 0.0200 | 0.3000 | 0.2500 | first better |" in lines
    assert "| two | 71.00 | 69.50 | -1.50 [-2.75, -0.25] | 0.0100 | 0.0200 | 0.3000 | 0.2500 | second better |" in lines
    assert any(line.startswith("| three | 71.00") and line.endswith("| not significant |") for line in lines)
    assert "| four | 50.00 | undefined |  |  |  |  |  | undefined |" in lines
    assert "| average | 71.00 | 69.50 | +1.50 [+0.25, +2.75] | 0.0100 |  | 0.3000 | 0.2500 | first better |" in lines
    assert "average: mean over one, two." in lines
    assert "four: undefined for B: why." in lines
    assert "Not compared, because not all sides were evaluated on them: sts16." in lines


def test_a_comparison_on_screen(comparison):
    text = render(comparison_table(comparison))
    assert "+1.50 [+0.25, +2.75]" in text
    assert "p over seeds" in text
    for row in (*comparison["tasks"].values(), comparison["overall"]):
        row["seeds"] = None
    text = render(comparison_table(comparison))
    assert "p over seeds" not in text
    assert "second better" in text


@pytest.fixture
def probed(result):
    accuracy = {"kind": "classification", "protocol": "exact", "digest": "d", "rows": 50, "accuracy": estimate(80.0)}
    learned = {"kind": "relatedness", "digest": "d", "pairs": 40, "pearson": estimate(60.0), "spearman": estimate(55.0)}
    return result | {
        "transfer": {
            "protocol": "exact",
            "nhid": 0,
            "averages": {"two": {"tasks": ["mr"], "accuracy": estimate(81.0)}},
            "tasks": {
                "mr": accuracy,
                "mrpc": accuracy | {"f1": estimate(85.0)},
                "cr": accuracy | {"accuracy": undefined("NaN")},
                "learned": learned,
            },
        }
    }


def test_transfer_tasks_in_markdown_and_on_screen(probed):
    lines = evaluation_markdown(probed).splitlines()
    assert "| mr | 50 | accuracy | 80.00 [78.8, 82.0] |  |" in lines
    assert "| mrpc | 50 | accuracy | 80.00 [78.8, 82.0] | F1 85.00 [83.8, 87.0] |" in lines
    assert "| cr | 50 | accuracy | undefined |  |" in lines
    assert "| learned | 40 | Pearson | 60.00 [58.8, 62.0] | Spearman 55.00 [53.8, 57.0] |" in lines
    assert "| average of two |  | accuracy | 81.00 [79.8, 83.0] |  |" in lines
    assert "Probes with protocol exact, 0 hidden units, 10 folds." in lines
    assert "cr: NaN." in lines
    similarity, transfer = evaluation_tables(probed)
    assert "80.00 [78.8, 82.0]" in render(transfer)
    assert "mrpc" not in render(similarity)
    (transfer,) = evaluation_tables(probed | {"tasks": {}})
    assert "sts12: not evaluated. no such folder." in render(transfer)


def test_fine_tuned_models_are_marked(probed):
    cola = {"kind": "classification", "protocol": "finetune", "digest": "d", "rows": 50}
    cola |= {"accuracy": estimate(80.0), "matthews": estimate(44.0)}
    transfer = probed["transfer"] | {"protocol": "finetune", "averages": {}}
    transfer["tasks"] = {"cola": cola, "learned": transfer["tasks"]["learned"]}
    text = evaluation_markdown(probed | {"tasks": {}, "averages": {}, "transfer": transfer})
    assert "## my [bold]model[/bold]: fine-tuned, x 100 [95% interval]" in text
    assert "| cola | 50 | accuracy | 80.00 [78.8, 82.0] | Matthews 44.00 [42.8, 46.0] |" in text
    assert "| learned | 40 | Pearson | 60.00 [58.8, 62.0] | Spearman 55.00 [53.8, 57.0] |" in text
    assert "Intervals: 95%, from 1000 bootstrap resamples of the tested rows." in text
    assert "Probes" not in text


def test_models_fitted_on_the_evaluated_texts_are_marked(result):
    result["config"]["transductive"] = True
    assert "(transductive)" in evaluation_markdown(result)


def test_accuracies_have_their_own_average(comparison):
    row = comparison["tasks"]["one"]
    comparison["tasks"] = {"mr": row | {"kind": "classification", "test": "McNemar's exact test over rows"}}
    comparison |= {"overall": None, "overall_transfer": {"tasks": ["mr"]} | row}
    lines = comparison_markdown(comparison).splitlines()
    assert any(line.startswith("| mr, accuracy | 71.00 | 69.50 |") for line in lines)
    assert any(line.startswith("| average accuracy | 71.00 |") for line in lines)
    assert "p of accuracies: McNemar's exact test over rows." in lines
    assert any(line.startswith("Interval and p: paired bootstrap over rows, ") for line in lines)
    assert "## Accuracy x 100: first A (mean of 2 runs), second B" in lines
    assert not any(line.startswith("| average | ") for line in lines)


def test_several_sides_have_a_column_each(comparison):
    def pair(i, j, first, second, *, separable):
        row = comparison["tasks"]["one"] | {"first": first, "second": second, "separable": separable}
        return {"pair": [i, j], "tasks": {"one": row}, "overall": {"tasks": ["one"]} | row, "overall_transfer": None}

    pairs = [
        pair(0, 1, 70.0, 72.0, separable=False),
        pair(0, 2, 70.0, 60.0, separable=True),
        pair(1, 2, 72.0, 60.0, separable=True),
    ]
    sides = [{"name": name, "models": [name]} for name in "ABC"]
    several = {key: comparison[key] for key in ("config", "provenance", "not_compared")}
    several |= {"schema": 1, "kind": "comparisons", "sides": sides, "comparisons": pairs}
    several = PairwiseResult.from_dict(several)
    lines = result_markdown(several).splitlines()
    assert lines[0] == "# A, B, C"
    assert "| task | A | B | C |" in lines
    assert "| one | 70.00 = | 72.00 * | 60.00 |" in lines
    assert "| average | 70.00 = | 72.00 * | 60.00 |" in lines
    assert "## Spearman x 100 (wmean): first B, second C" in lines
    assert "72.00 *" in render(to_rich(comparisons.pairwise_table(several)))


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
    shown = render(evaluation_tables(ranked)[0], width=80)
    assert shown.count("recall@100") == 2
    assert shown.index("ndcg@10") < shown.index("mrr@10")
    assert "average" not in shown  # the main measures differ
    assert "a: empty documents (2)." in shown
    one = render(evaluation_tables(ranked, measure="recall@1")[0], width=80)
    assert "43.00 [41.8, 45.0]" in one
    assert "53.00 [51.8, 55.0]" in one
    assert "48.00" in one  # the average
    assert "recall@10 " not in one
    many = ranked | {"retrieval": {f"t{n}": ranked["retrieval"]["a"] for n in range(4)}}
    assert render(evaluation_tables(many)[0], width=80).count("mrr@10") == 0


def test_retrieval_in_markdown_has_every_measure_as_a_column(ranked):
    page = evaluation_markdown(ranked)
    assert "| task | queries | documents | ndcg@10 | mrr@10 | map@100 | recall@1 | recall@10 | recall@100 |" in page
    assert "| b | 2 | 30 | 50.00 [48.8, 52.0] | 51.00 [49.8, 53.0] |" in page
    assert "| average |  |  | 45.00 | 46.00 | 47.00 | 48.00 | 49.00 | 50.00 |" in page
    assert "Main measure of a: ndcg@10." in page


def test_a_comparison_of_retrieval_names_the_measure(comparison):
    row = next(iter(comparison["tasks"].values()))
    test = "randomization test over queries"
    rows = {name: row | {"kind": "retrieval", "measure": "mrr@10", "pairs": 9, "test": test} for name in ("a", "b")}
    only = comparison | {"tasks": rows, "overall": None, "overall_retrieval": comparison["overall"]}
    page = comparison_markdown(only)
    assert "mrr@10 x 100: first" in page
    assert "| a | " in page
    assert "| average retrieval | " in page
    assert "paired bootstrap over queries" in page
    assert "p of retrieval tasks: randomization test over queries." in page
    mixed = comparison_markdown(comparison | {"tasks": comparison["tasks"] | {"c": rows["a"]}})
    assert "or retrieval x 100: first" in mixed
    assert "| c, mrr@10 | " in mixed
    assert "over pairs or queries" in mixed
