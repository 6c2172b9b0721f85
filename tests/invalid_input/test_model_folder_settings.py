"""Model folders with valid JSON but invalid or inconsistent settings: one sentence each."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from nearfar import Encoder, NearfarError
from nearfar.encoder.classifier import Classifier
from tests.invalid_input.model_folders import REMOVED, assert_load_refused, edit, rows_of, save_model_variants
from tests.tiny import sentences

HUGE = 10**10
PROMPTS = "config_sentence_transformers.json"
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
WRONG = ("x", 0, -1, True, 2.5, [1], None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each form."""
    return save_model_variants(tmp_path_factory.mktemp("models"))


CONFIG = [
    *(({name: value}, ("config.json", name)) for name in SIZES for value in (*WRONG, HUGE)),
    *(
        ({"max_position_embeddings": value}, ("config.json", "max_position_embeddings"))
        for value in (*WRONG, HUGE, 10**6)
    ),
    *(({"type_vocab_size": value}, ("config.json", "type_vocab_size")) for value in ("x", -1, True, HUGE)),
    ({"hidden_size": REMOVED}, ("37 weights are missing or misshapen", "[32] in the file, [768] by config.json")),
    ({"num_hidden_layers": 3}, ("16 weights are missing or misshapen", "encoder.layer.2")),
    ({"hidden_size": 16}, ("weights are missing or misshapen", "[32] in the file, [16] by config.json")),
    ({"vocab_size": 41}, ("1 weights are missing or misshapen", "word_embeddings")),
    ({"max_position_embeddings": 32}, ("position_embeddings.weight ([64, 32] in the file, [32, 32] by config.json)",)),
    ({"num_attention_heads": 3}, ("config.json: hidden_size 32 is not a multiple of num_attention_heads 3",)),
    ({"num_attention_heads": HUGE}, ("config.json: hidden_size 32 is not a multiple",)),
    ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, ("config.json", "are quantized")),
    ({"quantization_config": "x"}, ("config.json", "are quantized")),
    *(({"dtype": value}, ("config.json: dtype is", "float32")) for value in ("float33", 5, "load", ["float32"])),
    ({"torch_dtype": "half a float"}, ("config.json: torch_dtype is 'half a float'",)),
    ({"model_type": "nonsense"}, ("config.json", "nonsense")),
    ({"model_type": "electra"}, ("weights are missing or misshapen",)),
    ({"model_type": "distilbert"}, ("weights are missing or misshapen",)),
    *(({"model_type": value}, ("config.json: names no model_type",)) for value in (REMOVED, None, 5, ["bert"])),
    ({"architectures": "BertModel"}, ("config.json: architectures is 'BertModel'", "list of class names")),
    ({"architectures": [1]}, ("config.json: architectures is [1]",)),
    *(({"id2label": value}, ("config.json: id2label must name",)) for value in ("x", ["a"], {"x": "a"})),
    ({"hidden_act": "nonsense"}, ("config.json", "nonsense")),
    ({"hidden_act": 5}, ("config.json", "hidden_act")),
    ({"layer_norm_eps": "x"}, ("config.json", "layer_norm_eps")),
    ({"hidden_dropout_prob": 5}, ("config.json", "dropout")),
    ({"attention_probs_dropout_prob": "x"}, ("config.json", "attention_probs_dropout_prob")),
    ({"pad_token_id": 1000}, ("config.json", "Padding_idx")),
    ({"pad_token_id": "x"}, ("config.json", "pad_token_id")),
    ({"chunk_size_feed_forward": 7}, ("config.json", "chunk")),
]


@pytest.mark.long
@pytest.mark.parametrize(("changes", "mentions"), rows_of(CONFIG))
def test_config(models: Path, changes: dict[str, Any], mentions: tuple[str, ...], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    edit(folder / "config.json", changes)
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, mentions)


@pytest.mark.parametrize(
    "changes", [{"return_dict": False}, {"dtype": "float16"}, {"attn_implementation": "eager"}, {"architectures": None}]
)
def test_config_that_changes_no_vector(models: Path, changes: dict[str, Any], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    edit(folder / "config.json", changes)
    expected = Encoder.from_pretrained(models / "plain").encode(sentences(5))
    assert np.abs(Encoder.from_pretrained(folder).encode(sentences(5)) - expected).max() <= 1e-6


def test_a_normalization_that_gives_nan(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "plain", tmp_path / "model"))
    edit(folder / "config.json", {"layer_norm_eps": float("nan")})
    with pytest.raises(NearfarError, match=r"text 0 \(counted from 0\), 'a dog': the model's output is not finite"):
        Encoder.from_pretrained(folder).encode(["a dog"])


