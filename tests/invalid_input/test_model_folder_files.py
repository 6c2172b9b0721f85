"""Mutated model folders: each file of a valid one is missing, empty, truncated, of another type, or partly garbage.

Either the folder is refused in one sentence that names it, or it gives the vectors of the intact one.
"""

import errno
import io
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, NearfarError
from nearfar.commands.back_translate.translator import load_translator
from nearfar.encoder.classifier import Classifier
from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.model_folders import save_model_variants
from tests.tiny import sentences
from tests.tiny_seq2seq import save_tiny_seq2seq

PLAIN = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
MODULE_FILES = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "README.md")
FILES = {
    "plain": PLAIN,
    "modules": (
        *(*PLAIN, *MODULE_FILES, "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"),
        "3_Normalize/config.json",
    ),
    "layers": (
        *PLAIN,
        "modules.json",
        "1_WeightedLayerPooling/config.json",
        "1_WeightedLayerPooling/model.safetensors",
    ),
    "words": (*PLAIN, "modules.json", "1_WordWeights/config.json", "1_WordWeights/model.safetensors"),
    "classifier": PLAIN,
    "translator": (*PLAIN, "generation_config.json"),
}
"""The files of each form of a model folder; those of ``layers`` and ``words`` that ``modules`` has too are omitted."""
MUTATIONS: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "list": lambda content: b"[1, 2]",
    "string": lambda content: b'"text"',
    "number": lambda content: b"7",
    "null": lambda content: b"null",
    "object": lambda content: b"{}",
    "bits": lambda content: flip_bits(content, 1),
    "garbage": lambda content: flip_bits(content, 16),
}
UNREAD_FILES = {"README.md", "1_WordWeights/model.safetensors"}
"""Files whose content is not read, or is redundant."""
SETTINGS = ("3_Normalize/config.json", "config_sentence_transformers.json", "sentence_bert_config.json")
DEFAULTS = {
    *((file, mutation) for file in SETTINGS for mutation in ("missing", "object")),
    ("generation_config.json", "missing"),
}
"""Mutations that do not change the model, because its settings are the defaults."""
TEXTS = [*sentences(12), "a dog " * 40]


def flip_bits(content: bytes, count: int) -> bytes:
    """Flip the highest bit of some bytes in the middle, so that they are not ASCII."""
    middle = len(content) // 2
    return (
        content[:middle] + bytes(byte ^ 0x80 for byte in content[middle : middle + count]) + content[middle + count :]
    )


def results_of(form: str, folder: Path) -> Any:
    """The output of the model in the folder."""
    if form == "classifier":
        return Classifier.from_pretrained(folder).predict([(text,) for text in TEXTS])
    if form == "translator":
        return load_translator(folder, max_length=9).translate(TEXTS[:3])
    return Encoder.from_pretrained(folder).encode(TEXTS)


def same(form: str, folder: Path, expected: Any) -> bool:
    found = results_of(form, folder)
    return found == expected if form == "translator" else bool(np.abs(found - expected).max() <= 1e-6)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """The folder of each form, and its model's output."""
    root = save_model_variants(tmp_path_factory.mktemp("intact"))
    save_tiny_seq2seq(root / "translator")
    with pytest.warns(UserWarning, match="longer than"):
        return {form: (root / form, results_of(form, root / form)) for form in FILES}


@pytest.mark.long
def test_every_file_is_mutated(intact: dict[str, tuple[Path, Any]]) -> None:
    for form, files in FILES.items():
        found = {str(file.relative_to(intact[form][0])) for file in intact[form][0].rglob("*") if file.is_file()}
        other_files = {*MODULE_FILES, "2_Pooling/config.json"} if form in ("layers", "words") else set()
        assert found - other_files == set(files) - other_files


@pytest.mark.filterwarnings("ignore:.*longer than")
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize(("form", "file"), [(form, file) for form, files in FILES.items() for file in files])
def test_a_mutated_file(
    intact: dict[str, tuple[Path, Any]], form: str, file: str, mutation: str, tmp_path: Path
) -> None:
    intact_folder, expected = intact[form]
    folder = Path(shutil.copytree(intact_folder, tmp_path / "model"))
    content = MUTATIONS[mutation]((folder / file).read_bytes())
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    if file in UNREAD_FILES or (file, mutation) in DEFAULTS:
        assert same(form, folder, expected)
        return
    if file.endswith(".safetensors") and mutation in ("bits", "garbage"):  # still valid numbers, unless they overflow
        with suppress(NearfarError):
            results_of(form, folder)
        return
    with pytest.raises(NearfarError) as caught:
        same(form, folder, expected)
    message = str(caught.value)
    assert message.startswith(str(folder))
    part = file.partition("/")[0].partition(".")[0].removesuffix("_config")
    assert (part if mutation in ("missing", "object") else file) in message
    assert "\n" not in message
    assert len(message) < len(str(folder)) + 400


