"""A method from outside the package: registered, trained, dry run, resumed, on a further set, and in the help."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nearfar import NearfarError, TrainConfig
from nearfar.cli import main
from nearfar.commands.train import train
from nearfar.config.bounds import Positive
from nearfar.data.batching import TextBatch, TextBatches
from nearfar.data.rows import TextData, load_sentences
from nearfar.methods import BuildContext, BuiltMethod, Loss, Method
from nearfar.methods.base import text_facts
from nearfar.registry import METHODS, register_method, unregister_method
from nearfar.settings import dump_toml, load_toml, method_of
from nearfar.studies import study
from tests.tiny import save_tiny, sentences, write_nli, write_pairs


@dataclass(frozen=True, kw_only=True)
class ToyConfig(TrainConfig):
    """toy: embeddings of a batch are spread over the sphere (the uniformity of Wang & Isola 2020, as a loss)."""

    column: str = "text"
    """Column of the sentences."""
    sharpness: Positive = 2.0
    """Multiplies the squared distances (Wang & Isola 2020, section 4.1.2)."""


def spread(config: ToyConfig, embed: Any, batches: TextBatches) -> Method:
    """log mean exp(-sharpness |u - v|^2) over the pairs of a batch."""

    def loss_fn(batch: TextBatch, embeddings: Tensor) -> Loss:
        unit = torch.nn.functional.normalize(embeddings, dim=1)
        distances = torch.pdist(unit).square()
        return Loss((-config.sharpness * distances).exp().mean().log(), {"distance": distances.mean().detach()})

    return Method(
        "toy",
        batches,
        lambda batch: batch.sentences,
        embed,
        loss_fn,
        lambda batch: [f"spread  {text}" for text in batch.sentences],
    )


def read_rows(config: ToyConfig) -> TextData:
    return load_sentences(config.data, column=config.column, limit=config.limit)


def build(config: ToyConfig, context: BuildContext, rows: TextData) -> BuiltMethod:
    batches = context.batches(config, rows)
    return BuiltMethod(spread(config, context.encoder.embed, batches), text_facts(rows))


@pytest.fixture
def toy() -> Iterator[None]:
    register_method("toy", config=ToyConfig, read_rows=read_rows, build=build)
    yield
    unregister_method("toy")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_tiny(Path("tiny"))
    Path("texts.txt").write_text("\n".join(dict.fromkeys(sentences(40, longest=8))) + "\n")
    write_pairs(Path("dev.tsv"))
    write_nli(Path("nli.tsv"))
    return tmp_path


STUDY = """
title = "Toy"
columns = ["dev.tsv"]
train = { method = "toy", data = ["texts.txt"], evaluate_on = "dev.tsv", batch_size = 8, max_steps = 1 }
evaluate = { pairs = ["dev.tsv"], resamples = 0 }

[[rows]]
id = "toy"
model = "{start}"
"""


@pytest.mark.usefixtures("toy")
@pytest.mark.long
def test_a_study_of_it_runs_in_this_process_alone(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    settings: dict[str, Any] = {"output": "out", "start": "tiny", "resamples": 10}
    with pytest.raises(NearfarError, match=r"the method 'toy' is registered in this process.*engine=\"inline\""):
        study("study.toml", **settings)
    assert not Path("out").exists()
    assert study("study.toml", engine="inline", **settings).command is None  # the command line does not know it


FLAGS = "--model tiny --data texts.txt --evaluate-on dev.tsv --batch-size 8 --learning-rate 1e-3".split()
SETTINGS: dict[str, Any] = {"model": "tiny", "evaluate_on": "dev.tsv", "batch_size": 8, "learning_rate": 1e-3}


@pytest.mark.long
def test_the_command_line_trains_and_describes_it(toy: None, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "toy", "--output", "run", *FLAGS, "--sharpness", "1", "--dry-run"]) == 0
    assert "batch 1\n  spread  " in capsys.readouterr().out
    assert not Path("run").exists()

    assert main(["train", "toy", "--output", "run", *FLAGS, "--sharpness", "1"]) == 0
    assert 'method = "toy"' in Path("run/config.toml").read_text()
    assert "sharpness = 1" in Path("run/config.toml").read_text()
    assert '"distance"' in Path("run/metrics.jsonl").read_text()

    capsys.readouterr()
    assert main(["train", "run/config.toml", "--resume"]) == 0  # the config file of a run can be used as a config
    assert "nothing to do" in capsys.readouterr().out
    assert main(["train", "toy", "--output", "bad", *FLAGS, "--sharpness", "0"]) == 2
    assert "--sharpness 0: must be above 0" in capsys.readouterr().err


@pytest.mark.long
def test_a_file_can_name_it_also_for_a_further_set(toy: None, folder: Path) -> None:
    Path("toy.toml").write_text('method = "toy"\ndata = ["texts.txt"]\nsharpness = 0.5\n')
    assert load_toml("toy.toml")[0] is ToyConfig
    assert method_of(ToyConfig(output="x")) == "toy"
    assert dump_toml(ToyConfig(output="x", sharpness=3)).startswith('method = "toy"\noutput = "x"\n')
    train("toy.toml", output="file", max_steps=2, **SETTINGS)
    assert "sharpness = 0.5" in Path("file/config.toml").read_text()
    sets = [{"method": "toy", "data": "texts.txt", "sharpness": 0.5}]
    train("scl", data="nli.tsv", output="both", sets=sets, max_steps=2, **SETTINGS)
    assert "sharpness = 0.5" in Path("both/config.toml").read_text()
    assert '"toy' in Path("both/metrics.jsonl").read_text()


def test_names_and_configs_that_cannot_be_registered(toy: None) -> None:
    parts: dict[str, Any] = {"read_rows": read_rows, "build": build}
    register_method("toy", config=ToyConfig, **parts)  # registering the same method again changes nothing

    class Other(ToyConfig):
        """other: another."""

    for name in ("", "Toy", "a b", "x.toml", "-x", "a/b"):
        with pytest.raises(NearfarError, match="is not a method name"):
            register_method(name, config=Other, **parts)
    for name in ("toy", "scl", "scl-finetune"):
        with pytest.raises(NearfarError, match=f"there is a method '{name}' already"):
            register_method(name, config=Other, **parts)
    with pytest.raises(NearfarError, match="ToyConfig is the config of the method 'toy'"):
        register_method("toy2", config=ToyConfig, **parts)
    with pytest.raises(NearfarError, match="SclConfig is the config of the method 'scl'"):
        register_method("toy2", config=METHODS["scl"], **parts)
    for kind in (TrainConfig, dict):
        with pytest.raises(NearfarError, match="must be a class derived from TrainConfig"):
            register_method("toy2", config=kind, **parts)  # type: ignore[arg-type]
    assert "toy2" not in METHODS
