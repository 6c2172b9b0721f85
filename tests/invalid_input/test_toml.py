"""Config files: each error names the file and the key, and is raised before a model or data is opened."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.invalid_input.cli_runner import assert_refused
from tests.tiny import write_pairs

HEAD = b'method = "scl"\noutput = "x"\n'
SIMCSE, KIM = b'method = "simcse-unsup"\noutput = "x"\n', b'method = "sg-opt"\noutput = "x"\n'
CLASSIFIER = b'method = "scl-finetune"\noutput = "x"\n'

FILES: dict[str, tuple[bytes, str]] = {
    # id: content, expected message
    "empty": (b"", "lacks the key 'method'"),
    "white space": (b"\n  \n", "lacks the key 'method'"),
    "comments alone": (b"# nothing\n", "lacks the key 'method'"),
    "UTF-16": ('method = "scl"'.encode("utf-16"), "it is not UTF-8 text"),
    "UTF-16 without a mark": ('method = "scl"'.encode("utf-16-le"), "cannot be read as TOML"),
    "Latin-1": ('method = "scl"\noutput = "é"'.encode("latin-1"), "it is not UTF-8 text"),
    "binary": (bytes(range(256)) * 8, "cannot be read as TOML"),
    "a gzip's first bytes": (b"\x1f\x8b\x08\x00", "cannot be read as TOML"),
    "NUL": (HEAD + b"\0", "cannot be read as TOML"),
    "JSON": (b'{"method": "scl", "output": "x"}', "cannot be read as TOML"),
    "YAML": (b"method: scl\noutput: x\n", "cannot be read as TOML"),
    "TSV": (b"premise\thypothesis\tlabel\na\tb\t0\n", "cannot be read as TOML"),
    "cut in a text": (b'method = "sc', "cannot be read as TOML"),
    "cut in a list": (HEAD + b'data = ["snli",', "cannot be read as TOML"),
    "cut after =": (HEAD + b"epochs = ", "cannot be read as TOML"),
    "no quotes": (b"method = scl", "cannot be read as TOML"),
    "Python's words": (HEAD + b"patience = None", "cannot be read as TOML"),
    "Python's booleans": (HEAD + b"epochs = True", "cannot be read as TOML"),
    "a key twice": (HEAD + b"epochs = 1\nepochs = 2", "cannot be read as TOML"),
    "the method twice": (HEAD + b'method = "sbert"', "cannot be read as TOML"),
    "a table twice": (HEAD + b"[a]\n[a]\n", "cannot be read as TOML"),
    "nested too deeply": (HEAD + b"data = " + b"[" * 100_000, "cannot be read as TOML"),
    "number of 5,000 digits": (HEAD + b"epochs = " + b"9" * 5000, "cannot be read as TOML"),
    "over a megabyte": (HEAD + b"#" * 2**20, "over 1,048,576 bytes"),
}
METHODS: dict[str, tuple[bytes, str]] = {
    "no method": (b'output = "x"', "lacks the key 'method' (one of sbert, scl"),
    "unknown method": (b'method = "sclx"', "no method is called 'sclx'. Did you mean 'scl'?"),
    "method in capitals": (b'method = "SCL"', "Did you mean 'scl'?"),
    "method with a space": (b'method = "scl "', "no method is called 'scl '. Did you mean 'scl'?"),
    "method without text": (b'method = ""', "no method is called ''"),
    "method of a long name": (b'method = "' + b"m" * 300 + b'"', "no method is called 'mmm"),
    "list of methods": (b'method = ["info-nce"]', "method = ['info-nce']: must be a text"),
    "empty list of methods": (b"method = []", "method = []: must be a text"),
    "method as a number": (b"method = 1", "method = 1: must be a text"),
    "method as a boolean": (b"method = true", "method = true: must be a text"),
    "method as a date": (b"method = 2021-01-01", "method = datetime.date(2021, 1, 1): must be a text"),
    "method as a table": (b'[method]\nname = "scl"', "method = {'name': 'scl'}: must be a text"),
    "method in a table": (b'[train]\nmethod = "scl"', "lacks the key 'method'"),
    "the other command's method": (CLASSIFIER, "nearfar finetune run.toml"),
}
KEYS: dict[str, tuple[bytes, str]] = {
    "unknown key": (HEAD + b"temprature = 1", "no key is called 'temprature'. Did you mean 'temperature'?"),
    "key with a hyphen": (HEAD + b"learning-rate = 1", "'learning-rate'. Did you mean 'learning_rate'?"),
    "key in capitals": (HEAD + b"EPOCHS = 1", "'EPOCHS'. Did you mean 'epochs'?"),
    "key of a long name": (HEAD + b"k" * 300 + b" = 1", "no key is called 'kkk"),
    "key without letters": (HEAD + b'"" = 1', "no key is called ''"),
    "table": (HEAD + b"[optimiser]\nlearning_rate = 1", "no key is called 'optimiser'"),
    "table of a key": (HEAD + b"[epochs]\nfirst = 1", "epochs = {'first': 1}: must be a whole number"),
    "dotted key": (HEAD + b"data.name = 1", "data = {'name': 1}: must be a list"),
    "list of tables": (HEAD + b'[[data]]\nfile = "a"', "data = [{'file': 'a'}]: must be a list of texts"),
    "key of another method": (
        b'method = "sbert"\noutput = "x"\ntemperature = 1',
        "no key is called 'temperature'. ",
    ),
    "key of another method, whose": (
        b'method = "sbert"\noutput = "x"\nscl_weight = 0.3',
        "'scl_weight' is a setting of scl.",
    ),
    "key of fine-tuning": (HEAD + b"noise_rate = 0.1", "no key is called 'noise_rate'"),
    "flag that is no setting": (HEAD + b"resume = true", "no key is called 'resume'"),
}
VALUES: list[tuple[bytes, str, str]] = [
    # head, line, expected message
    *((HEAD, line, "must be a whole number") for line in ("epochs = true", "epochs = false", "seed = true")),
    *(
        (HEAD, line, "must be a whole number")
        for line in ("epochs = '3'", "epochs = 3.0", "epochs = [3]", "epochs = nan")
    ),
    *((HEAD, line, "must be a whole number") for line in ("epochs = 2021-01-01", "batch_size = 12:30:00", "seed = {}")),
    *(
        (HEAD, line, "must be a whole number or none")
        for line in ("patience = true", "patience = 'never'", "limit = 1.5")
    ),
    *((HEAD, line, "must be a whole number or all") for line in ("max_positives = true", "max_positives = 'some'")),
    *((HEAD, line, "must be 1 or 2") for line in ("head_layers = true", "head_layers = 3", "head_layers = 2.0")),
    *(
        (HEAD, line, "must be a number")
        for line in ("learning_rate = true", "learning_rate = '1e-3'", "warmup = false")
    ),
    *((HEAD, line, "must be a number") for line in ("weight_decay = [0.1]", "beta2 = {}", "temperature = 1979-05-27")),
    *((HEAD, line, "must be a number or none") for line in ("head_learning_rate = true", "false_negative_margin = ''")),
    *(
        (HEAD, f"{key} = nan", "must be a finite number")
        for key in ("learning_rate", "temperature", "warmup", "lora_alpha")
    ),
    *((HEAD, f"{key} = inf", "must be a finite number") for key in ("weight_decay", "max_grad_norm", "second_weight")),
    *((HEAD, f"{key} = -inf", "must be a finite number") for key in ("learning_rate", "scl_weight", "beta2")),
    *(
        (HEAD, f"{key} = 0", "must be at least 1")
        for key in ("epochs", "batch_size", "max_steps", "accumulate", "limit")
    ),
    *((HEAD, f"{key} = 0", "must be at least 1") for key in ("micro_batch", "evaluate_every", "patience", "lora_rank")),
    *((HEAD, f"{key} = {10**30}", "must be at most") for key in ("epochs", "batch_size", "max_steps", "limit", "seed")),
    *((HEAD, f"{key} = {10**30}", "must be at most") for key in ("checkpoint_every", "max_length", "max_negatives")),
    *((HEAD, f"{key} = 0", "must be above 0") for key in ("learning_rate", "lora_alpha")),
    (HEAD, "temperature = 0", "must be at least 1e-08"),
    *(
        (HEAD, f"{key} = -0.5", "must be at least 0")
        for key in ("weight_decay", "max_grad_norm", "false_negative_margin")
    ),
    *((HEAD, f"{key} = 1.5", "must be between 0 and 1") for key in ("warmup", "scl_weight")),
    (HEAD, "beta2 = 1", "must be in [0, 1)"),
    (HEAD, "seed = -1", "must be at least 0"),
    (HEAD, "max_length = 2", "must be at least 3"),
    (HEAD, "learning_rate = 1e30", "must be at most 10"),
    (HEAD, f"learning_rate = {10**400}", "must be a finite number"),
    (HEAD, f"epochs = 0x{'f' * 5000}", "must be at most 100,000"),
    (HEAD, "schedule = 'steps'", "must be linear, cosine or constant"),
    (HEAD, "schedule = true", "must be linear, cosine or constant"),
    (HEAD, "precision = 32", "must be auto, fp32 or bf16"),
    (HEAD, "keep = ['best']", "must be best or last"),
    (HEAD, "data = 'snli'", "must be a list"),
    (HEAD, "data = true", "must be a list"),
    (HEAD, "data = [1, 2]", "must be a list of texts"),
    (HEAD, "data = [['snli']]", "must be a list of texts"),
    (HEAD, "data = ['snli', true]", "must be a list of texts"),
    (HEAD, "data = ['snli', '']", "must not be empty"),
    (HEAD, "model = ''", "must not be empty"),
    (HEAD, "model = '  '", "must not be empty"),
    (HEAD, "model = 7", "must be text"),
    (HEAD, "model = ['a']", "must be text"),
    (HEAD, "model = false", "must be text"),
    (HEAD, f"model = '{'m' * 300}'", "has a name of over 255 bytes"),
    (HEAD, r'evaluate_on = "a\u0000b"', "must not hold a NUL"),
    (HEAD, "evaluate_on = ['a', 'b']", "must be text"),
    (HEAD, "pooling = 3", "must be text or none"),
    (HEAD, "premise_column = 0", "must be text"),
    (b'method = "scl"\n', "output = ''", "must not be empty"),
    (b'method = "scl"\n', "output = 3", "must be text"),
    (b'method = "scl"\n', f"output = '{'x' * 240}'", "has a name of over 230 bytes"),
    (SIMCSE, "mlm_probability = 1", "must be in (0, 1)"),
    (SIMCSE, "mlm_weight = true", "must be a number"),
    (KIM, "freeze_embeddings = 1", "must be true or false"),
    (KIM, "freeze_embeddings = 'no'", "must be true or false"),
    (KIM, "guide_dropout = 0.1", "must be true or false"),
    (KIM, "projection = 10000000", "must be at most 65,536"),
    (KIM, "views = 3", "must be text"),
]
FINETUNED: list[tuple[bytes, str, str]] = [
    (CLASSIFIER, "validation_rows = 1", "must be at least 2"),
    (CLASSIFIER, "validation_rows = true", "must be a whole number"),
    (CLASSIFIER, "sample_size = 1", "must be at least 2"),
    (CLASSIFIER, "sample_balanced = 'yes'", "must be true or false"),
    (CLASSIFIER, "dropout = 1", "must be in [0, 1)"),
    (CLASSIFIER, "noise_rate = 2", "must be between 0 and 1"),
    (CLASSIFIER, "scl_weight = nan", "must be a finite number"),
    (CLASSIFIER, "text_columns = 'text'", "must be a list"),
    (CLASSIFIER, "text_columns = [1]", "must be a list of texts"),
    (CLASSIFIER, "task = ''", "must not be empty"),
    (CLASSIFIER, "task = ['rte']", "must be text"),
]
CONFLICTS: dict[str, tuple[str, bytes, str]] = {
    # command, content, expected message: settings that conflict
    "two ways to say how much": ("train", HEAD + b"micro_batch = 2\nmicro_batch_tokens = 9", "--micro-batch-tokens"),
    "encoder's method": ("finetune", HEAD, "nearfar train run.toml"),
    "flag that a file's key contradicts": (
        "train --micro-batch-tokens 9",
        HEAD + b"micro_batch = 2",
        "--micro-batch and --micro-batch-tokens",
    ),
}
SECOND: dict[str, tuple[bytes, str]] = {
    # invalid content of --second second.toml
    "no TOML": (b"method", "second.toml: cannot be read as TOML"),
    "no method": (b"temperature = 1", "second.toml: lacks the key 'method'"),
    "list of methods": (b'method = ["info-nce"]', "second.toml: method = ['info-nce']"),
    "fine-tuning": (CLASSIFIER, "second.toml: is a config for fine-tuning a classifier"),
    "key of the run": (b'method = "info-nce"\nepochs = 3', "epochs belongs to the run"),
    "boolean": (b'method = "info-nce"\ntemperature = true', "second.toml: temperature = true: must be a number"),
    "unknown key": (b'method = "info-nce"\nscl_weight = 1', "second.toml: no key is called 'scl_weight'"),
}


class Row(NamedTuple):
    """Command, content of run.toml, and expected messages."""

    name: str
    command: str
    content: bytes
    message: str


def rows() -> list[Row]:
    """All rows."""
    table = [
        Row(name, "train", content, message)
        for part in (FILES, METHODS, KEYS)
        for name, (content, message) in part.items()
    ]
    table += [Row(f"fine-tuning, {name}", "finetune", content, message) for name, (content, message) in FILES.items()]
    for command, values in (("train", VALUES), ("finetune", FINETUNED)):
        for head, line, message in values:
            key, _, value = line.partition(" = ")
            plain = value.isdecimal() and len(value) < 30
            expected = f"{key} = {value}: {message}" if plain or value in ("true", "false") else message
            table.append(Row(line[:50], command, head + line.encode(), expected))
    table += [Row(name, *rest) for name, rest in CONFLICTS.items()]
    return table


TABLE = rows()


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
def test_an_error_in_a_file(empty_folder: Path, row: Row) -> None:
    (empty_folder / "run.toml").write_bytes(row.content)
    verb, *flags = row.command.split()
    assert_refused([verb, "run.toml", *flags], "run.toml", row.message)
    assert [path.name for path in empty_folder.iterdir()] == ["run.toml"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes")
@pytest.mark.parametrize("command", ["train", "finetune"])
def test_not_a_regular_file(empty_folder: Path, command: str) -> None:
    (empty_folder / "folder.toml").mkdir()
    (empty_folder / "gone.toml").symlink_to("nowhere")
    (empty_folder / "round.toml").symlink_to("round.toml")
    os.mkfifo(empty_folder / "pipe.toml")  # opening it would block forever
    for name, message in (
        ("folder.toml", "it is a folder"),
        ("gone.toml", "No such file"),
        ("round.toml", "cannot be read as TOML"),
        ("pipe.toml", "it is no file"),
        ("/dev/zero/x.toml", "cannot be read as TOML"),
        ("nowhere.toml", "No such file"),
        ("nowhere/at/all.toml", "No such file"),
        ("m" * 300 + ".toml", "File name too long"),
    ):
        assert_refused([command, name], message)


@pytest.mark.parametrize("name", SECOND)
def test_an_error_in_a_second_file(empty_folder: Path, name: str) -> None:
    content, message = SECOND[name]
    (empty_folder / "second.toml").write_bytes(content)
    write_pairs(empty_folder / "pairs.tsv")
    assert_refused("train scl --output x --evaluate-on pairs.tsv --second second.toml".split(), message)