JSON_FILES = [(form, file) for form, files in FILES.items() for file in files if file.endswith(".json")]


@pytest.mark.parametrize(
    ("form", "file"),
    [*JSON_FILES, *((form, "model.safetensors") for form in FILES), ("modules", "2_Dense/model.safetensors")],
)
def test_an_unreadable_file(
    intact: dict[str, tuple[Path, Any]], form: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mocks the system's error, because the user who runs the tests may be able to read everything."""
    folder = Path(shutil.copytree(intact[form][0], tmp_path / "model"))
    opened = io.open

    def refuse(path: Any, *arguments: Any, **settings: Any) -> Any:
        if str(path) == str(folder / file):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **settings)

    monkeypatch.setattr("io.open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(NearfarError) as caught:
        results_of(form, folder)
    assert f"{folder / file}: cannot be read (Permission denied)." == str(caught.value)


def test_an_unreadable_folder(intact: dict[str, tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = intact["plain"]

    def refuse(path: Path, **_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(NearfarError, match=r"plain: cannot be read \(Permission denied\)"):
        Encoder.from_pretrained(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors", "modules.json"])
def test_a_folder_with_the_name_of_a_file(intact: dict[str, tuple[Path, Any]], file: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(intact["modules"][0], tmp_path / "model"))
    (folder / file).unlink()
    (folder / file).mkdir()
    with pytest.raises(NearfarError, match=f"{file}: is not a regular file"):
        Encoder.from_pretrained(folder)


ENCODE = ["--input", "texts.txt", "--output", "out.npy"]


@pytest.mark.parametrize(
    ("model", "mentions"),
    [
        ("", ("must not be empty",)),
        ("texts.txt", ("texts.txt: is a file, but a model is a folder",)),
        ("./nowhere", ("./nowhere: there is no such model folder",)),
        ("~nobody-of-this-name/model", ("~nobody-of-this-name/model: there is no such model folder",)),
        (".", (".: holds no config.json",)),
    ],
)
@pytest.mark.parametrize("verb", ["encode", "predict", "search", "evaluate", "train", "back-translate"])
def test_paths_that_are_not_folders(workspace: Path, verb: str, model: str, mentions: tuple[str, ...]) -> None:
    argv = {
        "encode": ["encode", model, *ENCODE],
        "predict": ["predict", model, "--input", "texts.txt", "--output", "out.tsv"],
        "search": ["search", "dog", "--model", model, "--input", "texts.txt"],
        "evaluate": ["evaluate", model, "--tasks", "pairs.tsv"],
        "train": ["train", "scl", "--model", model, *"--data nli.tsv --evaluate-on pairs.tsv --output fresh".split()],
        "back-translate": ["back-translate", "--forward", model, "--input", "texts.txt", "--output", "out.tsv"],
    }[verb]
    if verb == "back-translate":
        argv += ["--backward", "tiny"]
    assert_refused(argv, *mentions)


def test_a_name_that_is_too_long(workspace: Path) -> None:
    assert_refused(["encode", "/" + "x" * 300, *ENCODE], "has a name of over 255 bytes")


@pytest.mark.long
def test_a_pipe_next_to_the_files_does_not_block(workspace: Path) -> None:
    os.mkfifo(workspace / "tiny" / "notes.txt")
    assert run_cli(["encode", "tiny", *ENCODE]).status == 0
    for name in ("config.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json"):
        (workspace / "tiny" / name).unlink(missing_ok=True)
        os.mkfifo(workspace / "tiny" / name)
        assert_refused(["encode", "tiny", *ENCODE, "--overwrite"], f"{name}: is not a regular file")
        (workspace / "tiny" / name).unlink()
        if name != "sentence_bert_config.json":
            shutil.copy(workspace / "run" / "model" / name, workspace / "tiny")


def test_no_tokenizer(workspace: Path) -> None:
    """Without files, transformers would build a tokenizer without words."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (workspace / "tiny" / name).unlink()
    assert_refused(["encode", "tiny", *ENCODE], "tiny: holds no tokenizer (tokenizer.json or a vocabulary)")
    assert not (workspace / "out.npy").exists()
