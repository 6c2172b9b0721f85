"""The metadata of a model card: the YAML that the Hugging Face Hub reads, by huggingface_hub's own writer."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nearfar.commands.push.run_records import RunRecords
from nearfar.data.named_sets import CATALOG
from nearfar.evaluation.results import EvaluationResult


def metadata(run: RunRecords | None, name: str, results: Sequence[EvaluationResult], *, is_classifier: bool) -> str:
    """YAML with library, task, tags, base model, data sets and scores, as far as they are known.

    ``name`` is ``owner/name``, or empty for a model that is only on this machine.
    """
    from huggingface_hub import EvalResult, ModelCardData

    library, task = "sentence-transformers", "sentence-similarity"
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "nearfar"]
    if is_classifier:
        library, task, tags = "transformers", "text-classification", ["text-classification", "nearfar"]
    scores = [
        EvalResult(
            task_type=task,
            dataset_type=title,
            dataset_name=title,
            metric_type=metric,
            metric_name=f"{metric} x 100",
            metric_value=round(score, 2),
        )
        for title, metric, score in _scores(run, results)
    ]
    data = ModelCardData(
        library_name=library,
        pipeline_tag=task,
        tags=tags,
        base_model=hub_name(run.config.get("model")) if run else None,
        datasets=(_data_sets(run) or None) if run else None,
        model_name=(name.partition("/")[2] or "model") if scores else None,
        eval_results=scores or None,
    )
    return str(data.to_yaml()).strip()


def hub_name(model: object) -> str | None:
    """``model`` if it is ``owner/name`` on the hub rather than a folder; None otherwise."""
    text = str(model or "")
    is_name = text.count("/") == 1 and not text.startswith(("/", ".", "~")) and not text.endswith("/")
    return text if is_name and not Path(text).exists() else None


def _scores(run: RunRecords | None, results: Sequence[EvaluationResult]) -> Iterator[tuple[str, str, float]]:
    """Data, metric and score (x 100): held-out rows, test rows of a classifier, similarity and transfer tasks."""
    for row in (run.held_out.tasks if run and run.held_out else {}).values():
        if run and row.first is not None:
            yield "held-out rows", str(run.info.get("metric")), row.first
    for result in [*([run.test] if run and run.test else []), *results]:
        for task, scored in result.tasks.items():
            if scored.spearman.all.score is not None:
                yield task, "spearman", scored.spearman.all.score
        for task, probed in (result.transfer.tasks if result.transfer else {}).items():
            for metric in ("accuracy", "pearson"):
                estimate = probed.metric(metric)
                if estimate is not None and estimate.score is not None:
                    yield task, metric, estimate.score
                    break


def _data_sets(run: RunRecords) -> list[str]:
    """The data sets on the hub that hold the same rows as the training data."""
    names = []
    for spec in (*(run.config.get("data") or ()), *(run.config.get("sentences") or ())):
        first, _, rest = str(spec).partition(":")
        if first == "hub":
            names.append("/".join(rest.partition(":")[0].split("/")[:2]))
        elif (entry := CATALOG.get(first)) is not None and entry.hub:
            names.append("/".join(entry.hub.split("/")[:2]))
    return list(dict.fromkeys(names))
