"""How a report groups its inputs, and how it names them."""

from nearfar.evaluation.comparison import EvaluationRun
from nearfar.evaluation.report.inputs import (
    assign_seed_groups,
    disambiguate_names,
    group_by_setting,
    name_without_seed,
)
from nearfar.evaluation.results import EvaluationResult
from tests.evaluation.report.cases import evaluation, training_run


def run(source: str, name: str, seed: int | None) -> EvaluationRun:
    return EvaluationRun(source, EvaluationResult.from_dict(evaluation(name, {"one": 1.0}, seed=seed)))


def test_a_setting_is_the_name_without_its_seed() -> None:
    for name, seed, setting in (
        ("scl-1", 1, "scl"),
        ("runs/scl/seed-12", 12, "runs/scl"),
        ("scl_seed_3", 3, "scl"),
        ("scl-2", 1, "scl-2"),
        ("scl-1", None, "scl-1"),
        ("-1", 1, "-1"),
        ("top10", 10, "top10"),
    ):
        assert name_without_seed(EvaluationResult.from_dict(evaluation(name, {}, seed=seed))) == setting, name


def test_single_files_are_grouped_as_seeds_of_one_setting_if_possible() -> None:
    runs = [
        run("r/a-1.json", "a-1", 1),
        run("r/b.json", "b", None),
        run("r/a-2.json", "a-2", 2),
        run("other/a-3.json", "a-3", 3),
        run("r/c-1.json", "c", 1),
        run("r/c-1-again.json", "c", 1),
    ]
    sides = group_by_setting(runs, {})
    expected = [("a", (1, 2)), ("b", (None,)), ("a-3", (3,)), ("c", (1,)), ("c", (1,))]
    assert [(side.name, tuple(one.result.training_seed for one in side.runs)) for side in sides] == expected
    names = ["a", "b", "a-3", "c (r/c-1.json)", "c (r/c-1-again.json)"]
    assert [side.name for side in disambiguate_names(sides)] == names


def test_runs_that_differ_only_in_the_seed_are_grouped() -> None:
    runs = [training_run(f"a-{n}", seed=n) for n in (1, 2)] + [training_run("b-1"), training_run("a-7", seed=7)]
    runs[3] = runs[3]._replace(settings={**runs[3].settings, "temperature": 1.0})
    assert [one.group_name for one in assign_seed_groups(runs)] == ["a", "a", "b-1", "a-7"]
    with_other_run = [*runs, training_run("a", seed=9)]
    names = ["a-1", "a-2", "b-1", "a-7", "a"]  # "a" is another run
    assert [one.group_name for one in assign_seed_groups(with_other_run)] == names
