"""Small results of every kind, as file content, for the tests of reports; and a parser of pages."""

from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np

from nearfar.evaluation.comparison import EvaluationRun
from nearfar.evaluation.report.inputs import EvaluatedModel, TrainingRun
from nearfar.evaluation.results import (
    DevEvaluation,
    EvaluationResult,
    Result,
    TrainingRecord,
    TrainingStep,
)

PROVENANCE = {
    "date": "2024-01-02T03:04:05+00:00",
    "command": "nearfar evaluate m",
    "commit": "abc",
    "versions": {"python": "3.11", "torch": None},
    "hardware": {"processor": "fast", "cores": 2, "accelerator": None},
}
GOLD = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def estimate(score: float | None, reason: str = "why") -> dict[str, Any]:
    if score is None:
        return {"score": None, "low": None, "high": None, "reason": reason}
    return {"score": score, "low": score - 1.25, "high": score + 2}


def all_aggregates(score: float | None) -> dict[str, Any]:
    """The score of all pairs, and the two averages of subsets, one and two points lower."""
    lower = {kind: None if score is None else score - n for n, kind in enumerate(("all", "mean", "wmean"))}
    return {kind: estimate(value) for kind, value in lower.items()}


def evaluation(
    name: str, scores: dict[str, float | None], *, seed: int | None = None, **changes: Any
) -> dict[str, Any]:
    """An evaluation with these Spearman scores by task; Pearson is ten points higher."""
    rng = np.random.default_rng([*name.encode(), seed or 0])

    def task(score: float | None) -> dict[str, Any]:
        cosines = (100_000 * (np.array(GOLD) + 2 * rng.normal(size=10))).astype(int).tolist()
        pearson = all_aggregates(None if score is None else score + 10)
        values = {"pairs": 10, "digest": "d", "gold": GOLD, "cosines_e6": cosines}
        return {
            "pairs": 10,
            "zero_vectors": 0,
            "spearman": all_aggregates(score),
            "pearson": pearson,
            "subsets": {"only": values | {"spearman": estimate(score), "pearson": pearson["all"]}},
        }

    return {
        "schema": 1,
        "kind": "evaluation",
        "model": name,
        "config": {"pooling": "mean", "resamples": 1000, "training_seed": seed},
        "provenance": PROVENANCE,
        "unavailable": {},
        "averages": {},
        "tasks": {key: task(score) for key, score in scores.items()},
        **changes,
    }


def transfer(accuracies: dict[str, float | None], *, protocol: str = "senteval") -> dict[str, Any]:
    """Probes with these accuracies; mrpc has F1 too, and there is one learned relatedness."""

    def task(name: str, score: float | None) -> dict[str, Any]:
        right = 0 if score is None else round(score / 10)
        values = {
            "kind": "classification",
            "protocol": protocol,
            "rows": 10,
            "digest": name,
            "accuracy": estimate(score),
        }
        values |= {"gold": [1] * 10, "predicted": [1] * right + [0] * (10 - right)} if score is not None else {}
        return values | ({"f1": estimate(66.0)} if name == "mrpc" else {})

    learned = {"kind": "relatedness", "pairs": 3, "digest": "l", "pearson": estimate(60.0), "spearman": estimate(55.0)}
    learned |= {"mse": 0.1, "gold": [1.0, 2.0, 3.0], "predicted_e6": [1, 2, 3]}
    tasks = {name: task(name, score) for name, score in accuracies.items()} | {"learned": learned}
    return {"protocol": protocol, "nhid": 0, "folds": 10, "averages": {}, "tasks": tasks}


def read(content: dict[str, Any]) -> Any:
    """The result of a file with this content."""
    return Result.from_dict(content, source="f")


def ranked(
    values: dict[str, Sequence[float]], *, name: str = "m", seed: int | None = None, main: str = "ndcg@10"
) -> EvaluationRun:
    """An evaluation on retrieval tasks: the values of each query, for nDCG and half of them for MRR."""
    tasks = {}
    for task, of_queries in values.items():
        per_query = {"ndcg@10": list(map(float, of_queries)), "mrr@10": [float(value) / 2 for value in of_queries]}
        means = {measure: 100 * float(np.mean(found)) for measure, found in per_query.items()}
        measures = {measure: {"score": mean, "low": mean - 1, "high": mean + 1} for measure, mean in means.items()}
        entry = {"queries": len(of_queries), "documents": 70, "main": main, "measures": measures}
        tasks[task] = entry | {"per_query": per_query, "digest": task}
    content = {"schema": 1, "kind": "evaluation", "model": name, "config": {"training_seed": seed}, "tasks": {}}
    return EvaluationRun(f"{name}.json", EvaluationResult.from_dict(content | {"retrieval": tasks}))


def side(name: str, *results: dict[str, Any]) -> EvaluatedModel:
    return EvaluatedModel(
        name,
        tuple(
            EvaluationRun(f"{name}-{number}.json", EvaluationResult.from_dict(result))
            for number, result in enumerate(results)
        ),
    )


