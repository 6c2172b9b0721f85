"""Scores and shares as text; what models have seen in training: a table for each, and notes on comparisons."""

from collections.abc import Mapping, Sequence
from statistics import mean

from nearfar.evaluation.render import Table
from nearfar.evaluation.results import ComparedSide, Estimate, EvaluationResult, SeenShares

LEGEND = (
    "Seen: trained on with nearfar, or part of the dev set that chose the training step. The data of the model that "
    "training started from are not known."
)


def format_score(score: float | None) -> str:
    """Two decimals, or ``undefined``."""
    return "undefined" if score is None else f"{score:.2f}"


def format_estimate(estimate: Estimate | None) -> str:
    """A score with its interval, where it has one; empty for None."""
    if estimate is None:
        return ""
    if estimate.score is None or estimate.low is None or estimate.high is None:
        return format_score(estimate.score)
    return f"{estimate.score:.2f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def format_share(share: float) -> str:
    """A share in percent.

    >>> [format_share(share) for share in (0, 0.0002, 0.0087, 0.3227, 0.998, 1)]
    ['0%', '<0.1%', '0.9%', '32%', '>99%', '100%']
    """
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "<0.1%"
    if share > 0.99:
        return ">99%"
    return f"{share:.1%}" if share < 0.095 else f"{share:.0%}"


def format_seen(seen: SeenShares | None) -> str:
    """The share of the pairs, and in brackets that of the texts; only that of the texts where rows have one text."""
    if seen is None:
        return ""
    if seen.pairs is None:
        return format_share(seen.texts)
    return f"{format_share(seen.pairs)} ({format_share(seen.texts)})"


def mean_seen(runs: Sequence[SeenShares | None]) -> SeenShares | None:
    """The mean over runs, rounded to 6 decimals; None where a run has no record."""
    known = [one for one in runs if one is not None]
    if not known or len(known) < len(runs):
        return None
    if all(one == known[0] for one in known):
        return known[0]

    def average(key: str) -> float | None:
        values = [getattr(one, key) for one in known]
        return None if None in values else round(mean(values), 6)

    return SeenShares(
        pairs=average("pairs"),
        texts=average("texts") or 0.0,
        chosen_pairs=average("chosen_pairs"),
        chosen_texts=average("chosen_texts") or 0.0,
        dev=True if all(one.dev for one in known) else None,
    )


def seen_of(results: Sequence[EvaluationResult]) -> dict[str, SeenShares]:
    """Task -> what the runs of a model have seen of it; tasks that all results have, where it is known."""
    shared = [task for task in results[0].all_tasks if all(task in result.all_tasks for result in results)]
    means = {task: mean_seen([result.all_tasks[task].seen for result in results]) for task in shared}
    return {task: seen for task, seen in means.items() if seen is not None}


def seen_notes(seen: Mapping[str, SeenShares]) -> list[str]:
    """Notes on one model: what chose its step, and the dev sets among the tasks."""
    dev = [task for task, one in seen.items() if one.dev]
    chosen = [
        f"{task} {format_share(share)}"
        for task, one in seen.items()
        if not one.dev and (share := one.chosen_texts if one.chosen_pairs is None else one.chosen_pairs)
    ]
    notes = [f"Not trained on, but part of the dev set that chose the training step: {', '.join(chosen)}."] * bool(
        chosen
    )
    return notes + [
        f"{task} is in the dev set that chose the training step: its score is a dev score, not a test score."
        for task in dev
    ]


def seen_tables(result: EvaluationResult) -> list[Table]:
    """What a model has seen of its tasks; empty where its training left no record."""
    seen = seen_of([result])
    if not seen:
        return []
    unseen = {task: one.unseen for task, one in result.tasks.items() if task in seen and one.unseen is not None}
    rows = []
    for task, shares in seen.items():
        cells = [task, "" if shares.pairs is None else format_share(shares.pairs), format_share(shares.texts)]
        if task in unseen:
            score = format_score(result.tasks[task].spearman.all.score)
            cells += [score, str(unseen[task].pairs), format_estimate(unseen[task].spearman)]
        elif unseen:
            cells += [""] * 3
        rows.append(cells)
    title = f"{result.model}: share of each task that the model has seen in training"
    what = ["Scores: Spearman x 100 (all), over all pairs, and over those that the model has not seen."] * bool(unseen)
    reasons = [f"{task}, unseen: {one.spearman.reason}." for task, one in unseen.items() if one.spearman.reason]
    scores = ["score", "unseen pairs", "unseen score"] if unseen else []
    notes = [LEGEND, *what, *seen_notes(seen), *sorted(reasons)]
    return [Table(title=title, columns=["task", "pairs seen", "texts seen", *scores], rows=rows, notes=notes)]


def mean_score(scores: Sequence[float | None]) -> float | None:
    """The mean; None where a score is undefined."""
    known = [score for score in scores if score is not None]
    return mean(known) if known and len(known) == len(scores) else None


def comparison_notes(names: Sequence[str], sides: Sequence[ComparedSide]) -> list[str]:
    """Notes on a comparison: tasks of which the sides have seen unequal shares, and tasks that are a side's dev set."""
    seen = [side.seen or {} for side in sides]
    tasks = dict.fromkeys(task for one in seen for task in one)
    unequal = [
        f"{task} " + ", ".join(_side(name, one.get(task)) for name, one in zip(names, seen, strict=True))
        for task in tasks
        if _differ([one.get(task) for one in seen])
    ]
    dev = [
        f"{task} is in the dev set that chose the training step of {name}: its score is a dev score, not a test score."
        for name, one in zip(names, seen, strict=True)
        for task, shares in one.items()
        if shares.dev
    ]
    if not unequal:
        return dev
    return [
        "The sides have seen unequal shares of the tested pairs (in brackets: of the texts) in training, which favours "
        f"the side that has seen more: {'; '.join(unequal)}.",
        *dev,
    ]


def _side(name: str, seen: SeenShares | None) -> str:
    return f"{name} {'not recorded' if seen is None else format_seen(seen)}"


def _differ(shares: Sequence[SeenShares | None]) -> bool:
    """Whether the shares are unequal; a side without a record may have seen nothing."""
    numbers = {(0.0, 0.0) if one is None else (one.pairs or 0.0, one.texts) for one in shares}
    return len(numbers) > 1
