"""What a sentence-transformers folder says of its texts is honoured, as that library does, or refused by name."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.pooling import POOLINGS
from tests.invalid_input.model_folders import edit
from tests.tiny import save_tiny

SETTINGS, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
MIXED = ["A DOG sleeps", "the red Cat", "a DOG sleeps"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A sentence-transformers folder of a tiny BERT."""
    Encoder.from_pretrained(save_tiny(tmp_path / "plain")).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def cased(folder: Path) -> None:
    """Make the tokenizer distinguish cases: words of the vocabulary have lower case only."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"normalizer": None}))


@pytest.mark.long
def test_texts_are_lower_cased_before_a_cased_tokenizer(saved: Path, tmp_path: Path) -> None:
    cased(saved)
    assert np.ptp(Encoder.from_pretrained(saved).encode(["DOG", "Cat"]), axis=0).max() == 0  # both unknown
    edit(saved / SETTINGS, {"do_lower_case": True})
    vectors = Encoder.from_pretrained(saved).encode(MIXED, precision="fp32")
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    np.testing.assert_allclose(SentenceTransformer(str(saved), device="cpu").encode(MIXED), vectors, atol=1e-5)
    Encoder.from_pretrained(saved).save_pretrained(tmp_path / "again")
    cased(tmp_path / "again")  # as tokenizers that transformers builds from their vocabulary
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "again").encode(MIXED, precision="fp32"), vectors)
    theirs = SentenceTransformer(str(tmp_path / "again"), device="cpu").encode(MIXED)
    np.testing.assert_allclose(theirs, vectors, atol=1e-5)
    classifier = Classifier.from_pretrained(saved, label_names=("no", "yes"))
    expected = classifier.predict([(text,) for text in MIXED])
    assert np.abs(expected[0] - expected[1]).max() > 1e-5
    np.testing.assert_allclose(expected[0], classifier.predict([(MIXED[0].lower(),)])[0], atol=1e-6)
    classifier.save_pretrained(tmp_path / "classifier")
    cased(tmp_path / "classifier")
    found = Classifier.from_pretrained(tmp_path / "classifier").predict([(text,) for text in MIXED])
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.long
def test_the_length_is_the_one_asked_for_then_the_folders_then_the_number_of_positions(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "roberta", "roberta")
    edit(folder / "tokenizer_config.json", {"model_max_length": 10**6})
    old = folder / "sentence_roberta_config.json"
    old.write_text(json.dumps({"max_seq_length": 66}))
    with pytest.warns(UserWarning, match="max_seq_length is 66, but .* positions for 64"):
        assert Encoder.from_pretrained(folder).max_length == 64
    assert Encoder.from_pretrained(folder, max_length=64).max_length == 64
    with pytest.raises(NearfarError, match="max_length 65: must be from 3 to 64"):
        Encoder.from_pretrained(folder, max_length=65)
    old.write_text(json.dumps({"max_seq_length": 40, "tokenizer_args": {"model_max_length": 30}}))
    assert Encoder.from_pretrained(folder).max_length == 30
    old.write_text(json.dumps({"max_seq_length": 40, "query_length": 65}))
    with pytest.raises(NearfarError, match=r"query_length is 65, but .* positions for 64 tokens; .* with --max-length"):
        Encoder.from_pretrained(folder)
    assert Encoder.from_pretrained(folder, max_length=32).length_of("query") == 32
    assert Classifier.from_pretrained(folder, label_names=("a", "b"), max_length=32).max_length == 32


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case = 'yes': must be true or false."),
        ({"processor_kwargs": {"tokenizer_file": "/etc/x"}}, "has 'tokenizer_file', which nearfar does not support"),
        ({"model_args": {"num_hidden_layers": 1}}, "has 'num_hidden_layers', which nearfar does not support"),
        ({"query_expansion": {"strategy": "fixed"}}, "has 'query_expansion', which nearfar does not support"),
        ({"transformer_task": "fill-mask"}, "nearfar supports only the value 'feature-extraction' of transformer_task"),
        ({"modality_config": {"message": {"method": "forward"}}}, "nearfar supports only the value {'text': "),
    ],
)
def test_other_settings_are_refused_by_name(saved: Path, settings: dict[str, Any], message: str) -> None:
    edit(saved / SETTINGS, settings)
    with pytest.raises(NearfarError, match=re.escape(f"{saved / SETTINGS}: {message}")):
        Encoder.from_pretrained(saved)


@pytest.mark.long
def test_settings_without_effect_on_vectors(saved: Path) -> None:
    expected = Encoder.from_pretrained(saved).encode(MIXED)
    edit(saved / SETTINGS, {"model_args": {"torch_dtype": "float16", "trust_remote_code": True}, "unpad_inputs": False})
    edit(saved / SETTINGS, {"tokenizer_args": {"padding_side": "left"}, "query_length": None, "config_args": {}})
    np.testing.assert_array_equal(Encoder.from_pretrained(saved).encode(MIXED), expected)


@pytest.mark.long
def test_queries_and_documents_have_lengths_and_a_similarity_of_their_own(saved: Path, tmp_path: Path) -> None:
    edit(saved / SETTINGS, {"max_seq_length": 10, "query_length": 5, "document_length": 20})
    edit(saved / PROMPTS, {"similarity_fn_name": "dot", "prompts": {"query": "red ", "document": ""}})
    texts = [" ".join(MIXED[:1] * 9), "a dog"]
    for folder in (saved, tmp_path / "again"):
        encoder, theirs = Encoder.from_pretrained(folder), SentenceTransformer(str(folder), device="cpu")
        with pytest.warns(UserWarning, match="truncated"):
            of_roles = [encoder.encode(texts), encoder.encode_query(texts), encoder.encode_document(texts)]
        assert min(np.abs(of_roles[a][0] - of_roles[b][0]).max() for a, b in ((0, 1), (0, 2), (1, 2))) > 1e-3
        for own, encode in zip(of_roles, (theirs.encode, theirs.encode_query, theirs.encode_document), strict=True):
            np.testing.assert_allclose(own, encode(texts), atol=1e-5)
        assert (encoder.similarity, theirs.similarity_fn_name) == ("dot", "dot")
        assert [encoder.length_of(role) for role in (None, "query", "document")] == [10, 5, 20]
        if folder == saved:
            encoder.save_pretrained(tmp_path / "again")


@pytest.mark.long
def test_a_chat_template_of_the_tokenizer_is_not_applied_to_texts(saved: Path, tmp_path: Path) -> None:
    template = "{% for message in messages %}red {{ message.content }}{% endfor %}"
    edit(saved / "tokenizer_config.json", {"chat_template": template})
    encoder = Encoder.from_pretrained(saved)
    encoder.save_pretrained(tmp_path / "again")
    theirs = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert theirs.tokenizer.chat_template == template
    np.testing.assert_allclose(theirs.encode(MIXED), encoder.encode(MIXED, precision="fp32"), atol=1e-5)


def without_special_tokens(folder: Path) -> Path:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"post_processor": None}))
    return folder


@pytest.mark.parametrize("pooling", ["mean_without_cls", "layer:1:mean_without_cls"])
def test_a_pooling_without_cls_needs_a_tokenizer_that_adds_it(pooling: str, tmp_path: Path) -> None:
    folder = without_special_tokens(save_tiny(tmp_path / "tiny"))
    with pytest.raises(NearfarError, match=rf"the pooling {pooling} needs a tokenizer"):
        Encoder.from_pretrained(folder, pooling=pooling)


@pytest.mark.parametrize("pooling", [name for name in POOLINGS if ":" not in name and "without" not in name])
@pytest.mark.parametrize("architecture", ["bert", pytest.param("mpnet", marks=pytest.mark.nightly)])
def test_a_text_without_tokens_gets_the_zero_vector(pooling: str, architecture: str, tmp_path: Path) -> None:
    folder = without_special_tokens(save_tiny(tmp_path / "tiny", architecture))
    encoder = Encoder.from_pretrained(folder, pooling=pooling)
    vectors = encoder.encode(["a dog", "", "the red cat"], precision="fp32")
    assert not vectors[1].any()
    assert not encoder.encode([""], precision="fp32").any()
    np.testing.assert_allclose(vectors[[0, 2]], encoder.encode(["a dog", "the red cat"], precision="fp32"), atol=1e-5)
    encoder.embed(["a dog", ""]).sum().backward()
    assert all(one.grad.isfinite().all() for one in encoder.parameters() if one.grad is not None)
