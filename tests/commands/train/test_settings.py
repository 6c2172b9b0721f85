"""Arguments of nearfar.train, and run folders of an earlier version, which must stay readable."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from nearfar import NearfarError
from nearfar.commands.train.command import load_train_result, train
from nearfar.commands.train.prepare import prepare
from nearfar.commands.train.second_objective import second_objective_config
from nearfar.commands.train.settings import resolve_config
from nearfar.config import InfoNceConfig, RunConfig, SclConfig, TrainConfig, build, load_toml
from nearfar.runs.execute import Job
from nearfar.training.gradients import Gradients
from nearfar.training.loop import Interrupted
from tests.tiny import save_tiny, sentences, write_nli, write_pairs

SCL = SclConfig(output="runs/a", data=("my.tsv",))


@pytest.mark.parametrize("data", ["my.tsv", Path("my.tsv"), ["my.tsv"], ("my.tsv",), [Path("my.tsv")]])
def test_a_method_by_name_with_data_in_any_form(data: Any) -> None:
    assert resolve_config("scl", {"data": data, "output": "runs/a"}) == SCL
    assert resolve_config("scl", {"data": data, "output": Path("runs/a")}) == SCL
    assert resolve_config(SclConfig(output="runs/a"), {"data": data}) == SCL


def test_several_files_stay_several() -> None:
    assert resolve_config("scl", {"data": ["a.tsv", Path("b.tsv")], "output": "x"}).data == ("a.tsv", "b.tsv")


def test_a_config_is_used_unchanged_or_overridden() -> None:
    assert resolve_config(SCL, {}) is SCL
    changed = resolve_config(SCL, {"temperature": 0.5, "output": "runs/b"})
    assert changed == SclConfig(output="runs/b", data=("my.tsv",), temperature=0.5)


def test_settings_override_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('method = "info-nce"\ndata = ["a.tsv"]\ntemperature = 0.1\nseed = 3\n')
    expected = InfoNceConfig(output="x", data=("b.tsv",), temperature=0.1, seed=4)
    for path in (file, str(file)):
        assert resolve_config(path, {"output": "x", "data": "b.tsv", "seed": 4}) == expected


def test_a_shipped_config_is_found_relative_to_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    config = resolve_config("configs/liao-scl.toml", {"output": "runs/liao", "epochs": 2})
    assert isinstance(config, SclConfig)
    assert (config.epochs, config.output, config.data) == (2, "runs/liao", ("snli",))


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("scl", {"output": "x", "temprature": 1.0}, r"train\(\): no key is called 'temprature'\. Did you mean 'temp"),
        (SCL, {"lerning_rate": 1.0}, r"train\(\): no key is called 'lerning_rate'\. Did you mean 'learning_rate'\?"),
        ("sbert", {"output": "x", "scl_weight": 1.0}, "'scl_weight' is a setting of scl"),
        ("scl", {"output": "x", "temperature": "1"}, r"train\(\): temperature = '1': must be a number"),
        ("scl", {"output": "x", "data": 3}, r"train\(\): data = 3: must be a list"),
        ("scl", {"output": "x", "data": ["a", 3]}, r"must be a list of texts"),
        ("scl", {"data": "a.tsv"}, r"train\(\): lacks output"),
        ("scl", {"output": "x", "micro_batch": 2, "micro_batch_tokens": 9}, "each sets the micro-batch size"),
        ("simcse-unsup", {"output": "x", "dropout": 0.0}, "--dropout 0: simcse-unsup needs dropout"),
        ("scl", {"output": "x", "dropout": 1.0}, "dropout = 1.0: must be"),
        ("sclx", {"output": "x"}, r"no method is called 'sclx'\. Did you mean 'scl'\?"),
        ("scl-finetune", {"output": "x"}, "scl-finetune fine-tunes a classifier; use nearfar finetune"),
        ("nowhere.toml", {"output": "x"}, r"nowhere\.toml: cannot be read as TOML"),
    ],
)
def test_invalid_arguments_are_refused(method: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        train(method, **settings)


def test_a_config_of_no_method_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match="TrainConfig is no method's config"):
        train(TrainConfig(output=str(tmp_path / "x")))


# --- run folders of an earlier version ---

OLD_CONFIG = """method = "simcse-unsup"
output = "run"
model = "tiny"
train_max_length = 32
batch_size = 8
epochs = 2
accumulate = 1
learning_rate = 0.001
beta2 = 0.999
schedule = "linear"
max_grad_norm = 1.0
precision = "fp32"
seed = 1
evaluate_every = 4
keep = "last"
checkpoint_every = 2
pooling = "cls"
lora_alpha = 16.0
second = "second-objective.toml"
second_weight = 0.1
evaluate_on = "pairs.tsv"
data = [
    "texts.txt",
]
mlp = "train_only"
temperature = 0.05
mlm_probability = 0.15
text_column = "text"
"""
OLD_SECOND = """method = "scl"
batch_size = 8
data = [
    "nli.tsv",
]
premise_column = "premise"
hypothesis_column = "hypothesis"
label_column = "label"
order = "premise"
head_layers = 2
scl_weight = 0.5
temperature = 1.0
similarity = "dot"
hard_negatives = "all"
max_positives = "all"
max_negatives = "all"
"""
"""config.toml and second.toml as the version before the registry of methods wrote them."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    write_nli(Path("nli.tsv"))
    write_pairs(Path("pairs.tsv"))
    Path("texts.txt").write_text("\n".join(dict.fromkeys(sentences(40, longest=8))) + "\n")
    Path("old.toml").write_text(OLD_CONFIG)
    Path("second-objective.toml").write_text('method = "scl"\ndata = ["nli.tsv"]\nscl_weight = 0.5\n')
    return tmp_path