ADDED = {"100000": {"content": "zzz", "special": False, "lstrip": False, "rstrip": False, "single_word": False}}
BEYOND = ("the tokenizer has token ids up to 42", "embeddings for 42 tokens")
BERT, DENSE, NORMALIZE = "sentence_bert_config.json", "2_Dense/config.json", "3_Normalize/config.json"
OTHERS = [
    *(
        ("plain", BERT, {"max_seq_length": value}, (f"{BERT}: max_seq_length is {value!r}", "from 3 to 64"))
        for value in (100000, 65, 2, 0, -1, "x", True, 5.5, [1])
    ),
    *(
        ("plain", "tokenizer_config.json", {"model_max_length": value}, ("tokenizer_config.json: model_max_length is",))
        for value in (-1, 0, 2, "x", True, [1], float("nan"))
    ),
    *(
        (
            "plain",
            "tokenizer_config.json",
            {"tokenizer_class": value},
            ("tokenizer_config.json: selects a", "WordLevel"),
        )
        for value in ("BertTokenizer", "RobertaTokenizer", REMOVED)
    ),
    ("plain", "tokenizer_config.json", {"tokenizer_class": 5}, ("tokenizer",)),
    ("plain", "tokenizer_config.json", {"unk_token": 5}, ("tokenizer", "unk_token")),
    ("plain", "tokenizer_config.json", {"unk_token": "[nonsense]"}, BEYOND),
    ("plain", "tokenizer_config.json", {"added_tokens_decoder": ADDED}, (*BEYOND, "'zzz'")),
    ("plain", "tokenizer_config.json", {"added_tokens_decoder": [1]}, ("tokenizer",)),
    ("plain", "tokenizer_config.json", {"extra_special_tokens": {"more": "<zz>"}}, (*BEYOND, "'<zz>'")),
    ("plain", "tokenizer_config.json", {"model_input_names": 5}, ("tokenizer",)),
    ("plain", "added_tokens.json", {"zzz": 1000}, (*BEYOND, "'zzz'")),
    ("plain", "added_tokens.json", {"zzz": "x"}, ("tokenizer",)),
    ("plain", "special_tokens_map.json", {"unk_token": 5}, ("tokenizer", "unk_token")),
    ("plain", "adapter_config.json", {"base_model_name_or_path": "x"}, ("adapter_config.json", "merge the adapter")),
    *(
        ("modules", PROMPTS, {"default_prompt_name": value}, ("default_prompt_name is", "'query', 'document'"))
        for value in ("clustering", 5, ["query"], {})
    ),
    *(
        ("modules", PROMPTS, {"prompts": value}, ("prompts must be an object",))
        for value in ("query: ", ["query: "], {"query": 5}, {"query": ["query: "]})
    ),
    *(
        ("modules", PROMPTS, {"matryoshka": value}, ("matryoshka is", "must be a list of whole numbers from 1"))
        for value in (8, "8", {"8": 1}, [8, "4"], [0], [True], [2.5])
    ),
    ("modules", PROMPTS, {"prompts": {"query": "\ud800: "}}, ("half a surrogate pair",)),
    *(
        ("modules", PROMPTS, {"similarity_fn_name": value}, ("similarity_fn_name is", "'cosine', 'dot'"))
        for value in ("angular", 5, ["dot"])
    ),
    *(
        ("modules", "1_Pooling/config.json", {"include_prompt": value}, ("include_prompt is", "true or false"))
        for value in ("no", 0, None)
    ),
    (
        "words",
        "2_Pooling/config.json",
        {"include_prompt": False},
        ("include_prompt false", "cls, mean and max, not with mean_without_cls"),
    ),
    *(
        ("modules", "1_Pooling/config.json", {"pooling_mode": value}, ("1_Pooling/config.json: pools by", "--pooling"))
        for value in (5, "lasttoken", ["cls", "mean"], {"cls": True})
    ),
    *(
        ("modules", "1_Pooling/config.json", {"pooling_mode": v}, ("names no pooling mode",))
        for v in (REMOVED, None, [], "")
    ),
    *(("modules", DENSE, {"in_features": value}, (DENSE, f"in_features {value!r}")) for value in (16, HUGE, "x", 0)),
    ("modules", DENSE, {"in_features": REMOVED}, (DENSE, "in_features None")),
    ("modules", DENSE, {"bias": False}, (DENSE, "linear.bias")),
    *(
        ("modules", DENSE, {"activation_function": value}, ("cannot be opened",))
        for value in ("torch.nn.Module", "torch.nn.Linear", "torch.nn.MSELoss", None)
    ),
    ("modules", DENSE, {"activation_function": "torch.nn.GLU"}, ("modules.json", "Dense", "should give 32 dimensions")),
    ("modules", DENSE, {"activation_function": "torch.nn.nonsense"}, (DENSE, "must name a module class of torch.nn")),
    ("modules", DENSE, {"activation_function": 5}, (DENSE, "must name a module class of torch.nn")),
    *(
        ("modules", file, {f"module_{side}_name": "token_embeddings"}, (file, "'token_embeddings'"))
        for file in (DENSE, NORMALIZE)
        for side in ("input", "output")
    ),
    ("layers", "1_WeightedLayerPooling/config.json", {"layer_start": "x"}, ("layer_start and num_hidden_layers",)),
    ("layers", "1_WeightedLayerPooling/config.json", {"num_hidden_layers": 3}, ("weights the layers in a way",)),
    *(
        ("words", "1_WordWeights/config.json", {"word_weights": value}, ("weights single words",))
        for value in ({}, {"dog": 0.0}, {"[CLS]": 0.5}, {"[CLS]": 0.0, "dog": 0.0}, [0.0], "x")
    ),
    ("words", "1_WordWeights/config.json", {"unknown_word_weight": 0}, ("weights single words",)),
]