def row_of(first: float, second: float, *, separable: bool, p: float = 0.01) -> dict[str, Any]:
    difference = first - second
    row = {"first": first, "second": second, "difference": difference, "low": difference - 1, "high": difference + 1}
    verdict = ("better" if difference > 0 else "worse") if separable else "cannot tell"
    return row | {
        "p": p,
        "p_holm": 2 * p,
        "verdict": verdict,
        "units": 76,
        **({} if separable else {"more_units": 1500}),
    }


def comparison(
    first: EvaluatedModel, second: EvaluatedModel, rows: dict[str, dict[str, Any]], **changes: Any
) -> dict[str, Any]:
    def described(one: EvaluatedModel) -> dict[str, Any]:
        models = [run.result.model for run in one.runs]
        sources = [run.source for run in one.runs]
        return {
            "name": one.name,
            "models": models,
            "sources": sources,
            "training_seeds": [run.result.training_seed for run in one.runs],
        }

    config = {"metric": "spearman", "aggregate": "all", "resamples": 10_000, "seed": 0, "level": 0.05, "margin": 0.5}
    result = {"schema": 1, "kind": "comparison", "first": described(first), "second": described(second)}
    result |= {"config": config, "provenance": PROVENANCE, "not_compared": [], "tasks": rows}
    return result | {"overall": None, "overall_transfer": None} | changes


def queries(*texts: str) -> dict[str, Any]:
    """The queries of a comparison: examples whose right hit, the first of ``texts``, rises from rank 2 to 1."""
    hits = [{"text": text, "score": 0.5, "right": number == 0} for number, text in enumerate(texts)]
    sides = {
        "first": {"rank": 1, "searched": 10, "hits": hits},
        "second": {"rank": None, "searched": 10, "hits": hits[1:]},
    }
    examples = [
        {"change": change, "query": f"query {change}", "right": [texts[0]], **sides} for change in (1.0, 0.5, -0.5)
    ]
    return {"higher": 3, "lower": 1, "same": 0, "examples": examples}


def geometry(*names: str) -> dict[str, Any]:
    numbers = {"alignment": 0.2, "uniformity": -2.0, "isotropy": 0.5, "mean_cosine": 0.25, "effective_rank": 30.0}
    models = {
        name: {"model": name, "pooling": "mean", "dim": 4, "warning": None, "spectrum": [1.0, 0.5, 0.25, 0.0]}
        | numbers
        | {"uniformity": -2.0 - index}
        | {"layers": {"cls": [None, 20.0, 30.0], "mean": [40.0, 50.0, 60.0]}}
        for index, name in enumerate(names)
    }
    return {
        "schema": 1,
        "kind": "geometry",
        "config": {"positive_above": 4.0},
        "provenance": PROVENANCE,
        "pairs": {"spec": "stsb:dev", "instead_of": None, "pairs": 9, "positives": 5, "texts": 17, "digest": "d"},
        "task": {"spec": "stsb", "pairs": 9, "digest": "d"},
        "labelled": None,
        "unavailable": {},
        "plots": [],
        "models": models,
    }


def metrics_lines(seed: int) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of a small run: ten steps and three evaluations."""
    steps = [{"step": step, "loss": 2.0 / step} for step in range(1, 11)]
    scored = [(0, 0.5), (5, 0.7), (10, 0.6 + 0.01 * seed)]
    evaluations = [
        {"step": step, "metric": "spearman", "spearman": score, "best": True, "alignment": 0.1}
        for step, score in scored
    ]
    return sorted([*steps, *evaluations], key=lambda line: line["step"])


def training_record(seed: int) -> dict[str, Any]:
    """The content of run.json of a small run."""
    settings = {"method": "scl", "model": "m", "seed": seed, "evaluate_on": "stsb:dev", "temperature": 0.05}
    record = {"start_score": 0.5, "best_score": 0.7, "best_step": 5, "step": 10, "seconds": 90.0, "config": settings}
    return record | {"data": ["nli: 10 rows"], **PROVENANCE}


def training_run(name: str, *, seed: int = 1, finished: bool = True, **changes: Any) -> TrainingRun:
    record, lines = training_record(seed), metrics_lines(seed)
    steps = [TrainingStep.from_dict(line) for line in lines if "loss" in line]
    evaluations = [DevEvaluation.from_line(line, source="line") for line in lines if "loss" not in line]
    known = TrainingRecord.from_dict(record) if finished else None
    run = TrainingRun(name, name, name, record["config"], {}, steps, evaluations, known)
    return run._replace(**changes)


class ParsedPage(HTMLParser):
    """A parsed page: tags with their attributes, tables as rows of cells, headings, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.headings: list[tuple[int, str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input"):
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "h3", "h4"):
            self.headings.append((int(tag[1]), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"nothing is open at </{tag}>"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        if self.open and self.open[-1] in ("h1", "h2", "h3", "h4"):
            self.headings[-1] = (self.headings[-1][0], self.headings[-1][1] + data)
