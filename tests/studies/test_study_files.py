"""Study files: what they mean, the overlay of scales, and the message of every mistake."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from nearfar.studies.cells import load_study, plan_cells
from nearfar.studies.spec import PaperNumber, Study
from nearfar.types import NearfarError

BASE: dict[str, Any] = tomllib.loads("""
title = "A table"
columns = ["stsb", "sts12", "average"]
replicates = { seed = [1, 2] }
compare_with = "sbert"
train = { data = ["microworld"], max_steps = 3 }
evaluate = { tasks = ["stsb", "sts12"] }

[[axes]]
name = "lambda"
setting = "train.scl_weight"
values = [0, 0.3, 1]
labels = ["CE", "0.3", "1"]
as = "x"

[[rows]]
id = "scl"
model = "{start}"
train = { method = "scl" }
paper = [{ lambda = 0.3, stsb = 70 }, { lambda = "CE", stsb = [66, 0.5], sts12 = 60 }]

[[rows]]
id = "sbert"
axes = []
model = "{start}"
train = { method = "sbert" }

[[rows]]
id = "glove"
steps = ["evaluate"]
axes = []
model = "glove:vectors.txt"
replicates = {}

[scales.here]
columns = ["stsb"]
drop_rows = ["glove"]
train = { max_steps = 2 }
[[scales.here.axes]]
name = "lambda"
values = [0.3, 0.5]
[[scales.here.rows]]
id = "scl"
name = "SCL"
[[scales.here.rows]]
id = "augment"
axes = []
model = "{start}"
train = { method = "augment" }
""")


def load(tmp_path: Path, content: dict[str, Any], scale: str | None = None, **placeholders: str) -> Study:
    file = tmp_path / "study.toml"
    file.write_text(tomli_w.dumps(content), encoding="utf-8")
    return load_study(file, scale, placeholders=placeholders or {"start": "tiny"})


def changed(changes: dict[str, Any], **row: Any) -> dict[str, Any]:
    """The study with other values; None removes a key; ``row`` changes its first row."""
    first = {**BASE["rows"][0], **row}
    content = {**BASE, "rows": [first, *BASE["rows"][1:]], **changes}
    return {key: value for key, value in content.items() if value is not None}


def test_the_cells_are_rows_times_labels_times_replicates(tmp_path: Path) -> None:
    study = load(tmp_path, BASE)
    cells = plan_cells(study)
    assert [(cell.row.id, dict(cell.coordinates), dict(cell.replicate)) for cell in cells] == [
        *(("scl", {"lambda": label}, {"seed": seed}) for label in ("CE", "0.3", "1") for seed in (1, 2)),
        *(("sbert", {}, {"seed": seed}) for seed in (1, 2)),
        ("glove", {}, {}),
    ]
    weights = [cell.steps[0].config.scl_weight for cell in cells[:6]]  # type: ignore[attr-defined]
    assert weights == [0, 0, 0.3, 0.3, 1, 1]
    assert [step.verb for step in cells[0].steps] == ["train", "evaluate"]
    assert cells[1].steps[0].config.seed == 2  # type: ignore[attr-defined]
    assert cells[1].steps[1].config.seed == 0  # type: ignore[attr-defined]
    assert cells[0].steps[0].model == "tiny"
    assert cells[0].steps[1].model is None
    assert cells[-1].steps[0].model == "glove:vectors.txt"
    assert study.pairs == [("scl", "sbert"), ("glove", "sbert")]
    assert study.paper["scl"] == [
        PaperNumber({"lambda": "0.3"}, "stsb", 70.0),
        PaperNumber({"lambda": "CE"}, "stsb", 66.0, 0.5),
        PaperNumber({"lambda": "CE"}, "sts12", 60.0),
    ]


def test_a_scale_is_merged_over_the_file(tmp_path: Path) -> None:
    study = load(tmp_path, BASE, "here")
    assert [row.id for row in study.rows] == ["scl", "sbert", "augment"]
    assert study.row("scl").name == "SCL"
    assert study.columns == ("stsb",)
    assert [(axis.name, axis.labels, axis.use) for axis in study.axes] == [("lambda", ("0.3", "0.5"), "x")]
    assert study.settings["train"] == {"data": ["microworld"], "max_steps": 2}
    assert study.paper["scl"] == [PaperNumber({"lambda": "0.3"}, "stsb", 70.0)]
    assert study.pairs == [("scl", "sbert"), ("augment", "sbert")]
    assert study.content["compare"] == [["scl", "sbert"], ["augment", "sbert"]]
    assert "scales" not in study.content
    assert study.content["placeholders"] == {"start": "tiny"}
    assert study.content["rows"][0]["model"] == "{start}"
    assert study.scale == "here"


def test_the_scale_paper_is_the_file_itself(tmp_path: Path) -> None:
    assert plan_cells(load(tmp_path, BASE, "paper")) == plan_cells(load(tmp_path, BASE))


def test_later_settings_have_precedence(tmp_path: Path) -> None:
    """The file's, the row's, the axes', the replicate's, the step's own."""
    content: dict[str, Any] = {
        "title": "Transfer",
        "columns": ["amazon2"],
        "finetune": {"epochs": 2, "batch_size": 4, "temperature": 0.5},
        "replicates": {"seed": [5], "finetune": {"sample_seed": [6]}},
        "axes": [{"name": "n", "setting": "finetune.sample_size", "values": [20]}],
        "rows": [
            {
                "id": "ce",
                "model": "x",
                "finetune": {"batch_size": 8},
                "steps": [
                    {"finetune": {"task": "sst2", "seed": 9, "sample_size": "none"}},
                    {"finetune": {"task": "amazon2"}},
                ],
            }
        ],
    }
    (cell,) = plan_cells(load(tmp_path, content))
    first, second = (step.config for step in cell.steps)
    names = ("task", "epochs", "batch_size", "temperature", "seed", "sample_seed", "sample_size")
    assert [getattr(first, name) for name in names] == ["sst2", 2, 8, 0.5, 9, 6, None]
    assert [getattr(second, name) for name in names] == ["amazon2", 2, 8, 0.5, 5, 6, 20]
    assert [step.model for step in cell.steps] == ["x", None]


