"""Opening classifiers: which weights are loaded, which are initialised, and which folders are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from nearfar import Encoder, NearfarError
from nearfar.encoder.classifier import Classifier
from tests.encoder.tiny_pairs import items, save_tiny_for_pairs
from tests.tiny import sentences

LABELS = ("no", "maybe", "yes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_for_pairs(tmp_path / "tiny")


def rewrite(folder: Path, change) -> None:
    """Save the folder's weights after ``change``."""
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})


def opened(folder: Path, *, seed: int = 1, **settings) -> Classifier:
    torch.manual_seed(seed)
    return Classifier.from_pretrained(folder, **settings)


def state(classifier: Classifier) -> dict[str, torch.Tensor]:
    return classifier.model.state_dict()


@pytest.mark.long
def test_encoder_and_pooler_are_loaded_and_the_head_is_initialised(folder: Path) -> None:
    one, same, other = (state(opened(folder, label_names=LABELS, seed=seed)) for seed in (1, 1, 2))
    kept = load_file(folder / "model.safetensors")
    assert "pooler.dense.weight" in kept
    for name, weight in kept.items():
        assert torch.equal(one[f"bert.{name}"], weight)
    drawn = one["classifier.weight"]
    assert drawn.shape == (3, 32)
    assert 0.01 < drawn.std() < 0.03  # BERT's initializer_range is 0.02
    assert not one["classifier.bias"].any()
    assert torch.equal(drawn, same["classifier.weight"])
    assert not torch.equal(drawn, other["classifier.weight"])


@pytest.mark.long
def test_a_missing_pooler_is_initialised(folder: Path) -> None:
    rewrite(folder, lambda weights: {name: w for name, w in weights.items() if not name.startswith("pooler")})
    one, same, other = (state(opened(folder, label_names=LABELS, seed=seed)) for seed in (1, 1, 2))
    drawn = one["bert.pooler.dense.weight"]
    assert 0.015 < drawn.std() < 0.025
    assert torch.equal(drawn, same["bert.pooler.dense.weight"])
    assert not torch.equal(drawn, other["bert.pooler.dense.weight"])


def test_a_missing_weight_of_the_encoder_is_an_error(folder: Path) -> None:
    rewrite(folder, lambda weights: {name: w for name, w in weights.items() if "layer.1.output.dense" not in name})
    with pytest.raises(NearfarError, match=r"2 weights are missing or misshapen.*layer\.1\.output\.dense"):
        opened(folder, label_names=LABELS)


def test_half_precision_is_opened_in_float32(folder: Path) -> None:
    rewrite(folder, lambda weights: {name: weight.half() for name, weight in weights.items()})
    assert {weight.dtype for weight in state(opened(folder, label_names=LABELS)).values()} == {torch.float32}


@pytest.mark.long
def test_a_saved_head_is_kept_only_for_its_labels(folder: Path, tmp_path: Path) -> None:
    first = opened(folder, label_names=LABELS)
    first.save_pretrained(tmp_path / "saved")
    for labels in (None, LABELS):
        again = opened(tmp_path / "saved", label_names=labels, seed=9)
        assert again.label_names == LABELS
        assert all(torch.equal(weight, state(first)[name]) for name, weight in state(again).items())
    for labels in (("a", "b", "c"), LABELS[::-1], ("a", "b"), ()):
        fresh = opened(tmp_path / "saved", label_names=labels, seed=9)
        assert fresh.label_names == labels
        weight = state(fresh)["classifier.weight"]
        assert weight.shape == (len(labels) or 1, 32)
        assert weight.shape != (3, 32) or not torch.equal(weight, state(first)["classifier.weight"])
        assert 0.01 < weight.std() < 0.03
        assert torch.equal(state(fresh)["bert.pooler.dense.weight"], state(first)["bert.pooler.dense.weight"])
        assert fresh.predict(items(3)).shape == (3, len(labels) or 1)
    rewrite(tmp_path / "saved", lambda weights: {n: w for n, w in weights.items() if n != "classifier.bias"})
    with pytest.raises(NearfarError, match=r"1 weights are missing or misshapen.*classifier\.bias"):
        opened(tmp_path / "saved")


def test_a_head_of_another_task_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    tagger = transformers.AutoModelForTokenClassification.from_pretrained(folder, num_labels=3)
    tagger.save_pretrained(tmp_path / "tagger")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "tagger")
    rewrite(tmp_path / "tagger", lambda weights: weights | load_pooler(folder))
    with pytest.raises(NearfarError, match="holds no classifier; set label_names"):
        opened(tmp_path / "tagger")
    ours = opened(tmp_path / "tagger", label_names=LABELS)
    assert not torch.equal(state(ours)["classifier.weight"], tagger.state_dict()["classifier.weight"])
    assert torch.equal(state(ours)["bert.pooler.dense.bias"], load_pooler(folder)["bert.pooler.dense.bias"])