@pytest.mark.long
def test_an_interrupted_run_of_the_earlier_version_resumes_bit_identical(folder: Path) -> None:
    kind, values = load_toml("old.toml")
    config = build(kind, values, source="old.toml")
    assert isinstance(config, TrainConfig)
    uninterrupted = train(config, output="whole")
    accumulate, steps = Gradients.accumulate_mean, []

    def interrupt(self: object, *arguments: Any, **keywords: Any) -> Any:
        steps.append(1)
        if len(steps) == 4:
            raise Interrupted
        return accumulate(self, *arguments, **keywords)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gradients, "accumulate_mean", interrupt)
        with pytest.raises(Interrupted):
            train(config)
    Path("run/config.toml").write_text(OLD_CONFIG)
    Path("run/second.toml").write_text(OLD_SECOND)
    resumed = train(config, resume=True)
    assert (resumed.steps, resumed.best_score) == (uninterrupted.steps, uninterrupted.best_score)
    ours, theirs = (load_file(result.model / "model.safetensors") for result in (resumed, uninterrupted))
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)

    Path("run/second.toml").write_text(OLD_SECOND.replace("scl_weight = 0.5", "scl_weight = 0.4"))
    with pytest.raises(NearfarError, match=r"other settings \(--second\)"):
        train(config, resume=True)


def test_a_finished_run_of_an_earlier_version_is_read(folder: Path) -> None:
    shutil.copytree("tiny", "run/model")
    Path("run/config.toml").write_text(OLD_CONFIG)
    Path("run/second.toml").write_text(OLD_SECOND)
    kind, values = load_toml("old.toml")
    record = {
        "date": "2026-01-31T12:00:00+00:00",
        "config": {"output": "run", "seed": 1, **values},
        "data": ["texts.txt: 40 sentences"],
        "inputs": {"precision": "fp32", "--data texts.txt": "0123456789abcdef"},
        "precision": "fp32",
        "dev": "pairs.tsv",
        "step": 10,
        "best_score": 0.5,
        "best_step": 8,
        "start_score": 0.25,
        "seconds": 1.5,
    }
    Path("run/run.json").write_text(json.dumps(record, indent=1) + "\n")
    config = build(kind, values, source="old.toml")
    assert isinstance(config, TrainConfig)
    for found in (load_train_result(config), train(config, resume=True)):
        assert (found.model, found.steps, found.best_step) == (Path("run/model"), 10, 8)
        assert (found.start_score, found.best_score) == (0.25, 0.5)


# --- the summary of a run ---


def test_the_batch_size_of_a_job_equals_that_of_its_batches(folder: Path) -> None:
    """For a default batch size that was reduced to the number of rows."""
    config = resolve_config("simcse-unsup", {"output": "x", "model": "tiny", "data": "texts.txt"})
    rows = len(Path("texts.txt").read_text().splitlines())
    assert rows < RunConfig.batch_size == config.batch_size
    run = prepare(config)
    empty: dict[str, Any] = dict.fromkeys(
        ("facts", "evaluate", "metric", "evaluated_on", "settings", "save", "run_info")
    )
    assert Job(mixture=run.mixture, encoder=run.encoder, total_steps=1, **empty).batch_size == rows


def test_the_second_objective_has_the_dropout_of_the_run(tmp_path: Path) -> None:
    second = tmp_path / "second.toml"
    second.write_text('method = "simcse-unsup"\ndata = ["texts.txt"]\n')
    config = InfoNceConfig(output="x", second=str(second), dropout=0.2)
    found = second_objective_config(config)
    assert found is not None
    assert found.dropout == 0.2
    with pytest.raises(NearfarError, match="--dropout 0: simcse-unsup needs dropout"):
        second_objective_config(replace(config, dropout=0.0))
