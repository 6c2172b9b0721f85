"""Every shipped config loads, matches its file name, and can start a run; defaults equal those of the papers."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import EncodeConfig, FinetuneConfig, InfoNceConfig, SclConfig, TrainConfig
from nearfar.cli import main
from nearfar.cli.parsing import parse
from nearfar.data.named_sets import FINETUNING_TASKS
from nearfar.registry import FINETUNE, METHODS
from nearfar.settings import build, dump_toml, load_toml, method_of
from nearfar.types import NearfarError
from tests.method_configs import DATA, write_data
from tests.tiny_seq2seq import save_tiny_fsmt, save_tiny_seq2seq, use_sacremoses

ROOT = Path(__file__).parents[2]
WITH_METHOD = [file for file in sorted((ROOT / "configs").glob("*.toml")) if "back-translate" not in file.stem]
FINETUNES = [file for file in WITH_METHOD if issubclass(load_toml(file)[0], FinetuneConfig)]
CONFIGS = [file for file in WITH_METHOD if file not in FINETUNES]
"""Those for ``nearfar train``."""
WORDS = {
    **dict.fromkeys(("info-nce", "simcse-sup"), ("anchor  ", "  positive  ", "  negative  ")),
    **dict.fromkeys(("sbert", "scl", "augment", "nli-order"), ("premise  ", "  entailment  ", "  contradiction  ")),
    **dict.fromkeys(("bt", "bt+sg-opt"), ("sentence  ", "  translation  ")),
    "documents": ("anchor  ", "  positive  "),
    "teacher-scores": ("anchor  ", "  positive ", "  negative "),
    **{"regression": ("score 0.",), "supcon-text": ()},
}
"""Words in the description of a batch, for all methods but those of sentences."""


def loaded(file: Path) -> Any:
    config_class, values = load_toml(file)
    return build(config_class, {"output": "x", **values}, source=file)


def method_in_name(file: Path) -> str:
    """Return the method in a file name: sg-opt for kim-sg-opt-as-coded, although the name contains sg too."""
    return max((name for name in METHODS if name in file.stem), key=len)


def test_every_method_has_a_config() -> None:
    assert {method_of(loaded(file)) for file in CONFIGS} == set(METHODS)


def test_the_method_of_a_config_matches_its_file_name(tmp_path: Path) -> None:
    kinds = {**METHODS, FINETUNE: FinetuneConfig}
    for name, config_class in kinds.items():
        config = config_class(output="x")
        assert method_of(config) == name
        (tmp_path / "run.toml").write_text(dump_toml(config))
        assert load_toml(tmp_path / "run.toml")[0] is config_class
    for function in (method_of, dump_toml):
        with pytest.raises(
            NearfarError, match=r"TrainConfig is no method's config\. The methods are sbert, .*scl-finetune\."
        ):
            function(TrainConfig(output="x"))


@pytest.mark.long
def test_a_config_loads_and_survives_a_round_trip(tmp_path: Path) -> None:
    again = tmp_path / "again.toml"
    for file in WITH_METHOD:
        assert file.read_text(encoding="utf-8").startswith("# "), file
        config = loaded(file)
        if isinstance(config, FinetuneConfig):
            assert config.task in FINETUNING_TASKS, file
            assert file.stem.endswith(config.task.removesuffix("-glue")), file
        else:
            assert method_of(config) == method_in_name(file)
        again.write_text(dump_toml(config))
        assert loaded(again) == config, file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("rows"))


@pytest.mark.long
@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_config_shows_its_batches(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = loaded(file)
    method = method_of(config)
    flags = ["--model", str(folder / "tiny"), "--data", str(folder / DATA[method]), "--batch-size", "10"]
    flags += ["--evaluate-on", str(folder / "dev.tsv"), "--verbose"]
    flags += ["--teacher", str(folder / "teacher"), "--keep-layers", "none"] if hasattr(config, "teacher") else []
    flags += ["--projection", "24"] if getattr(config, "projection", "none") != "none" else []
    flags += ["--views", "all"] if hasattr(config, "views") else []  # the tiny encoder has 2 layers
    expected = [*WORDS.get(method, ("sentence  ",))]
    if getattr(config, "mlm_weight", 0):
        expected.append("and 0.1 times mlm:")
    if config.sets:
        sets = tuple({**table, "data": [str(folder / DATA[table["method"]])]} for table in config.sets)
        expected += [f"and {table['weight']:g} times {table['method']}:" for table in sets]
        file = tmp_path / "run.toml"
        file.write_text(dump_toml(replace(config, sets=sets)))

    assert main(["train", str(file), "--output", "run", *flags, "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert all(f"\nbatch {number}\n" in output for number in (1, 2, 3))
    for word in expected:
        assert word in output, word
    fields = {field for line in (folder / DATA[method]).read_text().splitlines() for field in line.split("\t")}
    assert any(f"  {field}" in output for field in fields if " " in field)  # texts, not labels or scores
    assert not Path("run").exists()


def test_as_coded_differs_from_the_paper_only_in_the_documented_settings() -> None:
    paper, code = (loaded(ROOT / "configs" / f"kim-sg-opt{name}.toml") for name in ("", "-as-coded"))
    differ = {name for name in vars(paper) if getattr(paper, name) != getattr(code, name)}
    assert differ == {"view_pooling", "guide_dropout", "weight_decay", "adam_epsilon"}
    paper, code = (loaded(ROOT / "configs" / f"liao-scl{name}.toml") for name in ("", "-as-coded"))
    differ = {name for name in vars(paper) if getattr(paper, name) != getattr(code, name)}
    assert differ == {"order", "schedule", "max_grad_norm", "adam_epsilon"}
    paper, code = (loaded(ROOT / "configs" / f"simcse-unsup{name}.toml") for name in ("", "-as-coded"))
    assert {name for name in vars(paper) if getattr(paper, name) != getattr(code, name)} == {"evaluate_every"}


@pytest.mark.parametrize(
    "file", [file for file in CONFIGS if re.match("liao|kim|simcse", file.stem)], ids=lambda f: f.stem
)
def test_the_weights_that_are_tested_are_those_of_the_paper(file: Path) -> None:
    """Liao tests the last weights, once; Kim et al. and Gao et al. keep the best step on STS-B dev."""
    config = loaded(file)
    assert config.evaluate_on == "stsb:dev"
    if file.stem.startswith("liao"):
        assert config.keep == "last"
        assert config.evaluate_every > 549_367 // 64 + 1  # SNLI's labelled rows in batches of 64
    else:
        assert (config.keep, config.patience) == ("best", 10 if file.stem.startswith("kim") else None)
        assert config.evaluate_every == {"kim": 50}.get(file.stem[:3], 125 if "as-coded" in file.stem else 250)


# --- fine-tuning ---


TABLES = {"few-shot": 2, "noise": 3, "full": 5, "transfer": 7}
"""Experiment of Gunel et al. 2021 -> its table."""
TASKS_OF = {
    "few-shot": "sst2",
    "noise": "sst2",
    "full": "cola mnli mrpc qnli rte sst2",
    "transfer": "amazon2 sst2 yelp2",
}
SAMPLE_SIZES = {"few-shot": 100, "noise": 100, "full": None}


def experiment(file: Path) -> tuple[str, str]:
    """Return the experiment and the task in a file name."""
    author, _, rest = file.stem.partition("-")
    assert author == "gunel"
    experiment_name, _, task = rest.rpartition("-")
    return experiment_name, task


GUNEL = [file for file in FINETUNES if file.stem.startswith("gunel")]
KIM = [file for file in FINETUNES if file.stem.startswith("kim")]


def test_every_experiment_of_gunel_has_configs() -> None:
    of_files = {(name, task) for name, task in map(experiment, GUNEL)}
    assert of_files == {(name, task) for name, tasks in TASKS_OF.items() for task in tasks.split()}


@pytest.mark.parametrize("file", GUNEL, ids=lambda file: file.stem)
def test_a_config_of_gunel_matches_the_experiment_in_its_name(file: Path) -> None:
    experiment_name, task = experiment(file)
    text = file.read_text(encoding="utf-8")
    head = text.partition("method =")[0]
    assert head.startswith("# Gunel et al. 2021, ")
    assert f"Table {TABLES[experiment_name]}" in head
    assert "# ours" in text  # the tables do not give the number of epochs
    config = loaded(file)
    reviews = task in ("amazon2", "yelp2")
    assert config.model == ("runs/sst2-scl/model" if reviews else "FacebookAI/roberta-large")
    assert config.splits == ("auto" if reviews else "few-shot" if experiment_name in ("few-shot", "noise") else "full")
    assert config.sample_size == SAMPLE_SIZES.get(experiment_name, 40 if reviews else None)
    noise = ("bt-0.9.tsv", "add") if experiment_name == "noise" else ("none", "replace")
    assert (config.noise, config.noise_mode) == noise
    assert config.metric == ("accuracy" if task == "cola" else None)
    assert (config.scl_weight, config.temperature, config.scl_reduction) == (0.9, 0.3, "sum")
    assert (config.learning_rate, config.batch_size) == (1e-5, 16)
    if file.stem == "gunel-transfer-sst2":
        assert all(f"--output runs/sst2-{loss}" in head for loss in ("ce", "scl"))


def test_the_glue_configs_of_kim_divide_the_validation_set() -> None:
    assert [file.stem for file in KIM] == [f"kim-glue-{task}" for task in ("cola", "mrpc", "qnli", "rte", "sst2")]
    for file in KIM:
        config = loaded(file)
        assert (config.model, config.splits, config.scl_weight) == ("google-bert/bert-base-uncased", "10-90", 0)
        assert "(Table 10)" in file.read_text(encoding="utf-8")


def test_the_config_of_the_review_equals_its_command() -> None:
    config = loaded(ROOT / "configs" / "simcse-review-stsb.toml")
    assert (config.batch_size, config.epochs, config.learning_rate, config.max_length) == (16, 10, 2e-5, 128)
    assert round(config.warmup * 10 * -(-5749 // 16)) == 214
    assert (config.keep, config.weight_decay, config.schedule) == ("last", 0.0, "linear")


# --- back-translation ---


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("fsmt", marks=pytest.mark.nightly), "gunel", "opus-mt"])
def test_a_config_translates_and_flags_override_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_sacremoses(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for seed, folder in enumerate(("there", "back")):
        if name == "opus-mt":
            save_tiny_seq2seq(Path(folder), seed=seed, architecture="marian")
        else:
            save_tiny_fsmt(Path(folder), seed=seed)
    Path("texts.txt").write_text("a dog runs\nthe cat\n")
    flags = ["--input", "texts.txt", "--forward", "there", "--backward", "back", "--max-length", "9"]
    file = str(ROOT / "configs" / f"back-translate-{name}.toml")
    assert main(["back-translate", file, *flags, "--output", "bt.tsv"]) == 0
    assert "Wrote sentences and their back-translations to bt.tsv" in capsys.readouterr().out
    lines = Path("bt.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["sentence", "a dog runs", "the cat"]
    settings = {"gunel": '"temperature": 0.9', "fsmt": '"beams": 100', "opus-mt": '"beams": 5'}[name]
    assert settings in Path("bt.tsv.json").read_text()


# --- values, from Python ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 10**5000}, "--epochs a number of more than 4,300 digits: must be at most 100,000."),
        ({"beta2": np.float32(1)}, "must be below 1."),
        ({"seed": np.bool_(True)}, "must be a whole number."),
        ({"max_positives": True}, "--max-positives true: must be a whole number or all."),
        ({"track": "wandb"}, "--track 'wandb': must be a list, as in [\"tensorboard\"]."),
    ],
)
def test_values_are_checked_when_a_config_is_created(changes: dict[str, object], message: str) -> None:
    with pytest.raises(NearfarError, match=re.escape(message)):
        SclConfig(**{"output": "x", **changes})  # type: ignore[arg-type]
    with pytest.raises(NearfarError, match=re.escape(message)):
        replace(SclConfig(output="x"), **changes)  # type: ignore[arg-type]


def test_equivalent_values_are_converted() -> None:
    config = SclConfig(
        output=Path("runs") / "x",  # type: ignore[arg-type]
        data=["snli", "mnli"],  # type: ignore[arg-type]
        learning_rate=1,
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        epochs=np.int64(3),  # type: ignore[arg-type]
    )
    assert config == SclConfig(output="runs/x", data=("snli", "mnli"), learning_rate=1.0, temperature=0.5, epochs=3)
    assert [type(value) for value in (config.output, config.data, config.learning_rate)] == [str, tuple, float]
    assert [type(value) for value in (config.temperature, config.epochs)] == [float, int]


def test_numbers_in_a_file_are_exact(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('method = "scl"\noutput = "x"\nlearning_rate = 1\nmax_positives = 2\npooling = "none"\n')
    config_class, read = load_toml(file)
    config = build(config_class, read, source=file)
    assert config == SclConfig(output="x", learning_rate=1.0, max_positives=2, pooling=None)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # with the byte order mark of Windows editors
    assert build(*load_toml(file), source=file) == config


def test_a_prompt_may_be_empty_and_keeps_its_spaces(tmp_path: Path) -> None:
    given = InfoNceConfig(output="x", data=("a",), query_prompt="query: ", document_prompt="", prompt="a\nb: ")
    (tmp_path / "config.toml").write_text(dump_toml(given))
    kind, values = load_toml(tmp_path / "config.toml")
    assert build(kind, values, source="config.toml") == given
    for prompt in ("", "query: "):
        words = ["--input", "a", "--output", "b", "--prompt", prompt]
        assert parse(EncodeConfig, words, prog="nearfar encode")[0].prompt == prompt
    with pytest.raises(NearfarError, match="--prompt ' ': must not be empty"):
        EncodeConfig(input="a", output="b", prompt=" ")
