"""Model folders that are damaged, inconsistent or made to harm: one sentence that names the file, and no code runs."""

import base64
import builtins
import errno
import io
import json
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from nearfar import Encoder, NearfarError
from nearfar.commands.back_translate.translator import load_translator
from nearfar.encoder import weights
from nearfar.encoder.classifier import Classifier
from tests.invalid_input.cli_runner import assert_refused
from tests.invalid_input.model_folders import REMOVED, edit, save_model_variants
from tests.tiny import sentences
from tests.tiny_seq2seq import save_tiny_seq2seq

Damage = Callable[[Path], object]
Row = tuple[str, Damage, tuple[str, ...]]
AT_NIGHT: list[Row] = []
HUGE = 10**10
CONFIG, TOKENIZER, TOKENS = "config.json", "tokenizer.json", "tokenizer_config.json"
MODULES, PROMPTS, BERT = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
POOLING, DENSE, NORMALIZE = "1_Pooling/config.json", "2_Dense/config.json", "3_Normalize/config.json"
LAYERS, WORDS = "1_WeightedLayerPooling/config.json", "1_WordWeights/config.json"
WEIGHTS, INDEX, SECRET = "model.safetensors", "model.safetensors.index.json", "secret.txt"
WRONG = ("x", 0, True, 2.5, None)
SIZES = "hidden_size num_hidden_layers num_attention_heads intermediate_size vocab_size max_position_embeddings".split()
TEXTS = [*sentences(12), "a dog " * 40]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each form."""
    root = save_model_variants(tmp_path_factory.mktemp("models"))
    save_tiny_seq2seq(root / "translator")
    return root


def outputs_of(form: str, folder: Path) -> Any:
    """What the model in the folder says of some texts."""
    if form == "classifier":
        return Classifier.from_pretrained(folder).predict([(text,) for text in TEXTS])
    if form == "translator":
        return load_translator(folder, max_length=9).translate(TEXTS[:3])
    return Encoder.from_pretrained(folder).encode(TEXTS)


def refusal(form: str, folder: Path) -> str:
    """The error of opening a folder: one short line that begins with the folder."""
    with pytest.raises(NearfarError) as caught:
        outputs_of(form, folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert message.isprintable()
    assert len(message) < len(str(folder)) + 1000
    assert "TypeError" not in message
    return message


def changed(models: Path, form: str, damage: Damage, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(models / form, tmp_path / "model"))
    (tmp_path / SECRET).write_text("private")
    damage(folder)
    return folder


# --- damages ---


def settings(file: str, **changes: Any) -> Damage:
    return lambda folder: edit(folder / file, changes)


def each(form: str, file: str, name: str, values: tuple[Any, ...], *mentions: str) -> list[Row]:
    """A row for each value of a setting; all but the first are tested at night."""
    rows = [(form, settings(file, **{name: value}), (file.rpartition("/")[2], *mentions)) for value in values]
    AT_NIGHT.extend(rows[1:])
    return rows


def config(form: str = "plain", *mentions: str, **changes: Any) -> Row:
    return form, settings(CONFIG, **changes), (CONFIG, *mentions) if "missing" not in "".join(mentions) else mentions


def content(file: str, text: str) -> Damage:
    return lambda folder: (folder / file).write_text(text)


def entry(index: int, **changes: Any) -> Damage:
    """An entry of modules.json, changed."""

    def damage(folder: Path) -> None:
        entries = json.loads((folder / MODULES).read_text())
        entries[index] |= changes
        content(MODULES, json.dumps(entries))(folder)

    return damage


def vocabulary(change: Callable[[dict[str, int]], dict[str, int]]) -> Damage:
    def damage(folder: Path) -> None:
        found = json.loads((folder / TOKENIZER).read_text())
        found["model"]["vocab"] = change(found["model"]["vocab"])
        content(TOKENIZER, json.dumps(found))(folder)

    return damage


def tensors(others: dict[str, torch.Tensor], **changes: Any) -> Damage:
    """Other weights, and settings."""

    def damage(folder: Path) -> None:
        save_file(load_file(folder / WEIGHTS) | others, folder / WEIGHTS, metadata={"format": "pt"})
        edit(folder / CONFIG, changes)

    return damage


def read_header(file: Path) -> tuple[dict[str, Any], bytes]:
    found = file.read_bytes()
    (length,) = struct.unpack("<Q", found[:8])
    return json.loads(found[8 : 8 + length]), found[8 + length :]


def write_header(file: Path, header: bytes, data: bytes) -> None:
    file.write_bytes(struct.pack("<Q", len(header)) + header + data)


def empty_tensors(count: int = 1, size: int = 10**9, **changes: Any) -> Damage:
    """Tensors of the shape [size, 0], which take no bytes, for a config that describes a huge model."""

    def damage(folder: Path) -> None:
        header, data = read_header(folder / WEIGHTS)
        one = {"dtype": "F32", "shape": [size, 0], "data_offsets": [len(data), len(data)]}
        header |= {f"empty.{number}": one for number in range(count)}
        write_header(folder / WEIGHTS, json.dumps(header).encode(), data)
        edit(folder / CONFIG, changes)

    return damage


def link(name: str, target: str) -> Damage:
    """A file or folder in the model folder is a link to one outside."""

    def damage(folder: Path) -> None:
        (folder.parent / "elsewhere").mkdir()
        if (folder / name).exists():
            (folder / name).rename(folder.parent / target)
        (folder / name).symlink_to(folder.parent / target)

    return damage


def sharded(folder: Path) -> dict[str, Any]:
    """The model's weights in several files, and their index."""
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / WEIGHTS).rename(folder.parent / WEIGHTS)
    model.save_pretrained(folder, max_shard_size="20KB")
    return dict(json.loads((folder / INDEX).read_text()))


