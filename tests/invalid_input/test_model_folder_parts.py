"""Inconsistent parts of model folders: lists of modules, labels, vocabularies, weights in several files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from nearfar import Encoder
from nearfar.encoder.classifier import Classifier
from tests.invalid_input.cli_runner import assert_refused
from tests.invalid_input.model_folders import REMOVED, assert_load_refused, edit, rows_of, save_model_variants
from tests.tiny import save_tiny, sentences


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each form."""
    return save_model_variants(tmp_path_factory.mktemp("models"))


ENTRY = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
FIRST = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
LISTS = [
    ([], ("does not start with a Transformer",)),
    ([ENTRY], ("does not start with a Transformer",)),
    ([FIRST, ENTRY | {"path": 5}], ("entry 1 (counted from 0) must have a type and a path",)),
    ([FIRST, ENTRY | {"type": None}], ("entry 1 (counted from 0) must have a type and a path",)),
    ([FIRST, {"path": "1_Pooling"}], ("entry 1 (counted from 0) must have a type and a path",)),
    ([FIRST, {"type": ENTRY["type"]}], ("entry 1 (counted from 0) must have a type and a path",)),
    ([FIRST, "1_Pooling"], ("entry 1 (counted from 0) must have a type and a path",)),
    ([FIRST, None], ("entry 1 (counted from 0) must have a type and a path",)),
    ([FIRST, ENTRY | {"path": "1_Pooling\0"}], ("points outside the model folder",)),
    ([FIRST, ENTRY | {"path": "nowhere"}], ("nowhere/config.json: is missing",)),
    ([FIRST | {"path": "nowhere"}, ENTRY], ("nowhere: holds no config.json",)),
    (
        [FIRST, ENTRY | {"type": "sentence_transformers.models.Transformer"}],
        ("'Transformer', which nearfar does not support",),
    ),
    ([FIRST, ENTRY | {"type": "sentence_transformers.models.WordWeights"}], ("has no Pooling",)),
]


@pytest.mark.long
@pytest.mark.parametrize(("listed", "mentions"), LISTS, ids=range(len(LISTS)))
def test_list_of_modules(models: Path, listed: object, mentions: tuple[str, ...], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "modules", tmp_path / "model"))
    (folder / "modules.json").write_text(json.dumps(listed))
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, mentions)


LABELS = ("config.json: id2label must name each label by its number",)
HEADS = [
    *(({"id2label": value}, LABELS) for value in ({}, {"0": "a", "1": "b", "3": "c"}, {"0": 1, "1": 2, "2": 3})),
    ({"id2label": {"0": "a", "1": "b", "2": "b"}}, ("config.json: id2label gives two labels the same name",)),
    *(({"id2label": value}, ("2 weights are missing or misshapen", "classifier.bias")) for value in (None, REMOVED)),
    ({"id2label": {"0": "a", "1": "b"}}, ("2 weights are missing or misshapen", "classifier.bias ([3] in the file")),
    ({"id2label": {str(n): f"l{n}" for n in range(4)}}, ("classifier.bias ([3] in the file, [4] by config.json)",)),
    *(({"num_labels": value}, ("config.json", "num_labels")) for value in (5, -1)),
    ({"num_labels": "x"}, ("config.json",)),
    ({"problem_type": "regression"}, ("holds no classifier",)),
    ({"architectures": ["BertModel"]}, ("holds no classifier",)),
    ({"classifier_dropout": "x"}, ("config.json", "classifier_dropout")),
    ({"model_type": "mpnet"}, ("weights are missing or misshapen",)),
    ({"model_type": "t5gemma2_text"}, ("config.json",)),
]


@pytest.mark.parametrize(("changes", "mentions"), rows_of(HEADS))
def test_labels_and_head(models: Path, changes: dict[str, Any], mentions: tuple[str, ...], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "classifier", tmp_path / "model"))
    edit(folder / "config.json", changes)
    assert_load_refused(lambda: Classifier.from_pretrained(folder), folder, mentions)


def vocabulary(folder: Path, change: Callable[[dict[str, int]], dict[str, int]]) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"] = change(tokenizer["model"]["vocab"])
    file.write_text(json.dumps(tokenizer))


VOCABULARIES: dict[str, tuple[Callable[[dict[str, int]], dict[str, int]], str | None]] = {
    "special tokens alone": (
        lambda words: {word: index for word, index in words.items() if word.startswith("[")},
        "the tokenizer has only special tokens, no words",
    ),
    "one word more": (lambda words: words | {"zebra": 42}, "token ids up to 42 ('zebra')"),
    "a word far beyond": (lambda words: words | {"zebra": 10**6}, "token ids up to 1000000 ('zebra')"),
    "another model's, small": (
        lambda words: {word: index for word, index in words.items() if index < 20},
        "the tokenizer has 20 tokens, but the model has embeddings for 42",
    ),
    "rows that are padding": (lambda words: {word: index for word, index in words.items() if index < 40}, None),
}


@pytest.mark.parametrize("form", ["plain", "classifier"])
@pytest.mark.parametrize("row", VOCABULARIES)
def test_vocabulary(models: Path, row: str, form: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / form, tmp_path / "model"))
    change, mention = VOCABULARIES[row]
    vocabulary(folder, change)
    model_class: Any = Encoder if form == "plain" else Classifier
    if mention is None:
        model_class.from_pretrained(folder)
    else:
        assert_load_refused(lambda: model_class.from_pretrained(folder), folder, (mention,))


