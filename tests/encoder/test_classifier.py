"""The classifier: pairs, [CLS] states and head, predict; which weights are loaded or new; folders that are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from nearfar import Encoder, NearfarError
from nearfar.encoder import token_batches
from nearfar.encoder.classifier import Classifier, EmbeddingClassifier, open_classifier
from tests.encoder.tiny_pairs import TYPED, items, save_tiny_for_pairs
from tests.same_gradients import assert_same_gradients, gradients_of
from tests.tiny import PADDED, save_tiny, sentences

LABELS = ("no", "maybe", "yes")


def open_tiny(folder: Path, architecture: str = "bert", **settings) -> Classifier:
    """A classifier of three labels whose head is scaled so that logits differ."""
    torch.manual_seed(5)
    classifier = Classifier.from_pretrained(
        save_tiny_for_pairs(folder, architecture), **{"label_names": LABELS, **settings}
    )
    backbone = {id(parameter) for parameter in classifier.backbone.parameters()}
    with torch.no_grad():
        for parameter in classifier.parameters():
            if id(parameter) not in backbone:
                parameter.add_(torch.randn_like(parameter) * 0.4)
    return classifier


@pytest.mark.long
def test_a_classifier_of_embeddings_is_saved_and_opened(tmp_path: Path) -> None:
    """Also weights in column order, as scikit-learn gives them; and the softmax is that of the formula."""
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"))
    encoder.save_pretrained(tmp_path / "saved")
    weight = np.asfortranarray(np.random.default_rng(0).normal(size=(3, encoder.dim + 1)).astype(np.float32))
    EmbeddingClassifier(encoder, LABELS, weight).save_head(tmp_path / "saved")
    opened = open_classifier(tmp_path / "saved")
    assert opened.label_names == LABELS
    texts = sentences(5)
    vectors = encoder.encode(texts).astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = unit @ weight[:, :-1].T.astype(np.float64) + weight[:, -1]
    np.testing.assert_allclose(opened.predict([(text,) for text in texts]), expected, atol=1e-5)
    assert Encoder.from_pretrained(tmp_path / "saved").encode(texts) == pytest.approx(vectors, abs=1e-6)
    with pytest.raises(NearfarError, match="labels single texts, not pairs"):
        opened.predict([("a", "b")])
    EmbeddingClassifier(encoder, LABELS, weight[:, 1:]).save_head(tmp_path / "saved")
    with pytest.raises(NearfarError, match=r"nearfar_head.safetensors: is damaged .weights of shape"):
        open_classifier(tmp_path / "saved")


@pytest.fixture
def classifier(tmp_path: Path) -> Classifier:
    return open_tiny(tmp_path / "tiny")


def test_the_longer_text_of_a_pair_is_truncated_first(classifier: Classifier) -> None:
    pairs = [("a dog " * 9, "the cat"), ("the cat", "a dog " * 9), ("a dog", "the cat"), ("a dog " * 9,)]
    tokens = classifier.tokenize(pairs, max_length=9)
    read = [" ".join(classifier.tokenizer.convert_ids_to_tokens(ids)) for ids in tokens.ids]
    assert read == [
        "[CLS] a dog a dog [SEP] the cat [SEP]",
        "[CLS] the cat [SEP] a dog a dog [SEP]",
        "[CLS] a dog [SEP] the cat [SEP]",
        "[CLS] a dog a dog a dog a [SEP]",
    ]
    assert tokens.is_truncated == [True, True, False, True]
    assert tokens.truncated == 3
    batch = tokens.select([2, 0])
    assert (batch.ids, batch.types) == ([tokens.ids[2], tokens.ids[0]], [tokens.types[2], tokens.types[0]])
    with pytest.raises(NearfarError, match="max_length 4: a pair needs at least 5 tokens"):
        classifier.tokenize(pairs, max_length=4)


@pytest.mark.long
@pytest.mark.parametrize(
    "architecture",
    [
        *("bert", "roberta", "distilbert", "modernbert", "deberta-v2"),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("mpnet", "xlm-roberta", "electra")),
    ],
)
def test_logits_equal_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    classifier = open_tiny(tmp_path / "tiny", architecture, max_length=20)
    assert classifier.route.ragged == (architecture not in (*PADDED, "deberta-v2"))
    several = [*items(12, longest=9), ("a dog " * 30,), ("a dog " * 30, "the cat " * 30), ("", "a dog"), ("",)]
    with pytest.warns(UserWarning, match="2 of 16 distinct texts are longer than 20 tokens"):
        ours = classifier.predict(several)
    assert np.ptp(ours, axis=0).max() > 0.1
    classifier.save_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(ours, transformers_logits(tmp_path / "saved", several), atol=1e-5)
    again = Classifier.from_pretrained(tmp_path / "saved")
    assert (again.label_names, again.max_length) == (LABELS, 20)
    with pytest.warns(UserWarning, match="were truncated"):
        np.testing.assert_allclose(again.predict(several), ours, atol=1e-6)  # last bits depend on memory alignment


def transformers_logits(folder: Path, several: list[tuple[str, ...]]) -> np.ndarray:
    """Logits by transformers, one item at a time."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = [model(**tokenizer(*item, truncation=True, return_tensors="pt")).logits for item in several]
    return torch.cat(logits).numpy()


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["bert", pytest.param("distilbert", marks=pytest.mark.nightly)])
def test_gradients_equal_those_of_padded_transformers(architecture: str, tmp_path: Path) -> None:
    ours = open_tiny(tmp_path / "tiny", architecture)
    ours.save_pretrained(tmp_path / "saved")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved", attn_implementation="eager").eval()
    pairs = [item for item in items(14) if len(item) == 2]
    target = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    direction = torch.randn(len(pairs), 32, generator=torch.Generator().manual_seed(0))

    def backward(cls: torch.Tensor, logits: torch.Tensor) -> None:
        contrast = (functional.normalize(cls, dim=-1) * direction).sum()
        (functional.cross_entropy(logits, target) + contrast).backward()

    tokens = ours.tokenize(pairs)
    assert (tokens.types is not None) == (architecture in TYPED)
    cls = ours.cls(tokens)
    backward(cls, ours.head(cls))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    batch = tokenizer(*zip(*pairs, strict=True), padding=True, return_tensors="pt")
    output = theirs(**batch, output_hidden_states=True)
    backward(output.hidden_states[-1][:, 0], output.logits)

    expected = gradients_of(theirs)
    assert expected.keys() == dict(theirs.named_parameters()).keys()
    if architecture in TYPED:
        kinds = next(gradient for name, gradient in expected.items() if "token_type_embeddings" in name)
        assert kinds[1].abs().max() > 1e-2
    assert_same_gradients(gradients_of(ours.model), expected, tolerance=1e-4)


