"""Token ids, types and truncation equal those of transformers' own call, for each family of tokenizers."""

from typing import Any

import pytest
import transformers
from tokenizers import pre_tokenizers, processors

from nearfar.encoder import token_batches
from nearfar.encoder.token_batches import tokenize
from tests.tiny import WORDS, sentences

PLAIN = sentences(20, longest=20)
STRANGE = [
    *("", " ", "\t\n", "\x00", "\ufeffa dog", "a\u00a0dog\u200b runs", "DOG", "Do\u0308g", "cafe\u0301 caf\u00e9"),
    *(
        "\u0130stanbul",
        "\u72d7\u5728\u8dd1",
        "\u0643\u0644\u0628 \u064a\u062c\u0631\u064a",
        "\U0001f469\u200d\U0001f467",
    ),
    *("\ufffd \U0010ffff", "e" * 500, "a dog. " * 40, "\uff21 \u2460 \ufb01 \u2167", "a \u2581dog \u0120dog ##s"),
    *("[CLS] a [SEP] dog [MASK]", "<s>a</s><mask> dog <pad>", "<extra_id_0> a dog"),
]
LETTERS = "abcdefghijklmnopqrstuvwxyz."
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORD_PIECES = {
    piece: number for number, piece in enumerate([*SPECIAL, *LETTERS, *(f"##{one}" for one in LETTERS), *WORDS])
}
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("\u0120", "d"), ("\u0120d", "o"), ("\u0120do", "g"), ("o", "g")]
BPE = {piece: number for number, piece in enumerate([*SPECIAL, *BYTES, *map("".join, MERGES)])}
PIECES = [
    *((piece, 0.0) for piece in SPECIAL),
    *((f"\u2581{word}", -2.0) for word in WORDS),
    *((c, -5.0) for c in LETTERS),
]


class Addressing(transformers.BertTokenizerFast):
    """A class of tokenizers that prepares texts in its own way."""

    def _encode_plus(self, text: Any, *args: Any, **settings: Any) -> Any:
        return super()._encode_plus(
            [f"dog {one}" for one in text] if isinstance(text, list) else text, *args, **settings
        )


def modernbert() -> Any:
    """Byte-level BPE with BERT's special tokens, which has no class of its own."""
    backend = transformers.RobertaTokenizerFast(BPE, MERGES).backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 7), ("[SEP]", 8)]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="[CLS]", pad_token="[PAD]")


FAMILIES = {
    "bert": lambda: transformers.BertTokenizerFast(WORD_PIECES),
    "mpnet": lambda: transformers.MPNetTokenizerFast(WORD_PIECES),
    "roberta": lambda: transformers.RobertaTokenizerFast(BPE, MERGES),
    "modernbert": modernbert,
    "xlm-roberta": lambda: transformers.XLMRobertaTokenizerFast(PIECES),
    "t5": lambda: transformers.T5TokenizerFast(PIECES),
    "truncating on the left": lambda: transformers.BertTokenizerFast(WORD_PIECES, truncation_side="left"),
    "special tokens as text": lambda: transformers.BertTokenizerFast(WORD_PIECES, split_special_tokens=True),
    "luke": lambda: transformers.LukeTokenizer(BPE, MERGES),
    "a way of its own": lambda: Addressing(WORD_PIECES),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_equal_those_of_transformers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_batches, "ITEMS_PER_CALL", 7)  # which divides no number of texts here
    tokenizer, reference = FAMILIES[family](), FAMILIES[family]()
    texts = [*PLAIN, *STRANGE]
    single = [] if family == "luke" else texts[:4]  # transformers' own call for LUKE takes no mixture
    pairs: list[str | tuple[str, str]] = [*zip(texts, reversed(texts), strict=True), *single]
    tokenizer.backend_tokenizer.enable_truncation(3)  # what a caller before has left
    tokenizer.backend_tokenizer.enable_padding(length=50)
    for items, length in ((texts, 12), (texts, 40), (pairs, 12), (pairs, 60), (texts, 12)):
        tokens = tokenize(tokenizer, items, max_length=length, prompt_length=2, types=True)
        expected = reference(items, truncation=True, max_length=length)
        assert tokens.ids == expected["input_ids"]
        assert list(tokens.is_truncated) == [bool(encoding.overflowing) for encoding in expected.encodings]
        assert 0 < tokens.truncated < len(items)
        assert tokens.types == expected.get("token_type_ids")
        assert tokens.prompt_length == 2
        states = [one.backend_tokenizer.truncation for one in (tokenizer, reference)]
        assert states[0] == states[1]
        assert tokenizer.backend_tokenizer.padding is None


def test_types_are_given_where_they_are_asked_for_and_known() -> None:
    assert tokenize(FAMILIES["bert"](), ["a dog"], max_length=8).types is None
    assert tokenize(FAMILIES["bert"](), [("a", "dog")], max_length=8, types=True).types == [[0, 0, 0, 1, 1]]
    assert tokenize(FAMILIES["roberta"](), ["a dog"], max_length=8, types=True).types is None


def test_no_texts_give_no_tokens() -> None:
    assert tokenize(FAMILIES["bert"](), [], max_length=8).ids == []


def test_a_tokenizer_that_prepares_texts_is_called_as_it_is() -> None:
    assert (
        tokenize(FAMILIES["a way of its own"](), ["runs"], max_length=8).ids
        == tokenize(FAMILIES["bert"](), ["dog runs"], max_length=8).ids
    )
