"""Model folders made to harm: files outside the folder, models larger than their files, tokenizers that crash."""

import base64
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nearfar import Encoder
from nearfar.encoder import folder_checks, weights
from tests.invalid_input.cli_runner import assert_refused
from tests.invalid_input.model_folders import assert_load_refused, edit, save_model_variants
from tests.tiny_seq2seq import save_tiny_seq2seq

SECRET = "secret.txt"
"""A file beside the model folder."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model_variants(tmp_path_factory.mktemp("models"))


def read_header(file: Path) -> tuple[dict[str, Any], bytes]:
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_header(file: Path, header: bytes, data: bytes) -> None:
    file.write_bytes(struct.pack("<Q", len(header)) + header + data)


def add_empty_tensors(folder: Path, count: int = 1, size: int = 10**9) -> None:
    """Tensors of the shape [size, 0], which take no bytes."""
    header, data = read_header(folder / "model.safetensors")
    one = {"dtype": "F32", "shape": [size, 0], "data_offsets": [len(data), len(data)]}
    header |= {f"empty.{number}": one for number in range(count)}
    write_header(folder / "model.safetensors", json.dumps(header).encode(), data)


def widen(name: str, size: int) -> Callable[[Path], None]:
    """A config that describes a huge model; a tensor without elements has its dimension."""

    def damage(folder: Path) -> None:
        add_empty_tensors(folder)
        edit(folder / "config.json", {name: size})

    return damage


def widen_by_a_vector(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"vector": torch.zeros(60_000)}, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder / "config.json", {"hidden_size": 60_000, "num_attention_heads": 1})


def deepen(folder: Path) -> None:
    add_empty_tensors(folder, count=30_000, size=1)
    edit(folder / "config.json", {"num_hidden_layers": 30_000})


def deepen_by_small_tensors(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors |= {f"small.{number}": torch.zeros(1) for number in range(1500)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder / "config.json", {"num_hidden_layers": 1400})


def other_weights(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        shutil.copy(folder / "model.safetensors", folder / "other.safetensors")
        edit(folder / "config.json", {"transformers_weights": name})

    return damage


def link(name: str, target: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder.parent / "elsewhere").mkdir()
        if (folder / name).exists():
            (folder / name).rename(folder.parent / target)
        else:
            (folder.parent / target).mkdir(exist_ok=True)
        (folder / name).symlink_to(folder.parent / target)

    return damage


def tokenizer(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "tokenizer.json", changes)


def tokenizer_config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "tokenizer_config.json", changes)


def template(ids: list[int]) -> dict[str, Any]:
    pieces = [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"[X]": {"id": "[X]", "ids": ids, "tokens": ["[X]"]}}
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": special}


def charmap(content: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


HUGE = "config.json", "describes a model of"
LINK = "is a link to", "outside the model folder", "replace the link by a copy"
CHARMAP = "tokenizer.json", "precompiled_charsmap is damaged"
ROWS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "vocabulary of an empty tensor": (widen("vocab_size", 200_000_000), ("config.json", "vocab_size is 200000000")),
    "width of an empty tensor": (widen("hidden_size", 100_000), ("config.json", "hidden_size is 100000")),
    "inner width of an empty tensor": (widen("intermediate_size", 10**8), ("config.json", "intermediate_size is")),
    "width of a vector": (widen_by_a_vector, HUGE),
    "layers of empty tensors": (deepen, ("config.json", "num_hidden_layers is 30000")),
    "layers of small tensors": (deepen_by_small_tensors, ("config.json", "num_hidden_layers is 1400", "at most 1000")),
    "experts": (
        lambda folder: edit(folder / "config.json", {"num_experts": 10**9}),
        ("config.json", "num_experts is 1000000000", "at most 1000"),
    ),
    "experts of a part": (
        lambda folder: edit(folder / "config.json", {"parts": [{"num_local_experts": 10**9}]}),
        ("config.json", "num_local_experts is 1000000000"),
    ),
    "labels": (
        lambda folder: edit(folder / "config.json", {"num_labels": 10**9}),
        ("config.json", "num_labels is 1000000000", "at most 100000"),
    ),
    "code of the hub in a list": (
        lambda folder: edit(folder / "config.json", {"parts": [{"_attn_implementation": "someone/attention"}]}),
        ("config.json", "_attn_implementation is 'someone/attention'", "code from the hub"),
    ),
    "other weights in the folder": (other_weights("other.safetensors"), ("config.json", "transformers_weights")),
    "other weights elsewhere": (other_weights("../other.safetensors"), ("config.json", "transformers_weights")),
    "pickled weights by name": (other_weights("other.bin"), ("config.json", "transformers_weights")),
    "a link of a file": (link("tokenizer.json", SECRET), ("tokenizer.json", *LINK)),
    "a link of a folder": (link("sub", "elsewhere"), ("sub", *LINK)),
    "a vocabulary elsewhere": (
        tokenizer_config(vocab_file=f"../{SECRET}"),
        ("tokenizer_config.json", f"vocab_file names ../{SECRET}, a file outside the model folder"),
    ),
    "arguments of a tokenizer": (
        tokenizer_config(init_inputs=[f"../{SECRET}"]),
        ("tokenizer_config.json", "init_inputs is not empty"),
    ),
    "an empty character map": (tokenizer(normalizer=charmap(b"")), CHARMAP),
    "a damaged character map": (
        tokenizer(normalizer={"type": "Sequence", "normalizers": [charmap(b"\x10\0\0\0" + b"\xff" * 30)]}),
        CHARMAP,
    ),
    "a character map that is no text": (
        tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": 3}),
        CHARMAP,
    ),
    "a token that the model lacks": (
        tokenizer(post_processor=template([10**7])),
        ("adds the token id 10000000 to each text",),
    ),
    "a [CLS] that the model lacks": (
        tokenizer(post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 10**7]}),
        ("adds the token id 10000000 to each text",),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_by_kind(models: Path, row: str, tmp_path: Path) -> None:
    damage, mentions = ROWS[row]
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    (tmp_path / SECRET).write_text("private")
    damage(folder)
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, mentions)


def test_by_command(workspace: Path) -> None:
    link("tokenizer.json", SECRET)(Path("tiny").absolute())
    assert_refused("encode tiny --input texts.txt --output out.npy".split(), "tiny/tokenizer.json", *LINK)


def test_a_link_of_a_module(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "modules", tmp_path / "model"))
    link("1_Pooling/config.json", SECRET)(folder)
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, ("1_Pooling/config.json", *LINK))


def test_a_link_in_a_translation_model(tmp_path: Path) -> None:
    from nearfar.commands.back_translate.translator import load_translator

    folder = tmp_path / "model"
    save_tiny_seq2seq(folder)
    link("generation_config.json", SECRET)(folder)
    assert_load_refused(lambda: load_translator(folder, max_length=8), folder, ("generation_config.json", *LINK))


@pytest.mark.long
def test_links_that_stay_inside_are_followed(models: Path, tmp_path: Path) -> None:
    """A link inside the folder, a link to the whole folder, and the links of the local hub cache."""
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1", tmp_path / "models--a--b" / "blobs"
    shutil.copytree(models / "modules", snapshot)
    blobs.mkdir()
    (snapshot / "tokenizer.json").rename(blobs / "0")
    (snapshot / "tokenizer.json").symlink_to("../../blobs/0")
    (snapshot / "1_Pooling").rename(snapshot / "pooling")
    (snapshot / "1_Pooling").symlink_to("pooling")
    (tmp_path / "named").symlink_to(snapshot)
    expected = Encoder.from_pretrained(models / "modules").encode(["a dog"])
    for folder in (snapshot, tmp_path / "named"):
        assert (Encoder.from_pretrained(folder).encode(["a dog"]) == expected).all()


def test_weights_may_be_a_link_to_elsewhere(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    link("model.safetensors", "elsewhere/model.safetensors")(folder)
    expected = Encoder.from_pretrained(models / "plain").encode(["a dog"])
    assert (Encoder.from_pretrained(folder).encode(["a dog"]) == expected).all()


def test_a_path_of_another_machine_in_a_tokenizer_config_is_ignored(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    edit(folder / "tokenizer_config.json", {"vocab_file": "/home/someone/vocab.txt", "tokenizer_file": None})
    Encoder.from_pretrained(folder)


def test_a_long_header(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    header, data = read_header(folder / "model.safetensors")
    text = json.dumps(header).encode()
    monkeypatch.setattr(weights, "MAX_HEADER", len(text) + 8)
    write_header(folder / "model.safetensors", text + b" " * 8, data)
    Encoder.from_pretrained(folder)
    write_header(folder / "model.safetensors", text + b" " * 16, data)
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, ("model.safetensors", "its header has"))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, ("model.safetensors", "truncated or damaged"))


def test_loading_does_not_draw_random_numbers(models: Path) -> None:
    state = torch.get_rng_state()
    Encoder.from_pretrained(models / "plain")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_config_of_many_nested_objects_is_read() -> None:
    settings: dict[str, Any] = {"last": 1}
    for _ in range(5000):
        settings = {"inner": [settings]}
    assert ("last", 1) in folder_checks.nested_entries(settings)