def sharded(folder: Path) -> dict[str, Any]:
    """The model's weights in several files, and their index."""
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    return dict(json.loads((folder / "model.safetensors.index.json").read_text()))


INDEXES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a list": (lambda index: [], "must hold a JSON object"),
    "no map": (lambda index: {}, "must hold a weight_map"),
    "an empty map": (lambda index: index | {"weight_map": {}}, "must hold a weight_map"),
    "a map that is a list": (lambda index: index | {"weight_map": ["x"]}, "must hold a weight_map"),
    "numbers": (lambda index: index | {"weight_map": {"x": 5}}, "must hold a weight_map"),
    "a file that is not there": (
        lambda index: index | {"weight_map": index["weight_map"] | {"x": "model-9.safetensors"}},
        "names the file 'model-9.safetensors', which is not in the folder",
    ),
    "a file elsewhere": (
        lambda index: index | {"weight_map": index["weight_map"] | {"x": "../model.safetensors"}},
        "names the file '../model.safetensors', which is not in the folder",
    ),
}


@pytest.mark.parametrize("row", INDEXES)
def test_index_of_weights(models: Path, row: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    shutil.copy(folder / "model.safetensors", tmp_path)
    change, mention = INDEXES[row]
    (folder / "model.safetensors.index.json").write_text(json.dumps(change(sharded(folder))))
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, ("model.safetensors.index.json", mention))


def test_weights_in_several_files(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    shards = sorted(set(sharded(folder)["weight_map"].values()))
    assert len(shards) > 2
    expected = Encoder.from_pretrained(models / "plain").encode(sentences(5))
    assert (Encoder.from_pretrained(folder).encode(sentences(5)) == expected).all()
    content = (folder / shards[1]).read_bytes()
    (folder / shards[1]).write_bytes(content[: len(content) // 2])
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, (shards[1], "truncated or damaged"))
    (folder / "model.safetensors.index.json").unlink()
    assert_load_refused(
        lambda: Encoder.from_pretrained(folder), folder, (shards[0], "need model.safetensors.index.json")
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
def test_quantized_weights(models: Path, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    weights["pooler.dense.weight"] = weights["pooler.dense.weight"].to(dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert_load_refused(
        lambda: Encoder.from_pretrained(folder), folder, ("model.safetensors", "pooler.dense.weight", "quantized")
    )


def test_modules_without_their_list(models: Path, tmp_path: Path) -> None:
    """Otherwise the folder would be opened as a plain encoder, with other vectors."""
    folder = Path(shutil.copytree(models / "modules", tmp_path / "model"))
    (folder / "modules.json").unlink()
    for name in ("config_sentence_transformers.json", "1_Pooling"):
        assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, (f"holds {name} but no modules.json",))
        if name.endswith(".json"):
            (folder / name).unlink()


def test_positions_reserved_for_padding_are_not_usable(tmp_path: Path) -> None:
    """RoBERTa reserves its first positions: a text of 65 tokens would exceed the table."""
    folder = save_tiny(tmp_path / "roberta", "roberta")
    edit(folder / "tokenizer_config.json", {"model_max_length": REMOVED})
    encoder = Encoder.from_pretrained(folder)
    assert encoder.max_length == 64
    with pytest.warns(UserWarning, match="longer than 64 tokens"):
        assert np.isfinite(encoder.encode(["a dog " * 50])).all()
    edit(folder / "sentence_bert_config.json", {"max_seq_length": 66})
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, ("max_seq_length is 66", "from 3 to 64"))


FILES = "--data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --output fresh"
COMMANDS = {
    "encode": "encode tiny --input texts.txt --output out.npy",
    "train": f"train scl --model tiny {FILES}",
    "train, dry run": f"train scl --model tiny {FILES} --dry-run",
    "finetune": "finetune labelled.tsv --model tiny --validation-rows 20 --output fresh",
    "predict": "predict tiny --input texts.txt --output out.tsv",
    "search": "search dog --model tiny --input texts.txt",
    "evaluate": "evaluate tiny --tasks pairs.tsv",
    "evaluate wk": "evaluate wk:tiny --tasks pairs.tsv",
    "compare": "compare tiny result.json",
    "geometry": "geometry tiny --pairs pairs.tsv --positive-above 0.5 --output fresh",
}
DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a size": (lambda folder: edit(folder / "config.json", {"hidden_size": "x"}), "tiny/config.json: hidden_size"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]") and None, "tiny/config.json: must hold"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tiny: holds no tokenizer"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "tiny: holds no model.safetensors"),
}


@pytest.mark.parametrize("row", DAMAGED)
@pytest.mark.parametrize("command", COMMANDS)
def test_by_command(workspace: Path, command: str, row: str) -> None:
    damage, mention = DAMAGED[row]
    if command == "predict":
        shutil.rmtree(workspace / "tiny")
        (workspace / "classifier" / "model").rename(workspace / "tiny")
    damage(workspace / "tiny")
    assert_refused(COMMANDS[command].split(), mention)
