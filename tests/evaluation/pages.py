"""Pages of hand-written results of every kind, as they are committed: ``python -m tests.evaluation.pages`` writes them.

``test_tables.py`` compares them letter by letter. Where a change is meant, write them again and read the diff.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

from nearfar.evaluation.render import to_markdown
from nearfar.evaluation.report import blocks, compose
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.results import ComparisonResult, GeometryResult, TrainingRecord
from nearfar.evaluation.tables import result_markdown
from nearfar.evaluation.tables.evaluation import evaluation_tables
from tests.evaluation.report.cases import (
    comparison,
    estimate,
    evaluation,
    geometry,
    queries,
    read,
    row_of,
    side,
    training_run,
    transfer,
)

FOLDER = Path(__file__).parent / "expected"
MEASURES = ("ndcg@10", "mrr@10", "map@100", "recall@1", "recall@10", "recall@100")
UNSAFE = '<script>alert("x")</script> & a|b *c* [d](javascript:e)'
SEEN = {"pairs": 0.24, "texts": 0.3, "chosen_pairs": 0.0, "chosen_texts": 0.0}
UNSEEN = SEEN | {"pairs": 0.0, "texts": 0.0}


def similarity() -> dict[str, Any]:
    """A task with subsets, one of which has no score, and zero vectors; and a task that is a dev set."""
    result = evaluation("my [bold]model[/bold]", {"mine": 70.126, "dev": 50.0})
    why = estimate(None, "undefined on b: why")
    subset = {"digest": "d", "gold": [1] * 5, "cosines_e6": [2] * 5, "pairs": 5}
    mine = result["tasks"]["mine"] | {"zero_vectors": 4, "seen": SEEN | {"chosen_pairs": 0.1}}
    mine |= {
        name: {"all": estimate(score), "mean": why, "wmean": why}
        for name, score in (("spearman", 70.126), ("pearson", 9.0))
    }
    mine["subsets"] = {
        "a|b": subset | {"spearman": estimate(60.0), "pearson": estimate(50.0)},
        "b": subset | {"spearman": estimate(None), "pearson": estimate(None)},
    }
    mine["unseen"] = {
        "pairs": 7,
        "spearman": estimate(None, "7 unseen pairs, where a score needs 50"),
        "seen_pairs": [0, 2, 3],
    }
    result["tasks"] = {"mine": mine, "dev": result["tasks"]["dev"] | {"seen": SEEN | {"dev": True}}}
    equal = {kind: {"score": 33.333, "low": None, "high": None} for kind in ("all", "mean", "wmean")}
    result["averages"] = {"seven": {"tasks": ["mine"], "spearman": equal, "pearson": equal}}
    return result | {"unavailable": {"sts12": "no such folder."}}


def ranked(main: str = "ndcg@10", value: float = 40) -> dict[str, Any]:
    """The entry of a retrieval task."""
    measures = {name: estimate(value + number) for number, name in enumerate(MEASURES)}
    entry = {"queries": 2, "documents": 30, "main": main, "measures": measures, "digest": "d"}
    entry |= {"counts": {"empty documents": 2, "empty queries": 0}}
    return entry | {"per_query": {name: [0.5, 0.5] for name in MEASURES}}


def whole() -> dict[str, Any]:
    """An evaluation with tasks of every kind."""
    result = similarity() | {"transfer": transfer({"mr": 80.0, "mrpc": 70.0, "cr": None}, protocol="exact")}
    result["transfer"]["averages"] = {"two": {"tasks": ["mr"], "accuracy": estimate(81.0)}}
    return result | {"retrieval": {"a": ranked(), "b": ranked("mrr@10", 50)}}


def finetuned() -> dict[str, Any]:
    """A fine-tuned classifier, no better than the most frequent label, without intervals."""
    cola = {"kind": "classification", "protocol": "finetune", "digest": "d", "rows": 6, "classes": ["left", "right"]}
    cola |= {"accuracy": estimate(80.0), "matthews": estimate(44.0), "gold": [0, 0, 0, 0, 1, 1]}
    probed = transfer({}, protocol="finetune")
    probed["tasks"] = {"cola": cola | {"predicted": [0, 0, 0, 1, 0, 1]}} | probed["tasks"]
    training = {"validation": 71.0, "metric": "accuracy", "steps": 10, "best_step": 4, "seconds": 3.0}
    config = {"resamples": 0, "transductive": True, "dimensions": 8, "quantize": "int8", "data": ["some rows"]}
    return evaluation("m", {}) | {"transfer": probed, "config": config, "training": training, "dim": 8}


def verdicts() -> dict[str, Any]:
    """A comparison with each verdict, by ``wmean``, of a side with two runs and one with folds."""
    rows: dict[str, Any] = {
        name: row_of(71.0, 69.5, separable=True) | {"pairs": 9, "verdict": name} for name in ("better", "level")
    }
    rows |= {"no worse": rows["level"] | {"verdict": "no worse"}, "worse": row_of(69.5, 71.0, separable=True)}
    none = dict.fromkeys(("second", "difference", "low", "high", "p", "p_holm", "verdict"))
    rows |= {"cannot tell": row_of(71.0, 70.5, separable=False), "none": rows["level"] | none | {"reason": "why"}}
    sides = [side("A", *[evaluation("A", {})] * 2), side("B", evaluation("B", {}))]
    average = {"tasks": ["better", "worse"]} | row_of(71.0, 69.5, separable=True)
    result = comparison(*sides, rows, overall=average, not_compared=["sts16"], queries=queries(UNSAFE, "<b>wrong</b>"))
    result["named_averages"] = {"STS12 to STS16": average}
    result["config"]["aggregate"] = "wmean"
    result["first"]["seen"] = {"better": SEEN, "level": UNSEEN, "worse": SEEN}
    result["second"] |= {"seen": {"better": UNSEEN, "level": UNSEEN, "worse": SEEN | {"dev": True}}, "folds": 5}
    return result


def of_kind(**kinds: str) -> dict[str, Any]:
    """A comparison of two runs on tasks of these kinds."""
    rows = {task: row_of(71.0, 69.5, separable=True) | {"kind": kind, "pairs": 9} for task, kind in kinds.items()}
    rows = {task: row | ({"measure": "mrr@10"} if row["kind"] == "retrieval" else {}) for task, row in rows.items()}
    average = {"tasks": [*kinds]} | row_of(71.0, 69.5, separable=True)
    name = {"classification": "overall_transfer", "retrieval": "overall_retrieval"}.get(
        next(iter(kinds.values())), "overall"
    )
    return comparison(side("A", evaluation("A", {})), side("B", evaluation("B", {})), rows, **{name: average})


def pairwise(scores: dict[str, tuple[float, ...]], *, systems: bool = False) -> dict[str, Any]:
    """Each pair of three sides or more on tasks with these scores, 1 of which tells; ``systems`` have ranks."""
    names = "ABCDEFGHIJKL"[: len(next(iter(scores.values())))]
    pairs = []
    for i, j in combinations(range(len(names)), 2):
        rows = {task: row_of(of[i], of[j], separable=abs(of[i] - of[j]) > 5) for task, of in scores.items()}
        kinds = {"kind": "scores", "measure": "score x 100"} if systems else {}
        overall = {"tasks": [*scores]} | next(iter(rows.values())) if len(scores) > 1 else None
        pairs.append({"pair": [i, j], "tasks": {task: row | kinds for task, row in rows.items()}, "overall": overall})
    sides: list[dict[str, Any]] = [{"name": name, "models": [name]} for name in names]
    if systems:
        for number, one in enumerate(sides):
            ranks = {
                task: estimate(of[number]) | {"best_rank": number + 1, "worst_rank": 2 + number // 2}
                for task, of in scores.items()
            }
            one |= {"ranks": ranks, "overall_rank": ranks["x"] | {"worst_rank": number + 1}, "counts": {"queries": 3}}
    several = {"schema": 1, "kind": "comparisons", "sides": sides, "comparisons": pairs, "not_compared": []}
    return several | {key: of_kind(one="similarity")[key] for key in ("config", "provenance")}


def run_with_test(name: str, row: dict[str, Any], *, held_out: str = "rows", **changes: Any) -> TrainingRun:
    """A run whose model was compared with its start; its dev score rose from 50 to 70."""
    entry = {"kind": "retrieval", "measure": "mrr@10", "pairs": 76, **row}
    result = comparison(side(name, evaluation(name, {})), side("start", evaluation("start", {})), {"held-out": entry})
    result["first"]["seen"], result["second"]["seen"] = {"held-out": UNSEEN}, {"held-out": SEEN}
    return training_run(name, tested=ComparisonResult.from_dict(result | changes), held_out=held_out)


def report_inputs() -> ReportInputs:
    """Inputs of every kind, with a name that contains markup and scripts."""
    unsafe = evaluation(UNSAFE, {"one": 70.0, "two": None}) | {"transfer": transfer({"mr": 80.0, "cr": 70.0})}
    unsafe |= {"unavailable": {"sts12": "no such <folder>."}}
    other = evaluation("other", {"one": 60.0, "two": 50.0}) | {"transfer": transfer({"mr": 90.0, "cr": None})}
    sides = [side(UNSAFE, unsafe), side("other", other)]
    row = row_of(70.0, 60.0, separable=True)
    tested = comparison(sides[0], sides[1], {"one": row}, overall={"tasks": ["one"]} | row)
    second = training_run("group/seed-2", seed=2)
    runs = [
        training_run(UNSAFE)._replace(files={"config.toml": f"method = {UNSAFE!r}\n"}),
        training_run("group/seed-1")._replace(group_name="group"),
        second._replace(group_name="group", settings={**second.settings, "temperature": 0.1, "output": "x"}),
        training_run("going on", finished=False),
        training_run("bare", steps=[], evaluations=[])._replace(
            record=TrainingRecord.from_dict({"config": {}, "history": [[3, 0.5], [6, 0.4]]})
        ),
    ]
    return ReportInputs(
        sides=sides,
        comparisons=[("c.json", ComparisonResult.from_dict(tested))],
        geometries=[("g.json", GeometryResult.from_dict(geometry(UNSAFE, "other")))],
        runs=runs,
        missing=["x has no <y>."],
    )


def runs_with_tests() -> ReportInputs:
    """Runs with tests on different rows: one that got better, one that cannot be told, one without a score."""
    missing = row_of(1.0, 1.0, separable=False) | dict.fromkeys(("difference", "first", "verdict", "p"))
    return ReportInputs(
        runs=[
            run_with_test("good", row_of(81.5, 79.0, separable=True), queries=queries(UNSAFE, "<b>wrong</b>")),
            run_with_test("other", row_of(90.0, 91.0, separable=False), held_out="other rows"),
            run_with_test("broken", missing | {"reason": "why"}),
        ]
    )


def _screens() -> str:
    few, many = whole()["retrieval"], {f"t{number}": ranked() for number in range(4)}
    shown = [(few, None), (few, "recall@1"), (many, None)]
    results = [(read(evaluation("m", {}) | {"retrieval": tasks}), measure) for tasks, measure in shown]
    return "\n\n".join(to_markdown(evaluation_tables(one, screen=True, measure=measure)[0]) for one, measure in results)


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    three = {"one": (70.0, 72.0, 60.0), "two": (50.0, 40.0, 41.0)}
    results: dict[str, dict[str, Any]] = {
        "evaluation": whole(),
        "finetuned": finetuned(),
        "comparison": verdicts(),
        "accuracies": of_kind(mr="classification"),
        "retrieval": of_kind(a="retrieval", b="retrieval"),
        "mixed": of_kind(one="similarity", mr="classification", a="retrieval"),
        "comparisons": pairwise(three),
        "systems": pairwise({"x": three["one"], "y": three["two"]}, systems=True),
        "many-systems": pairwise({"x": tuple(60.0 - 3 * n for n in range(12))}, systems=True),
        "geometry": geometry("A", "B"),
    }
    reports = {"report": report_inputs(), "tested-runs": runs_with_tests()}
    tested = {name: next((one for _, one in inputs.comparisons), None) for name, inputs in reports.items()}
    return {
        **{name: result_markdown(read(content)) for name, content in results.items()},
        **{
            name: blocks.to_markdown(compose(inputs, title=UNSAFE, computed=tested[name]))
            for name, inputs in reports.items()
        },
        "screens": _screens() + "\n",
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in pages().items():
        (FOLDER / f"{name}.md").write_text(page, encoding="utf-8")
