"""Arguments of nearfar.train, and what a resumed run refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearfar import NearfarError
from nearfar.commands.train.choose import resolve_config
from nearfar.commands.train.command import train
from nearfar.commands.train.inputs import resolve_objectives
from nearfar.commands.train.run import prepare
from nearfar.config import InfoNceConfig, RunConfig, SclConfig, TrainConfig
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    write_nli(Path("nli.tsv"))
    write_pairs(Path("pairs.tsv"))
    Path("texts.txt").write_text("\n".join(dict.fromkeys(sentences(40, longest=8))) + "\n")
    Path("second-objective.toml").write_text('method = "scl"\ndata = ["nli.tsv"]\nscl_weight = 0.5\n')
    return tmp_path


# --- the summary of a run ---


def test_the_batch_size_of_a_run_equals_that_of_its_batches(folder: Path) -> None:
    """For a default batch size that was reduced to the number of rows."""
    config = resolve_config("simcse-unsup", {"output": "x", "model": "tiny", "data": "texts.txt"})
    rows = len(Path("texts.txt").read_text().splitlines())
    assert rows < RunConfig.batch_size == config.batch_size
    run = prepare(config)
    assert run.batch_size == rows


def test_the_second_objective_has_the_dropout_of_the_run(tmp_path: Path) -> None:
    second = tmp_path / "second.toml"
    second.write_text('method = "simcse-unsup"\ndata = ["texts.txt"]\n')
    config = InfoNceConfig(output="x", second=str(second), dropout=0.2)
    _, second = resolve_objectives(config)
    assert second.config.dropout == 0.2
    with pytest.raises(NearfarError, match="--dropout 0: simcse-unsup needs dropout"):
        resolve_objectives(replace(config, dropout=0.0))