def test_values_of_several_settings_are_one_list_for_each_label(tmp_path: Path) -> None:
    axis = {"name": "n", "settings": ["train.batch_size", "train.max_steps"], "values": [[4, 10], [8, 5]]}
    cells = plan_cells(load(tmp_path, changed({"axes": [axis], "replicates": {}, "scales": None}, paper=[])))
    configs = [cell.steps[0].config for cell in cells if cell.row.id == "scl"]
    assert [(one.batch_size, one.max_steps) for one in configs] == [(4, 10), (8, 5)]  # type: ignore[attr-defined]
    assert [cell.coordinates["n"] for cell in cells[:2]] == ["4", "8"]


AXIS = 'name = "lambda", setting = "train.scl_weight", as = "x"'
MISTAKES = {  # what is changed, in TOML (``drop`` removes keys, ``row`` changes the first row) -> what the message has
    'drop = ["title"]': "study.toml: lacks 'title'.",
    "colums = []": "study.toml: no key is called 'colums'. Did you mean 'columns'?",
    "columns = []": "columns: is empty",
    'columns = ["a", "a"]': "columns: names 'a' twice",
    'columns = ["average"]': "columns: has the average alone; name the columns",
    "rows = [1]": "study.toml: row 1: it must be a table.",
    'rows = [{ name = "a" }]': "row 1: lacks 'id'.",
    'row.id = "S C"': "id = 'S C': must be lower-case letters",
    'row.id = "sbert"': "rows: names 'sbert' twice",
    'row.modle = "x"': "row 'scl': no key is called 'modle'. Did you mean 'model'?",
    'row.train = { method = "scl", scl_wieght = 1 }': (
        "row 'scl' (lambda CE): train: no key is called 'scl_wieght'. Did you mean 'scl_weight'?"
    ),
    'row.train = { method = "scl", temperature = -1 }': "train: temperature = -1: must be at least 1e-08",
    'row.train = { method = "slc" }': "no method is called 'slc'. Did you mean 'scl'?",
    "row.train = {}": "row 'scl' (lambda CE): train: no method is called 'None'",
    'row.train = { method = "scl", output = "x" }': "train: output is set by the study",
    'row.steps = ["train"]\nrow.evaluate = { folds = 3 }': "has settings of evaluate",
    'rows = [{ id = "a", steps = ["evaluate"], axes = [] }]\ndrop = ["compare_with"]': "has no model",
    'row.steps = ["trian"]': "row 'scl': steps[0] = 'trian': must be",
    'axes = [{ name = "a", values = [1] }]': "axis 'a': needs setting = ",
    f'axes = [{{ {AXIS}, values = [0, 0.3, 1], labels = ["a", "a", "b"] }}]': "there must be 3 different ones",
    'axes = [{ name = "a", settings = ["train.seed", "model"], values = [[1]] }]': "each with 2 values",
    'axes = [{ name = "lambda", setting = "training.seed", values = [0.3], labels = ["CE"] }]\nrow.paper = []': (
        "'training.seed' is no setting. Write seed, model, or STEP.SETTING"
    ),
    f"axes = [{{ {AXIS}, values = [1], compare_with = 2 }}]": "no label is called '2'",
    'row.axes = ["lamda"]': "axes: no axis is called 'lamda'. Did you mean 'lambda'?",
    "row.paper = { sts99 = 1 }": "paper: no column is called 'sts99'",
    "row.paper = { lambda = 0.7, stsb = 1 }": "paper: lambda: no label is called '0.7'",
    'row.paper = { stsb = "70" }': "paper: stsb = '70': must be a number",
    'replicates = { seed = [1], "train.hold_out" = [1, 2] }': "must be a list, as in [1, 2, 3], and all of one length",
    "replicates = { train = { scl_weight = [1] } }": "train.scl_weight is a setting of an axis too",
    "best = { cuont = 1 }": "best: no key is called 'cuont'. Did you mean 'count'?",
    'aggregate = "sum"': "aggregate = 'sum': must be all, mean or wmean.",
    'compare_with = "glov"': "compare_with or compare: no row is called 'glov'. Did you mean 'glove'?",
    'compare = [["scl", "sbert"]]': "exclude each other",
    'claims = ["stsd"]': "claims: no column is called 'stsd'. Did you mean 'stsb'?",
    'row.model = "{begin}"': "{begin} has no value. Give one: --begin VALUE",
    f"axes = [{{ {AXIS}, labels = {list(range(2000))}, values = {[0.5] * 2000} }}]\n"
    f"replicates = {{ seed = {list(range(60))} }}\nrow.paper = []": ("has 120,061 cells; a study has at most 100,000"),
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.items(), ids=MISTAKES.values())
def test_a_mistake_is_one_clear_sentence(tmp_path: Path, change: str, message: str) -> None:
    content = tomllib.loads(change)
    row, dropped = content.pop("row", {}), dict.fromkeys(content.pop("drop", ()))
    with pytest.raises(NearfarError) as found:
        load(tmp_path, changed({**content, **dropped}, **row))
    assert str(found.value).startswith(str(tmp_path / "study.toml"))
    assert message in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("scale", "changes", "message"),
    [
        ("hre", {}, "no scale is called 'hre'. Did you mean 'here'?"),
        ("here", {"drop_rows": ["glov"]}, "drop_rows: no row is called 'glov'. Did you mean 'glove'?"),
        ("here", {"rows": {"only": ["scl"]}}, "rows: must be tables with the key 'id'"),
        ("here", {"colums": []}, "no key is called 'colums'"),
    ],
)
def test_a_mistake_in_a_scale(tmp_path: Path, scale: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NearfarError, match=re.escape(message)):
        load(tmp_path, {**BASE, "scales": {"here": changes}}, scale)


