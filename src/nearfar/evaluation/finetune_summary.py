"""Summary of a fine-tuning study: means per setting, the best variant by validation, and tests of SCL against CE."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median

from nearfar.evaluation.results import (
    ScoreSummary,
    SettingSummary,
    StudyResult,
    StudyRun,
    VariantDifference,
    VariantSummary,
)
from nearfar.evaluation.statistics import holm, rank_test_over_seeds, t_test_over_seeds

TOP = 3


def summarise(runs: Sequence[StudyRun]) -> list[SettingSummary]:
    """The summary of each setting, in the order of the runs; p is corrected over settings (Holm)."""
    names = list(dict.fromkeys(run.setting for run in runs))
    settings = [_summarise_setting(name, [run for run in runs if run.setting == name]) for name in names]
    tested = [row.difference.p for row in settings if row.difference and row.difference.p is not None]
    corrected = iter(holm(tested))
    return [
        replace(row, difference=replace(row.difference, p_holm=next(corrected)))
        if row.difference and row.difference.p is not None
        else row
        for row in settings
    ]


def _summarise_setting(name: str, runs: Sequence[StudyRun]) -> SettingSummary:
    variants = list(dict.fromkeys(run.variant for run in runs))
    by_variant = {variant: [run for run in runs if run.variant == variant] for variant in variants}
    return SettingSummary(
        setting=name,
        variants={variant: _summarise_variant(members) for variant, members in by_variant.items()},
        difference=_difference(*by_variant.values()) if len(variants) == 2 else None,
    )


def _summarise_variant(runs: Sequence[StudyRun]) -> VariantSummary:
    best = sorted(runs, key=lambda run: -run.validation)[:TOP]
    return VariantSummary(
        samples=len(runs),
        validation=mean(run.validation for run in runs),
        updates_per_second=median(run.updates_per_second for run in runs),
        test={metric: ScoreSummary.from_values([run.test[metric] for run in runs]) for metric in runs[0].test},
        top3={metric: ScoreSummary.from_values([run.test[metric] for run in best]) for metric in runs[0].test},
    )


def _difference(before: Sequence[StudyRun], after: Sequence[StudyRun]) -> VariantDifference | None:
    """Second variant minus first, on the samples that both have."""
    metric = next(iter(before[0].test))
    first = {run.sample: run.test[metric] for run in before}
    second = {run.sample: run.test[metric] for run in after}
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    a, b = [second[sample] for sample in shared], [first[sample] for sample in shared]
    tested, ranks = t_test_over_seeds(a, b, paired=True), rank_test_over_seeds(a, b, paired=True)
    return VariantDifference(
        metric=metric,
        samples=len(shared),
        difference=mean(a) - mean(b),
        low=tested.low if tested else None,
        high=tested.high if tested else None,
        p=tested.p if tested else None,
        p_holm=None,
        p_ranks=ranks[0] if ranks else None,
    )


def best_variant(settings: Sequence[SettingSummary]) -> tuple[str, str]:
    """Setting and variant with the best mean on the validation rows; test rows are not used."""
    means = [(variant.validation, row.setting, name) for row in settings for name, variant in row.variants.items()]
    best = max(means, key=lambda one: one[0])
    return best[1], best[2]


def study_markdown(study: StudyResult) -> str:
    """The study as tables: every variant of every setting, then the differences."""
    lines = [f"# {study.title}", "", *(f"- {fact}" for fact in study.facts), ""]
    metrics = list(next(iter(study.settings[0].variants.values())).test)
    header = ["setting", "loss", "samples", "validation", *metrics]
    header += [f"{metrics[0]}, top {TOP} by validation", "updates/s"]
    rows = []
    for row in study.settings:
        for name, variant in row.variants.items():
            scores = [_format_summary(variant.test[metric]) for metric in metrics]
            scores.append(_format_summary(variant.top3[metrics[0]]))
            numbers = [str(variant.samples), f"{variant.validation:.2f}", *scores, f"{variant.updates_per_second:.2f}"]
            rows.append([row.setting, name, *numbers])
    lines += [*_table(header, rows), "", "Scores x 100: mean and standard deviation over samples."]
    if any(row.difference for row in study.settings):
        lines += ["", *_differences(study.settings)]
    if study.chosen:
        lines += ["", f"Best on the validation rows: {study.chosen[1]}."]
    return "\n".join([*lines, ""])


def _differences(settings: Sequence[SettingSummary]) -> list[str]:
    title, table = "", []
    for row in settings:
        found = row.difference
        if found is None:
            continue
        first, second = row.variants
        title = title or f"{second} minus {first}, {found.metric} [95%]"
        interval = "" if found.low is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
        ps = ("" if p is None else f"{p:.4f}" for p in (found.p, found.p_holm, found.p_ranks))
        table.append([row.setting, f"{found.difference:+.2f}{interval}", *ps])
    return _table(["setting", title, "p, paired t", "p (Holm)", "p, Wilcoxon"], table)


def _format_summary(summary: ScoreSummary) -> str:
    return f"{summary.mean:.2f}" + ("" if summary.sd is None else f" ({summary.sd:.2f})")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