@pytest.mark.parametrize(
    ("form", "file", "changes", "mentions"),
    [pytest.param(*row, id=f"{row[1]} {number} {next(iter(row[2]))}") for number, row in enumerate(OTHERS)],
)
def test_settings(
    models: Path, form: str, file: str, changes: dict[str, Any], mentions: tuple[str, ...], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(models / form, tmp_path / "model"))
    edit(folder / file, changes)
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, mentions)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"initializer_range": True}),
        ("config.json", {"pad_token_id": -1.5}),
        ("tokenizer_config.json", {"cls_token": [1]}),
    ],
)
def test_errors_of_libraries_have_no_names_of_classes(
    models: Path, file: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    folder = shutil.copytree(models / "plain", tmp_path / "model")
    edit(folder / file, changes)
    with pytest.raises(NearfarError) as caught:
        Encoder.from_pretrained(folder)
    assert "TypeError" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_long_error_about_weights_is_cut(models: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(models / "plain", tmp_path / "model")
    file = folder / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(b'"F32"', b'"' + b"x" * 10_000 + b'"', 1)
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    with pytest.raises(NearfarError, match="truncated or damaged") as caught:
        Encoder.from_pretrained(folder)
    assert len(str(caught.value)) < 1000


def test_control_characters_of_a_folder_are_not_quoted(models: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(models / "modules", tmp_path / "model")
    edit(folder / "1_Pooling/config.json", {"pooling_mode": "\x1b[31m\0" + "x" * 9999})
    with pytest.raises(NearfarError, match="pools by") as caught:
        Encoder.from_pretrained(folder)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("file", ["config.json", "modules.json", "1_Pooling/config.json"])
def test_half_a_surrogate_pair_is_damage(models: Path, file: str, tmp_path: Path) -> None:
    folder = shutil.copytree(models / "modules", tmp_path / "model")
    content = json.loads((folder / file).read_text())
    target = content[0] if isinstance(content, list) else content
    target["note"] = "a\ud800b"
    (folder / file).write_text(json.dumps(content))
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, (file, "half a surrogate pair"))


def test_a_classifier_with_weights_that_are_not_finite(models: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(models / "classifier", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert_load_refused(lambda: Classifier.from_pretrained(folder), folder, ("logits are not finite",))


@pytest.mark.parametrize("inside", [False, True])
def test_a_template_with_an_unknown_special_token(models: Path, inside: bool, tmp_path: Path) -> None:
    folder = shutil.copytree(models / "plain", tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["post_processor"]["single"][0]["SpecialToken"]["id"] = "[X]"
    if inside:
        content["post_processor"] = {"type": "Sequence", "processors": [content["post_processor"]]}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    words = ("tokenizer.json: its post_processor adds '[X]', which it does not define",)
    assert_load_refused(lambda: Encoder.from_pretrained(folder), folder, words)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("2_Dense/config.json", {"activation_function": "x" * 9999}),
        ("config.json", {"vocab_size": "x" * 9999}),
        ("config.json", {"model_type": "x" * 9999}),
        ("sentence_bert_config.json", {"max_seq_length": ["x"] * 9999}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "x" * 9999}),
    ],
)
def test_long_values_are_not_quoted_whole(models: Path, file: str, changes: dict[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree(models / "modules", tmp_path / "model")
    edit(folder / file, changes)
    with pytest.raises(NearfarError) as caught:
        Encoder.from_pretrained(folder)
    assert Path(file).name in str(caught.value)
    assert len(str(caught.value)) < 1000