@pytest.mark.long
def test_predict_keeps_the_order_and_computes_each_item_once(
    classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    cls = classifier.cls
    monkeypatch.setattr(classifier, "cls", lambda tokens: seen.extend(tokens.ids) or cls(tokens))
    monkeypatch.setattr(token_batches, "TOKENS_PER_BATCH", 40)
    several = items(15)
    classifier.train()
    together = classifier.predict([*several, *several[::-1]])
    assert classifier.training
    assert len(seen) == len(set(several)) == 15
    np.testing.assert_array_equal(together[15:], together[:15][::-1])
    assert together.dtype == np.float32
    halves = classifier.predict(several, precision="bf16")
    assert 0 < np.abs(halves - together[:15]).max() < 0.05 * np.abs(together).max()


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
@pytest.mark.parametrize("with_pooler", [True, False])
def test_weights_of_the_folder_are_loaded_and_the_others_initialised(folder: Path, with_pooler: bool) -> None:
    if not with_pooler:
        rewrite(folder, lambda weights: {name: w for name, w in weights.items() if not name.startswith("pooler")})
    one, same, other = (state(opened(folder, label_names=LABELS, seed=seed)) for seed in (1, 1, 2))
    kept = load_file(folder / "model.safetensors")
    assert ("pooler.dense.weight" in kept) == with_pooler
    for name, weight in kept.items():
        assert torch.equal(one[f"bert.{name}"], weight)
    assert one["classifier.weight"].shape == (3, 32)
    assert not one["classifier.bias"].any()
    for name in ("classifier.weight", *([] if with_pooler else ["bert.pooler.dense.weight"])):
        assert 0.01 < one[name].std() < 0.03  # BERT's initializer_range is 0.02
        assert torch.equal(one[name], same[name])
        assert not torch.equal(one[name], other[name])


@pytest.mark.long
def test_a_saved_head_is_kept_only_for_its_labels(folder: Path, tmp_path: Path) -> None:
    first = opened(folder, label_names=LABELS)
    first.save_pretrained(tmp_path / "saved")
    for labels in (None, LABELS):
        again = opened(tmp_path / "saved", label_names=labels, seed=9)
        assert again.label_names == LABELS
        assert all(torch.equal(weight, state(first)[name]) for name, weight in state(again).items())
    for labels in (LABELS[::-1], ("a", "b"), ()):
        fresh = state(opened(tmp_path / "saved", label_names=labels, seed=9))
        weight = fresh["classifier.weight"]
        assert weight.shape == (len(labels) or 1, 32)
        assert weight.shape != (3, 32) or not torch.equal(weight, state(first)["classifier.weight"])
        assert torch.equal(fresh["bert.pooler.dense.weight"], state(first)["bert.pooler.dense.weight"])
    rewrite(tmp_path / "saved", lambda weights: {n: w for n, w in weights.items() if n != "classifier.bias"})
    with pytest.raises(NearfarError, match=r"1 weights are missing or misshapen.*classifier\.bias"):
        opened(tmp_path / "saved")


@pytest.mark.long
def test_regression_has_one_output_and_no_labels(folder: Path, tmp_path: Path) -> None:
    classifier = opened(folder, label_names=())
    several = items(5)
    expected = classifier.predict(several)
    assert expected.shape == (5, 1)
    classifier.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["problem_type"] == "regression"
    for names in ((), None):
        again = opened(tmp_path / "saved", label_names=names, seed=9)
        assert again.label_names == ()
        np.testing.assert_allclose(again.predict(several), expected, atol=1e-6)  # up to the last bits


def test_the_saved_config_names_the_labels_for_transformers(folder: Path, tmp_path: Path) -> None:
    classifier = opened(folder, label_names=LABELS, max_length=17)
    classifier.save_pretrained(tmp_path / "saved")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "saved")
    assert config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    assert config.label2id == {"no": 0, "maybe": 1, "yes": 2}
    assert config.architectures == ["BertForSequenceClassification"]
    assert config.problem_type == "single_label_classification"
    assert "nearfar" not in (tmp_path / "saved" / "config.json").read_text()
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "saved").model_max_length == 17
    assert [file.name for file in (tmp_path / "saved").glob("*.safetensors")] == ["model.safetensors"]


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
        ({"label_names": LABELS, "dropout": 1.0}, "dropout 1.0: must be in"),
        ({"label_names": LABELS, "max_length": 63}, "max_length 63: must be from 3 to 62 tokens"),
    ],
)
def test_invalid_arguments_are_refused(folder: Path, settings: dict, message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        opened(folder, **settings)
