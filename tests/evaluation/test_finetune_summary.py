"""Summary of a fine-tuning study: means, the top 3, and tests, against numpy, scipy and numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nearfar.evaluation.finetune_summary import TOP, best_variant, study_markdown, summarise
from nearfar.evaluation.results import ScoreSummary, StudyResult, StudyRun, VariantDifference

Cells = list[StudyRun]


def cell(
    variant: str, sample: int, validation: float, test: float, *, setting: str = "20 rows", speed: float = 1.0
) -> StudyRun:
    return StudyRun(
        setting=setting,
        variant=variant,
        sample=sample,
        validation=validation,
        test={"accuracy": test, "f1": test / 2},
        updates_per_second=1.0,
    )


def make_cells(samples: int, *, seed: int, setting: str = "20 rows", gain: float = 3.0) -> Cells:
    """Return the cells of two variants on ``samples`` samples, as a study lists them."""
    rng = np.random.default_rng(seed)
    cells = []
    for sample in range(1, samples + 1):
        level = rng.normal(70, 5)
        for variant, better in (("CE", 0.0), ("CE+SCL", gain)):
            validation, test = (round(float(level + better + rng.normal(0, 2)), 4) for _ in range(2))
            cells.append(cell(variant, sample, validation, test, setting=setting))
    return cells


def scores_of(cells: Cells, variant: str) -> np.ndarray:
    return np.array([one.test["accuracy"] for one in cells if one.variant == variant])


def test_means_and_spread_of_each_variant() -> None:
    cells = make_cells(7, seed=0)
    cells = [replace(one, updates_per_second=float(number**2)) for number, one in enumerate(cells)]
    (row,) = summarise(cells)
    assert row.setting == "20 rows"
    assert list(row.variants) == ["CE", "CE+SCL"]
    for variant, statistics in row.variants.items():
        scores = scores_of(cells, variant)
        own = [one for one in cells if one.variant == variant]
        assert statistics.samples == 7
        assert statistics.validation == pytest.approx(np.mean([one.validation for one in own]))
        assert statistics.updates_per_second == np.median([one.updates_per_second for one in own])
        expected = {"mean": scores.mean(), "sd": scores.std(ddof=1), "min": scores.min(), "max": scores.max()}
        assert statistics.test["accuracy"].to_dict() == pytest.approx(expected)
        assert statistics.test["f1"].mean == pytest.approx(scores.mean() / 2)


def test_the_top_3_are_chosen_by_validation_scores() -> None:
    validation = [70, 90, 80, 60, 85]  # the best: samples 2, 5, 3
    test = [99, 10, 20, 98, 60]
    cells = [cell("CE", number, *both) for number, both in enumerate(zip(validation, test, strict=True), start=1)]
    (row,) = summarise(cells)
    expected = {"mean": 30, "sd": np.std([10, 60, 20], ddof=1), "min": 10, "max": 60}
    assert row.variants["CE"].top3["accuracy"].to_dict() == pytest.approx(expected)
    assert row.variants["CE"].top3["f1"].mean == pytest.approx(15)
    (row,) = summarise(cells[:2])  # fewer samples than 3
    assert TOP == 3
    assert row.variants["CE"].top3 == row.variants["CE"].test


def test_ties_on_validation_are_broken_by_the_first_samples() -> None:
    (row,) = summarise([cell("CE", sample, 50, 10 * sample) for sample in (1, 2, 3, 4, 5)])
    assert row.variants["CE"].top3["accuracy"].mean == 20


def test_the_difference_is_tested_on_pairs() -> None:
    cells = make_cells(8, seed=3)
    (row,) = summarise(cells)
    before, after = scores_of(cells, "CE"), scores_of(cells, "CE+SCL")
    outcome = stats.ttest_rel(after, before)
    bounds = outcome.confidence_interval(0.95)
    found = row.difference
    assert (found.metric, found.samples) == ("accuracy", 8)
    assert found.difference == pytest.approx((after - before).mean())
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high))
    assert found.p == found.p_holm == pytest.approx(outcome.pvalue)  # with a single setting
    assert 0 < found.p < 0.2
    assert found.p != pytest.approx(stats.ttest_ind(after, before).pvalue, rel=0.05)
    assert found.p_ranks == pytest.approx(stats.wilcoxon(after - before).pvalue)
    shuffled = [cells[index] for index in np.random.default_rng(0).permutation(len(cells)) if index]
    (again,) = summarise([cells[0], *shuffled])  # pairs are matched by sample, not by position
    numbers = [{k: v for k, v in one.to_dict().items() if k != "metric"} for one in (again.difference, found)]
    assert numbers[0] == pytest.approx(numbers[1])


def test_p_is_corrected_over_the_settings() -> None:
    sizes = {"20 rows": 4.0, "100 rows": 1.0, "1000 rows": 2.0}
    cells = [
        one
        for seed, (name, gain) in enumerate(sizes.items())
        for one in make_cells(6, seed=seed, setting=name, gain=gain)
    ]
    rows = summarise(cells)
    assert [row.setting for row in rows] == list(sizes)
    p = [row.difference.p for row in rows]
    assert len(set(p)) == 3
    # Holm by hand: the smallest times 3, then 2, then 1, never decreasing
    least, middle, most = np.argsort(p)
    expected = {least: min(1, 3 * p[least])}
    expected[middle] = max(expected[least], min(1, 2 * p[middle]))
    expected[most] = max(expected[middle], p[most])
    assert [row.difference.p_holm for row in rows] == pytest.approx([expected[index] for index in range(3)])


def test_one_sample_has_no_p_and_is_not_corrected_for() -> None:
    alone = [cell("CE", 1, 50, 60, setting="one"), cell("CE+SCL", 1, 50, 62.5, setting="one")]
    several = make_cells(5, seed=1)
    first, second = summarise([*alone, *several])
    assert first.difference == VariantDifference(
        metric="accuracy", samples=1, difference=2.5, low=None, high=None, p=None, p_holm=None, p_ranks=None
    )
    assert first.variants["CE"].test["accuracy"] == ScoreSummary(mean=60, sd=None, min=60, max=60)
    assert second.difference.p_holm == second.difference.p


def test_equal_differences_have_no_t_statistic() -> None:
    cells = [cell(v, sample, 50, 60 + sample + (v == "CE+SCL")) for sample in (1, 2, 3) for v in ("CE", "CE+SCL")]
    (row,) = summarise(cells)
    assert (row.difference.difference, row.difference.p) == (1.0, None)
    assert row.difference.p_ranks == pytest.approx(0.25)  # 2 / 2^3
    (row,) = summarise([replace(one, test={"accuracy": 50.0}) for one in cells])
    assert (row.difference.difference, row.difference.p_ranks) == (0.0, None)


def test_samples_missing_in_one_variant_are_not_compared() -> None:
    cells = make_cells(6, seed=5)
    fewer = [one for one in cells if (one.variant, one.sample) not in {("CE", 2), ("CE+SCL", 5)}]
    (row,) = summarise(fewer)
    kept = [one for one in cells if one.sample not in (2, 5)]
    before, after = scores_of(kept, "CE"), scores_of(kept, "CE+SCL")
    assert row.difference.samples == 4
    assert row.difference.difference == pytest.approx((after - before).mean())
    assert row.difference.p == pytest.approx(stats.ttest_rel(after, before).pvalue)
    assert [statistics.samples for statistics in row.variants.values()] == [5, 5]
    (row,) = summarise([cell("CE", 1, 50, 60), cell("CE+SCL", 2, 50, 70)])
    assert row.difference is None


def test_differences_require_exactly_two_variants() -> None:
    cells = [one for one in make_cells(4, seed=0) if one.variant == "CE"]
    assert [row.difference for row in summarise(cells)] == [None]
    assert [row.difference for row in summarise([*make_cells(4, seed=0), cell("other", 1, 50, 60)])] == [None]


def test_the_best_setting_is_chosen_by_validation_scores() -> None:
    cells = [cell("a", 1, 80, 10), cell("a", 2, 60, 10), cell("b", 1, 71, 5), cell("b", 2, 70, 5)]
    cells += [cell("c", 1, 70.6, 99, setting="other")]
    assert best_variant(summarise(cells)) == ("other", "c")
    assert best_variant(summarise(cells[:4])) == ("20 rows", "b")  # a mean of 70.5, compared with 70


def test_the_page_shows_every_number() -> None:
    cells = [*make_cells(4, seed=0), cell("CE", 1, 50, 60, setting="one"), cell("CE+SCL", 1, 50, 62.5, setting="one")]
    settings = summarise(cells)
    study = StudyResult(
        title="sst2: CE, CE+SCL", config={}, facts=["train: few", "test: some"], settings=settings, cells=cells
    )
    page = study_markdown(study)
    assert page.startswith("# sst2: CE, CE+SCL\n\n- train: few\n- test: some\n\n| setting | loss |")
    before, after = scores_of(cells[:8], "CE"), scores_of(cells[:8], "CE+SCL")
    statistics = settings[0].variants["CE+SCL"]
    top = statistics.top3["accuracy"]
    assert (
        f"| 20 rows | CE+SCL | 4 | {statistics.validation:.2f} | {after.mean():.2f} ({after.std(ddof=1):.2f}) | "
        f"{after.mean() / 2:.2f} ({after.std(ddof=1) / 2:.2f}) | {top.mean:.2f} ({top.sd:.2f}) | 1.00 |"
    ) in page
    assert "| one | CE | 1 | 50.00 | 60.00 | 30.00 | 60.00 | 1.00 |" in page
    difference = after - before
    outcome = stats.ttest_rel(after, before)
    low, high = outcome.confidence_interval(0.95)
    assert "| setting | CE+SCL minus CE, accuracy [95%] | p, paired t | p (Holm) | p, Wilcoxon |" in page
    ranks = stats.wilcoxon(difference).pvalue
    assert (
        f"| 20 rows | {difference.mean():+.2f} [{low:+.2f}, {high:+.2f}] | {outcome.pvalue:.4f} | "
        f"{outcome.pvalue:.4f} | {ranks:.4f} |"
    ) in page
    assert "| one | +2.50 |  |  |  |" in page
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert [len(line.split(" | ")) for line in lines] == [8] * 6 + [5] * 4
    assert "Best on" not in page
    assert "Best on the validation rows: b." in study_markdown(replace(study, chosen=["20 rows", "b"]))


def test_a_page_without_differences() -> None:
    cells = [one for one in make_cells(4, seed=0) if one.variant == "CE"]
    page = study_markdown(StudyResult(title="t", config={}, facts=[], settings=summarise(cells), cells=cells))
    assert "minus" not in page
    assert "| 20 rows | CE | 4 |" in page