def load_pooler(folder: Path) -> dict[str, torch.Tensor]:
    weights = load_file(folder / "model.safetensors")
    return {f"bert.{name}": weight for name, weight in weights.items() if name.startswith("pooler")}


@pytest.mark.long
def test_regression_has_one_output_and_no_labels(folder: Path, tmp_path: Path) -> None:
    classifier = opened(folder, regression=True)
    several = items(5)
    expected = classifier.predict(several)
    assert expected.shape == (5, 1)
    classifier.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["problem_type"] == "regression"
    for regression in (True, False):
        again = opened(tmp_path / "saved", regression=regression, seed=9)
        assert again.label_names == ()
        np.testing.assert_allclose(again.predict(several), expected, atol=1e-6)  # up to the last bits


def test_the_saved_config_names_the_labels_for_transformers(folder: Path, tmp_path: Path) -> None:
    classifier = opened(folder, label_names=LABELS, max_length=17, dropout=0.25)
    limit = classifier.tokenizer.model_max_length
    classifier.save_pretrained(tmp_path / "saved")
    assert classifier.tokenizer.model_max_length == limit
    config = transformers.AutoConfig.from_pretrained(tmp_path / "saved")
    assert config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert config.label2id == {"no": 0, "maybe": 1, "yes": 2}
    assert config.architectures == ["BertForSequenceClassification"]
    assert config.problem_type == "single_label_classification"
    assert config.attention_probs_dropout_prob == config.hidden_dropout_prob == config.classifier_dropout == 0.25
    assert "nearfar" not in (tmp_path / "saved" / "config.json").read_text()
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "saved").model_max_length == 17
    assert [file.name for file in (tmp_path / "saved").glob("*.safetensors")] == ["model.safetensors"]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "mpnet", "modernbert"])
def test_dropout_is_set_everywhere(architecture: str, tmp_path: Path) -> None:
    folder = save_tiny_for_pairs(tmp_path, architecture)
    classifier = opened(folder, label_names=LABELS, dropout=0.25)
    modules = [module.p for module in classifier.modules() if isinstance(module, torch.nn.Dropout)]
    assert set(modules) == {0.25}
    others = [
        module.p for module in opened(folder, label_names=LABELS).modules() if isinstance(module, torch.nn.Dropout)
    ]
    assert 0.25 not in others
    assert len(modules) >= len(others) > 3  # ModernBERT omits those with p = 0


@pytest.mark.long
def test_a_sentence_transformers_folder(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(folder, pooling="cls", max_length=13)
    encoder.add_dense()
    encoder.save_pretrained(tmp_path / "model")
    classifier = opened(tmp_path / "model", label_names=LABELS)
    assert classifier.max_length == 13
    texts = sentences(5, longest=6)
    found = classifier.cls(classifier.tokenize([(text,) for text in texts]))
    assert found.abs().max() > 0.1
    expected = Encoder.from_pretrained(folder, pooling="cls").encode(texts)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)


@pytest.mark.long
def test_a_head_that_reads_all_tokens_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_for_pairs(tmp_path / "tiny", "modernbert")
    config = transformers.AutoConfig.from_pretrained(folder, classifier_pooling="mean")
    transformers.AutoModelForSequenceClassification.from_pretrained(folder, config=config).save_pretrained(folder)
    with pytest.raises(NearfarError, match=r"ModernBertFor.* needs more than \[CLS\].*BERT, RoBERTa"):
        opened(folder)
    assert opened(folder, label_names=LABELS).model.config.classifier_pooling == "cls"  # a new head reads [CLS]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "holds no classifier; set label_names"),
        ({"label_names": ("yes",)}, "two or more different names"),
        ({"label_names": ("yes", "no", "yes")}, "two or more different names"),
        ({"label_names": "yes"}, "not the one string 'yes'"),
        ({"label_names": LABELS, "regression": True}, "not both"),
        ({"label_names": LABELS, "dropout": 1.0}, "dropout 1.0: must be in"),
        ({"label_names": LABELS, "max_length": 63}, "max_length 63: must be from 3 to 62 tokens"),
    ],
)
def test_invalid_arguments_are_refused(folder: Path, settings: dict, message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        opened(folder, **settings)
