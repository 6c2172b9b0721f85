"""Config files: each error names the file and the key, and is raised before a model or data is opened."""

from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused

HEAD = b'method = "scl"\noutput = "x"\n'
CLASSIFIER = b'method = "scl-finetune"\noutput = "x"\n'
NO_TOML = "cannot be read as TOML"

ROWS: dict[str, tuple[bytes, str]] = {
    # id: content of run.toml, expected message
    "UTF-16": ('method = "scl"'.encode("utf-16"), NO_TOML),
    "NUL": (HEAD + b"\0", NO_TOML),
    "a key twice": (HEAD + b"epochs = 1\nepochs = 2", NO_TOML),
    "nested too deeply": (HEAD + b"data = " + b"[" * 100_000, NO_TOML),
    "over a megabyte": (HEAD + b"#" * 2**20, "over 1,048,576 bytes"),
    "unknown method": (b'method = "sclx"', "no method is called 'sclx'. Did you mean 'scl'?"),
    "list of methods": (b'method = ["info-nce"]', "method = ['info-nce']: must be a text"),
    "the other command's method": (CLASSIFIER, "nearfar finetune run.toml"),
    "unknown key": (HEAD + b"temprature = 1", "no key is called 'temprature'. Did you mean 'temperature'?"),
    "key of another method": (b'method = "sbert"\noutput = "x"\nscl_weight = 0.3', "'scl_weight' is a setting of scl."),
    "flag that is no setting": (HEAD + b"resume = true", "no key is called 'resume'"),
    "sets that are no tables": (HEAD + b"sets = ['texts.txt']", "sets[0] = 'texts.txt': must be a table"),
    "two ways to say how much": (HEAD + b"micro_batch = 2\nmicro_batch_tokens = 9", "--micro-batch-tokens"),
}
TRANSLATE = "back-translate run.toml --input a.txt --output b.tsv"
COMMANDS = {
    # id: command, content of run.toml, expected message
    "translation in training": (TRANSLATE, b'method = "bt"', "is a config for training; back-translate"),
    "translation, out of bounds": (TRANSLATE, b"beams = 0", "beams = 0: must be at least 1"),
    "encoder's method": ("finetune run.toml", HEAD, "nearfar train run.toml"),
} | {name: ("train run.toml", *row) for name, row in ROWS.items()}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_in_a_file(folder: Path, name: str) -> None:
    command, content, message = COMMANDS[name]
    Path("run.toml").write_bytes(content)
    assert_refused(command.split(), "run.toml", message)
    assert [path.name for path in folder.iterdir()] == ["run.toml"]
