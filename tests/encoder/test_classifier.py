"""The classifier: layout of pairs, [CLS] states and head separately, and predict."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from nearfar import Encoder, NearfarError
from nearfar.encoder import token_batches
from nearfar.encoder.classifier import Classifier, TokenizedItems
from tests.encoder.tiny_pairs import TYPED, items, save_tiny_for_pairs
from tests.tiny import ARCHITECTURES, PADDED

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


@pytest.fixture
def classifier(tmp_path: Path) -> Classifier:
    return open_tiny(tmp_path / "tiny")


def test_layout_of_pairs_in_bert(classifier: Classifier) -> None:
    tokens = classifier.tokenize([("a dog runs", "the cat"), ("the cat",)])
    words = {
        word: classifier.tokenizer.convert_tokens_to_ids(word) for word in "[CLS] [SEP] a dog runs the cat".split()
    }
    assert tokens.ids[0] == [words[word] for word in "[CLS] a dog runs [SEP] the cat [SEP]".split()]
    assert tokens.ids[1] == [words[word] for word in "[CLS] the cat [SEP]".split()]
    assert tokens.types == [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0]]
    assert (len(tokens), tokens.truncated) == (2, 0)


def test_layout_of_pairs_in_roberta(tmp_path: Path) -> None:
    classifier = open_tiny(tmp_path, "roberta")
    tokens = classifier.tokenize([("a dog", "the cat")])
    assert classifier.tokenizer.convert_ids_to_tokens(tokens.ids[0]) == "<s> a dog </s> </s> the cat </s>".split()
    assert tokens.types is None


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
    assert batch.truncated == 1
    with pytest.raises(NearfarError, match="max_length 4: a pair needs at least 5 tokens"):
        classifier.tokenize(pairs, max_length=4)


@pytest.mark.long
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "deberta-v2"])
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


def test_token_types_matter(classifier: Classifier) -> None:
    tokens = classifier.tokenize([("a dog runs", "the cat"), ("the cat",)])
    typed, untyped = classifier.cls(tokens), classifier.cls(TokenizedItems(tokens.ids, None, tokens.is_truncated))
    assert (typed[0] - untyped[0]).abs().max() > 0.1
    torch.testing.assert_close(typed[1], untyped[1])


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "distilbert"])
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

    expected = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    found = {name: p.grad for name, p in ours.model.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys() == dict(theirs.named_parameters()).keys()
    largest = max(gradient.abs().max() for gradient in expected.values())
    assert largest > 0.1
    if architecture in TYPED:
        kinds = next(gradient for name, gradient in expected.items() if "token_type_embeddings" in name)
        assert kinds[1].abs().max() > 1e-2
    for name, gradient in expected.items():
        scale = max(gradient.abs().max(), 1e-3 * largest)  # some gradients, such as a key's bias, are 0 up to rounding
        assert (found[name] - gradient).abs().max() <= 1e-4 * scale, name


@pytest.mark.long
def test_cls_is_the_first_token_before_the_pooler_and_forward_applies_the_head_to_it(classifier: Classifier) -> None:
    several = items(9)
    tokens = classifier.tokenize(several)
    cls = classifier.cls(tokens)
    singles = [row for row, item in enumerate(several) if len(item) == 1]
    encoder = Encoder.from_pretrained(save_tiny_for_pairs(classifier_folder(classifier)), pooling="cls")
    expected = encoder.encode([several[row][0] for row in singles])
    np.testing.assert_allclose(cls[singles].detach().numpy(), expected, atol=1e-5)
    torch.testing.assert_close(classifier(tokens), classifier.head(cls))
    pooled = torch.tanh(classifier.backbone.pooler.dense(cls))
    torch.testing.assert_close(classifier.head(cls), classifier.model.classifier(pooled))


def classifier_folder(classifier: Classifier) -> Path:
    return Path(classifier.tokenizer.name_or_path)


def test_dropout_is_active_only_in_training_and_also_in_the_head(classifier: Classifier) -> None:
    tokens = classifier.tokenize(items(6))
    cls = classifier.cls(tokens)
    torch.testing.assert_close(classifier(tokens), classifier(tokens), atol=0, rtol=0)
    classifier.train()
    assert (classifier.cls(tokens) - classifier.cls(tokens)).abs().max() > 1e-2
    assert (classifier.head(cls) - classifier.head(cls)).abs().max() > 1e-2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_dropout_at_all(architecture: str, tmp_path: Path) -> None:
    classifier = open_tiny(tmp_path, architecture, dropout=0.0).train()
    tokens = classifier.tokenize(items(6))
    trained = classifier(tokens)
    torch.testing.assert_close(trained, classifier.eval()(tokens), atol=1e-6, rtol=0)


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
    classifier.eval()
    with torch.no_grad():
        one_by_one = [classifier(classifier.tokenize([item]))[0].numpy() for item in several]
    np.testing.assert_allclose(together[:15], one_by_one, atol=1e-5)
    assert together.dtype == np.float32
    halves = classifier.predict(several, precision="bf16")
    assert 0 < np.abs(halves - together[:15]).max() < 0.05 * np.abs(together).max()


def test_predict_without_items(classifier: Classifier) -> None:
    assert classifier.predict([]).shape == (0, 3)


@pytest.mark.parametrize("wrong", ["a dog", ["a dog"], (), ("a", "b", "c"), ("a dog", 3), None])
def test_predict_names_an_invalid_item(classifier: Classifier, wrong: object) -> None:
    with pytest.raises(NearfarError, match="item 1 is not a tuple of one or two strings"):
        classifier.predict([("a dog",), wrong])