@pytest.mark.long
def test_a_study_is_loaded_without_torch(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(tomli_w.dumps(BASE), encoding="utf-8")
    code = (
        "import sys; from nearfar.studies.cells import load_study; "
        "load_study(sys.argv[1], placeholders={'start': 'm'}); print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_default_steps_are_those_with_settings(tmp_path: Path) -> None:
    def steps(**tables: Any) -> list[str]:
        content = {"title": "t", "columns": ["a"], "rows": [{"id": "r", "model": "m", **tables}]}
        return [step.verb for step in plan_cells(load(tmp_path, content))[0].steps]

    assert steps(train={"method": "scl"}) == ["train", "evaluate"]
    assert steps() == ["evaluate"]
    assert steps(finetune={}) == ["finetune"]
    assert steps(train={"method": "scl"}, geometry={}, speed={"texts": "wiki"}) == ["train", "geometry", "speed"]


def test_the_seed_of_an_evaluation_is_that_of_a_fitted_baseline_only(tmp_path: Path) -> None:
    rows = [{"id": name, "model": f"{name}:m@wiki", "steps": ["evaluate"]} for name in ("flow", "whitening")]
    content = {"title": "t", "columns": ["a"], "replicates": {"seed": [3]}, "rows": rows}
    seeds = [cell.steps[0].config.seed for cell in plan_cells(load(tmp_path, content))]  # type: ignore[attr-defined]
    assert seeds == [3, 0]