def index(change: Callable[[dict[str, str]], Any]) -> Damage:
    """Weights in several files, with another map from weights to files."""

    def damage(folder: Path) -> None:
        found = sharded(folder)
        content(INDEX, json.dumps(found | {"weight_map": change(found["weight_map"])}))(folder)

    return damage


def template(ids: list[int]) -> dict[str, Any]:
    pieces = [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    special = {"[X]": {"id": "[X]", "ids": ids, "tokens": ["[X]"]}} if ids else {}
    return {"type": "TemplateProcessing", "single": pieces, "pair": pieces, "special_tokens": special}


def charmap(found: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(found).decode()}


MISSHAPEN, BEYOND = "weights are missing or misshapen", ("the tokenizer has token ids up to 42", "for 42 tokens")
ADDED = {"100000": {"content": "zzz", "special": False, "lstrip": False, "rstrip": False, "single_word": False}}
FIRST = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
SECOND = {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
ENTRY = f"{MODULES}: [1]"
MODULE_LISTS: list[tuple[Any, str]] = [
    ([], "is empty"),
    ([SECOND], "nearfar supports Transformer or StaticEmbedding first"),
    *(([FIRST, one], ENTRY) for one in (SECOND | {"path": 5}, {"path": "1_Pooling"}, "1_Pooling", None)),
    ([FIRST, SECOND | {"path": "1_Pooling\0"}], "points outside the model folder"),
    ([FIRST, SECOND | {"path": "nowhere"}], "nowhere/config.json: cannot be read"),
    ([FIRST | {"path": "nowhere"}, SECOND], "nowhere: holds no config.json"),
    ([FIRST, SECOND | {"type": FIRST["type"]}], "module 1 is a 'Transformer'"),
    ([FIRST, SECOND | {"type": "sentence_transformers.models.WordWeights"}], "weights of single words"),
]
LABELS = "id2label must name each label by its number"
INCONSISTENT: list[Row] = [
    *(row for name in SIZES for row in each("plain", CONFIG, name, (*WRONG, HUGE))),
    *each("plain", CONFIG, "type_vocab_size", ("x", -1, True, HUGE)),
    config("plain", "35 weights are missing", "[32] in the file, [768] by config.json", hidden_size=REMOVED),
    config("plain", f"16 {MISSHAPEN}", "encoder.layer.2", num_hidden_layers=3),
    config("plain", f"1 {MISSHAPEN}", "word_embeddings", vocab_size=41),
    config("plain", "is not a multiple of the number of attention heads (3)", num_attention_heads=3),
    *each("plain", CONFIG, "quantization_config", ({"load_in_8bit": True}, "x"), "quantization_config"),
    *each("plain", CONFIG, "dtype", ("float33", 5, "load", ["float32"]), "cannot be opened"),
    config("plain", "nonsense", model_type="nonsense"),
    config("plain", MISSHAPEN, model_type="electra"),
    *each("plain", CONFIG, "model_type", (REMOVED, None, 5, ["bert"]), "names no model_type"),
    *each("plain", CONFIG, "id2label", ("x", ["a"], {"x": "a"}), "cannot be opened"),
    config("plain", "nonsense", hidden_act="nonsense"),
    config("plain", "layer_norm_eps", layer_norm_eps="x"),
    *each("plain", BERT, "max_seq_length", (2, -1, "x", True, 5.5, [1]), "max_seq_length"),
    *each("plain", TOKENS, "model_max_length", (2, "x", True, [1], float("nan")), "model_max_length is"),
    *each("plain", TOKENS, "tokenizer_class", ("BertTokenizer", REMOVED), "selects a", "WordLevel"),
    *(("plain", settings(TOKENS, **{name: 5}), ("tokenizer",)) for name in ("tokenizer_class", "model_input_names")),
    ("plain", settings(TOKENS, unk_token="[nonsense]"), BEYOND),
    ("plain", settings(TOKENS, added_tokens_decoder=ADDED), (*BEYOND, "'zzz'")),
    ("plain", settings("added_tokens.json", zzz=1000), (*BEYOND, "'zzz'")),
    ("plain", settings("adapter_config.json", base_model_name_or_path="x"), ("merge the adapter",)),
    *each("modules", PROMPTS, "default_prompt_name", ("other", 5), "default_prompt_name"),
    *each("modules", PROMPTS, "prompts", ("query: ", ["query: "], {"query": 5}), "prompts", "must be"),
    *each("modules", PROMPTS, "matryoshka", (8, {"8": 1}, [8, "4"], [0], [True]), "matryoshka", "must be"),
    ("modules", settings(PROMPTS, prompts={"query": "\ud800: "}), ("half a surrogate pair",)),
    *each("modules", PROMPTS, "similarity_fn_name", ("angular", 5, "x" * 9999), "similarity_fn_name", "'dot'"),
    *each("modules", PROMPTS, "truncate_dim", (8, "x"), "truncate_dim is", "--dimensions"),
    *each("modules", POOLING, "include_prompt", ("no", 0, None), "include_prompt is", "true or false"),
    ("words", settings("2_Pooling/config.json", include_prompt=False), ("include_prompt true",)),
    *each("modules", POOLING, "pooling_mode", (5, "mean_sqrt_len_tokens", ["cls", "mean"], "\x1b[31m\0x"), "pools by"),
    *each("modules", POOLING, "pooling_mode", (REMOVED, None, []), "pools by"),
    *each("modules", DENSE, "in_features", (HUGE,), "in_features"),
    *each("modules", DENSE, "in_features", (16, "x", REMOVED), "cannot be opened"),
    ("modules", settings(DENSE, activation_function="torch.nn.Linear"), ("cannot be opened",)),
    ("modules", settings(DENSE, activation_function="torch.nn.GLU"), (MODULES, "should give 32 dimensions")),
    *each("modules", DENSE, "activation_function", ("torch.nn.nonsense", 5), "torch.nn"),
    *each("modules", DENSE, "module_input_name", ("token_embeddings",), "'token_embeddings'"),
    *each("modules", NORMALIZE, "module_output_name", ("token_embeddings",), "'token_embeddings'"),
    ("layers", settings(LAYERS, layer_start="x"), ("layer_start",)),
    ("layers", settings(LAYERS, num_hidden_layers=3), ("nearfar does not support these weights",)),
    *each("words", WORDS, "word_weights", ({}, {"dog": 0.0}, {"[CLS]": 0.5}, "x"), "weights of single words"),
    *(("modules", content(MODULES, json.dumps(listed)), (mention,)) for listed, mention in MODULE_LISTS),
    *each("classifier", CONFIG, "id2label", ({}, {"0": "a", "1": "b", "3": "c"}, {"0": 1, "1": 2, "2": 3}), LABELS),
    config("classifier", LABELS, id2label={"0": "a", "1": "b", "2": "b"}),
    config("classifier", f"2 {MISSHAPEN}", "classifier.bias", id2label=REMOVED),
    ("classifier", settings(CONFIG, architectures=["BertModel"]), ("holds no classifier",)),
    *(
        ("plain", vocabulary(change), (mention,))
        for change, mention in (
            (lambda words: {word: n for word, n in words.items() if word[0] == "["}, "only special tokens, no words"),
            (lambda words: words | {"zebra": 42}, "token ids up to 42 ('zebra')"),
            (lambda words: words | {"zebra": 10**6}, "token ids up to 1000000 ('zebra')"),
            (lambda words: {word: n for word, n in words.items() if n < 20}, "token ids up to 19"),
        )
    ),
    ("plain", index(lambda _: {"x": 5}), (INDEX, "weight_map")),
    ("plain", index(lambda found: found | {"x": "../x.safetensors"}), (INDEX, "names the file '../x.safetensors', wh")),
    ("plain", tensors({"pooler.dense.weight": torch.zeros(32, 32).to(torch.int8)}), (WEIGHTS, "quantized")),
    ("modules", lambda folder: (folder / MODULES).unlink(), (f"holds {PROMPTS} but no modules.json",)),
    ("plain", settings(TOKENIZER, post_processor=template([])), ("cannot be opened",)),
    *(("modules", settings(file, note="a\ud800b"), (file, "half a surrogate pair")) for file in (CONFIG, POOLING)),
]
LINK = ("is a link to", "outside the model folder", "copy the file here")
SMALL = {f"small.{number}": torch.zeros(1) for number in range(1500)}
HOSTILE: list[Row] = [
    ("plain", empty_tensors(vocab_size=200_000_000), (CONFIG, "describes a model of")),
    ("plain", tensors({"v": torch.zeros(60_000)}, hidden_size=60_000, num_attention_heads=1), ("describes a model",)),
    ("plain", empty_tensors(30_000, 1, num_hidden_layers=30_000), (CONFIG, "num_hidden_layers is 30000")),
    ("plain", tensors(SMALL, num_hidden_layers=1400), (CONFIG, "num_hidden_layers is 1400", "at most 1000")),
    config("plain", "num_experts is 1000000000", "at most 1000", num_experts=10**9),
    config("plain", "num_labels is 1000000000", "at most 100000", num_labels=10**9),
    *each("plain", CONFIG, "transformers_weights", ("../o.safetensors", "o.bin"), "transformers_weights"),
    ("plain", link(TOKENIZER, SECRET), (TOKENIZER, *LINK)),
    ("modules", link(POOLING, SECRET), (POOLING, *LINK)),
    ("translator", link("generation_config.json", SECRET), ("generation_config.json", *LINK)),
    *each("plain", TOKENS, "vocab_file", (f"../{SECRET}",), f"names ../{SECRET}, a file outside the model folder"),
    *each("plain", TOKENS, "init_inputs", ([f"../{SECRET}"],), "init_inputs"),
    *each("plain", TOKENIZER, "normalizer", (charmap(b"\x10\0\0\0" + b"\xff" * 30), charmap(b"")), "cannot be opened"),
    ("plain", settings(TOKENIZER, post_processor=template([10**7])), ("token ids up to 10000000",)),
]
NEEDS_CODE, NEVER_RUNS = "the model needs custom code", "never runs code from a model folder"
OF_THE_HUB = "someone/attention"
UNKNOWN_TYPE = settings(CONFIG, model_type="evil", auto_map={"AutoConfig": "evil.EvilConfig"})
CODE: list[Row] = [
    ("plain", UNKNOWN_TYPE, (CONFIG, NEEDS_CODE, NEVER_RUNS)),
    config("plain", NEEDS_CODE, "evil.EvilConfig", auto_map={"AutoConfig": "evil.EvilConfig"}),
    config("plain", NEEDS_CODE, auto_map={"AutoTokenizer": ["evil.BertTokenizerFast", None]}),
    *each("plain", TOKENS, "auto_map", ({"AutoTokenizer": "evil.Tokenizer"}, ["evil.Tokenizer", None]), NEEDS_CODE),
    config("plain", f"attn_implementation is '{OF_THE_HUB}'", "code from the hub", attn_implementation=OF_THE_HUB),
    config("plain", f"_attn_implementation is '{OF_THE_HUB}'", text_config={"_attn_implementation": OF_THE_HUB}),
    config("plain", f"_attn_implementation is '{OF_THE_HUB}'", parts=[{"_attn_implementation": OF_THE_HUB}]),
    *(
        ("modules", entry(number, type=name), (MODULES, f"'{name}'", NEVER_RUNS))
        for number, name in ((0, "evil.Transformer"), (1, "Pooling"), (2, "sentence_transformers_evil.Dense"))
    ),
    ("modules", entry(2, type="sentence_transformers.models.CNN"), ("module 2 is a 'CNN'",)),
    *each("modules", DENSE, "activation_function", ("evil.Act", "torch.hub.load"), "torch.nn"),
    (
        "modules",
        lambda folder: (folder / "2_Dense" / WEIGHTS).rename(folder / "2_Dense" / "pytorch_model.bin"),
        ("2_Dense", "pickled weights are not opened"),
    ),
    *(
        ("modules", entry(number, path=path), (MODULES, "points outside the model folder"))
        for number, path in ((1, "/etc"), (1, "1_Pooling/../../other"), (1, "..\\other"), (1, "C:\\other"), (0, "../x"))
    ),
]
PROGRAM = """from pathlib import Path
Path({marker!r}).touch()
from torch.nn import Identity as Act
from transformers import BertConfig, BertModel, BertTokenizerFast
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
class EvilConfig(BertConfig): model_type = "evil"
class EvilModel(BertModel): config_class = EvilConfig
"""


ROWS = [
    pytest.param(
        *row,
        id=f"{number} {row[0]} {row[2][0]} {row[2][-1]}"[:80],
        marks=[pytest.mark.long] * (rows is HOSTILE) + [pytest.mark.nightly] * (row in AT_NIGHT),
    )
    for rows in (INCONSISTENT, HOSTILE, CODE)
    for number, row in enumerate(rows)
]


@pytest.fixture
def no_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question on the terminal fails the test; the code of a model folder could be imported."""

    def prompt(*_: object) -> str:
        raise AssertionError("a question was asked on the terminal")

    monkeypatch.setattr(builtins, "input", prompt)
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n" * 20))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "model"))


def add_code(folder: Path) -> Path:
    """Put a program next to the model's files; returns the file that it makes."""
    marker = folder.parent / "RAN"
    (folder / "evil.py").write_text(PROGRAM.format(marker=str(marker)))
    return marker


@pytest.mark.usefixtures("no_questions")
@pytest.mark.parametrize(("form", "damage", "mentions"), ROWS)
def test_a_folder_is_refused(
    models: Path, form: str, damage: Damage, mentions: tuple[str, ...], tmp_path: Path
) -> None:
    folder = changed(models, form, damage, tmp_path)
    marker = add_code(folder)
    message = refusal(form, folder)
    for words in mentions:
        assert words in message
    assert not marker.exists()


@pytest.mark.usefixtures("no_questions")
def test_the_code_would_run(models: Path, tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    known = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    folder = changed(models, "plain", settings(CONFIG, model_type="evil", auto_map=known), tmp_path)
    marker = add_code(folder)
    transformers.AutoModel.from_pretrained(folder, trust_remote_code=True)
    assert marker.exists()


def rename_pooling(kind: str) -> Damage:
    return entry(1, type=f"sentence_transformers.{kind}")


def follow_links(folder: Path) -> None:
    """A link inside the folder, as in the local cache of the hub, and one of the weights to another disk."""
    (folder.parent / "elsewhere").mkdir()
    (folder / WEIGHTS).rename(folder.parent / "elsewhere" / WEIGHTS)
    (folder / WEIGHTS).symlink_to(folder.parent / "elsewhere" / WEIGHTS)
    (folder / "1_Pooling").rename(folder / "pooling")
    (folder / "1_Pooling").symlink_to("pooling")


OF_TRANSFORMERS = {"AutoConfig": "evil.BertConfig", "AutoModel": "evil.BertModel"}
ACCEPTED: list[tuple[str, Damage]] = [
    ("plain", settings(CONFIG, return_dict=False, dtype="float16", attn_implementation="eager")),
    ("plain", settings(CONFIG, architectures=None, auto_map=OF_TRANSFORMERS)),
    ("plain", settings(TOKENS, vocab_file="/home/someone/vocab.txt", tokenizer_file=None)),
    *(("modules", rename_pooling(kind)) for kind in ("models.pooling.Pooling", "sentence_transformer.modules.Pooling")),
    ("modules", follow_links),
    ("plain", sharded),
]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(ACCEPTED)))
@pytest.mark.filterwarnings("ignore:.*longer than")
def test_what_is_harmless_changes_no_vector(models: Path, number: int, tmp_path: Path) -> None:
    form, damage = ACCEPTED[number]
    folder = changed(models, form, damage, tmp_path)
    marker = add_code(folder)
    assert same_outputs(form, folder, outputs_of(form, models / form))
    assert not marker.exists()


def same_outputs(form: str, folder: Path, expected: Any) -> bool:
    found = outputs_of(form, folder)
    return found == expected if form == "translator" else bool(np.abs(found - expected).max() <= 1e-6)


# --- every file of every form, damaged ---

MUTATIONS: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "list": lambda content: b"[1, 2]",
    "number": lambda content: b"7",
    "object": lambda content: b"{}",
    "garbage": lambda content: content[: len(content) // 2] + b"\xff\x80" + content[len(content) // 2 + 2 :],
}
UNREAD = {"README.md"}
DEFAULTS = {
    *((file, mutation) for file in (NORMALIZE, PROMPTS, BERT) for mutation in ("missing", "object")),
    ("generation_config.json", "missing"),
}
"""Mutations that do not change the model, because its settings are the defaults."""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*longer than")
@pytest.mark.parametrize(
    ("form", "stride"),
    [
        ("modules", 3),
        *(pytest.param(form, 1, marks=pytest.mark.nightly) for form in "modules plain classifier translator".split()),
    ],
)
def test_a_damaged_file_is_named_or_has_no_effect(models: Path, form: str, stride: int, tmp_path: Path) -> None:
    """By day every third change of each file in turn, at night all."""
    expected = outputs_of(form, models / form)
    files = [file.relative_to(models / form).as_posix() for file in (models / form).rglob("*") if file.is_file()]
    for number, file in enumerate(sorted(files)):
        for mutation, change in [*MUTATIONS.items()][number % stride :: stride]:
            folder = Path(shutil.copytree(models / form, tmp_path / "model"))
            content = change((folder / file).read_bytes())
            (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
            if file in UNREAD or (file, mutation) in DEFAULTS:
                assert same_outputs(form, folder, expected), (file, mutation)
            elif file.endswith(".safetensors") and mutation == "garbage":  # numbers still, unless they overflow
                with suppress(NearfarError):
                    outputs_of(form, folder)
            else:
                part = file.partition("/")[0].partition(".")[0].removesuffix("_config")
                assert (part if mutation in ("missing", "object") else file) in refusal(form, folder), (file, mutation)
            shutil.rmtree(folder)


@pytest.mark.parametrize("file", [CONFIG, TOKENIZER, WEIGHTS, MODULES, POOLING])
def test_an_unreadable_file_and_a_folder_in_its_place(
    models: Path, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mocks the system's error, because the user who runs the tests may be able to read everything."""
    folder = Path(shutil.copytree(models / "modules", tmp_path / "model"))
    opened = io.open

    def refuse(path: Any, *arguments: Any, **more: Any) -> Any:
        if str(path) == str(folder / file):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr("io.open", refuse)
        patch.setattr("builtins.open", refuse)
        assert refusal("modules", folder) == f"{folder / file}: cannot be read (Permission denied)."
    (folder / file).unlink()
    (folder / file).mkdir()
    assert f"{file}: " in refusal("modules", folder)


def test_headers_of_safetensors(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    header, data = read_header(folder / WEIGHTS)
    text = json.dumps(header).encode()
    monkeypatch.setattr(weights, "MAX_HEADER", len(text) + 8)
    write_header(folder / WEIGHTS, text + b" " * 8, data)
    Encoder.from_pretrained(folder)
    write_header(folder / WEIGHTS, text + b" " * 16, data)
    assert f"{WEIGHTS}: its header has" in refusal("plain", folder)
    monkeypatch.undo()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", 2**62) + b"{}")
    assert "truncated or damaged" in refusal("plain", folder)


PLACES = {
    "": "must not be empty",
    "texts.txt": "texts.txt: is a file, but a model is a folder",
    "./nowhere": "./nowhere: there is no such model folder",
    "~nobody-of-this-name/model": "~nobody-of-this-name/model: Could not determine home directory",
    ".": "holds no config.json",
    "/" + "x" * 300: "has a name of over 255 bytes",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_path_that_is_no_model(workspace: Path, place: str) -> None:
    assert_refused(["encode", place, "--input", "texts.txt", "--output", "out.npy"], PLACES[place])
