"""What the runs of a fine-tuning study came to: means, the best by validation, and tests of SCL against none.

A study has *settings* (how many rows, which noise, which batch size) and *variants* of the loss, each run on the same
samples. A *cell* is one run: ``{"setting", "variant", "sample", "validation", "test": {metric: score}, "best_step",
"steps", "seconds", "updates_per_second"}``, scores x 100. A summary has for each setting ::

    {
      "setting": name,
      "variants": {variant: {
        "samples": number, "validation": mean, "updates_per_second": median,
        "test": {metric: {"mean", "sd", "min", "max"}},
        "top3": the same over the three samples that are the best on the validation rows (Gunel et al. 2021)
      }},
      "difference": of the first metric, the last variant minus the first, where there are two: {"difference", "low",
        "high", "p", "p_holm", "p_ranks"}, paired by sample; p corrected over the settings
    }
"""

from collections.abc import Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any

from nearfar.evaluation.statistics import holm, rank_test_over_seeds, t_test_over_seeds

TOP = 3
Cell = Mapping[str, Any]


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The summary of each setting, in the order of the cells."""
    settings = list(dict.fromkeys(cell["setting"] for cell in cells))
    rows = [_summary(name, [cell for cell in cells if cell["setting"] == name]) for name in settings]
    tested = [row["difference"] for row in rows if row["difference"] and row["difference"]["p"] is not None]
    for difference, p in zip(tested, holm([difference["p"] for difference in tested]), strict=True):
        difference["p_holm"] = p
    return rows


def _summary(name: str, cells: Sequence[Cell]) -> dict[str, Any]:
    variants = list(dict.fromkeys(cell["variant"] for cell in cells))
    by_variant = {variant: [cell for cell in cells if cell["variant"] == variant] for variant in variants}
    row: dict[str, Any] = {
        "setting": name,
        "variants": {variant: _variant(held) for variant, held in by_variant.items()},
        "difference": None,
    }
    if len(variants) == 2:
        row["difference"] = _difference(*by_variant.values())
    return row


def _variant(cells: Sequence[Cell]) -> dict[str, Any]:
    best = sorted(cells, key=lambda cell: -cell["validation"])[:TOP]
    return {
        "samples": len(cells),
        "validation": mean(cell["validation"] for cell in cells),
        "updates_per_second": median(cell["updates_per_second"] for cell in cells),
        "test": {metric: _spread([cell["test"][metric] for cell in cells]) for metric in cells[0]["test"]},
        "top3": {metric: _spread([cell["test"][metric] for cell in best]) for metric in cells[0]["test"]},
    }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    sd = stdev(values) if len(values) > 1 else None
    return {"mean": mean(values), "sd": sd, "min": min(values), "max": max(values)}


def _difference(before: Sequence[Cell], after: Sequence[Cell]) -> dict[str, Any] | None:
    """Second variant minus first on the samples that both have."""
    metric = next(iter(before[0]["test"]))
    first = {cell["sample"]: cell["test"][metric] for cell in before}
    second = {cell["sample"]: cell["test"][metric] for cell in after}
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    a, b = [second[sample] for sample in shared], [first[sample] for sample in shared]
    tested, ranks = t_test_over_seeds(a, b, paired=True), rank_test_over_seeds(a, b, paired=True)
    return {
        "metric": metric,
        "samples": len(shared),
        "difference": mean(a) - mean(b),
        "low": tested.low if tested else None,
        "high": tested.high if tested else None,
        "p": tested.p if tested else None,
        "p_holm": None,
        "p_ranks": ranks[0] if ranks else None,
    }


def best_variant(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Setting and variant with the best mean on the validation rows; test rows have no say."""
    means = [(v["validation"], row["setting"], name) for row in rows for name, v in row["variants"].items()]
    best = max(means, key=lambda one: one[0])
    return best[1], best[2]


def study_markdown(study: Mapping[str, Any]) -> str:
    """The study as tables: every variant of every setting, then the differences."""
    lines = [f"# {study['title']}", "", *(f"- {fact}" for fact in study["facts"]), ""]
    metrics = list(next(iter(study["settings"][0]["variants"].values()))["test"])
    header = ["setting", "loss", "samples", "validation", *metrics]
    header += [f"{metrics[0]}, top {TOP} by validation", "updates/s"]
    rows = []
    for row in study["settings"]:
        for name, held in row["variants"].items():
            scores = [_format_spread(held["test"][metric]) for metric in metrics]
            scores.append(_format_spread(held["top3"][metrics[0]]))
            numbers = [str(held["samples"]), f"{held['validation']:.2f}", *scores, f"{held['updates_per_second']:.2f}"]
            rows.append([row["setting"], name, *numbers])
    lines += [*_table(header, rows), "", "Scores x 100: mean and standard deviation over samples."]
    differences = [row for row in study["settings"] if row["difference"]]
    if differences:
        lines += ["", *_differences(differences)]
    if study.get("chosen"):
        lines += ["", f"The validation rows choose {study['chosen'][1]}."]
    return "\n".join([*lines, ""])


def _differences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(rows[0]["variants"])
    table = []
    for row in rows:
        found = row["difference"]
        interval = "" if found["low"] is None else f" [{found['low']:+.2f}, {found['high']:+.2f}]"
        ps = [found[key] for key in ("p", "p_holm", "p_ranks")]
        table.append(
            [row["setting"], f"{found['difference']:+.2f}{interval}", *("" if p is None else f"{p:.4f}" for p in ps)]
        )
    title = f"{names[1]} minus {names[0]}, {rows[0]['difference']['metric']} [95%]"
    return _table(["setting", title, "p, paired t", "p (Holm)", "p, Wilcoxon"], table)


def _format_spread(spread: Mapping[str, float | None]) -> str:
    return f"{spread['mean']:.2f}" + ("" if spread["sd"] is None else f" ({spread['sd']:.2f})")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
