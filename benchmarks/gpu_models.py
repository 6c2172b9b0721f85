"""Models and data of gpu.py: encoders with random weights, a tokenizer, and synthetic rows as long as SNLI's."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from training_run import Rows
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from nearfar import Encoder

VOCABULARY = 30_522
"""Size of BERT's vocabulary."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = {"premise": (14.1, 5.0), "hypothesis": (8.3, 3.0), "long": (200.0, 20.0)}
"""Mean and standard deviation of the number of words; the first two means are SNLI's (Bowman et al. 2015, Table 1)."""
LONGEST = 254


class Shape(NamedTuple):
    """The size of a BERT."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int = VOCABULARY

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    def operations(self, lengths: Sequence[int]) -> float:
        """Floating-point operations of the matrix products in a forward pass over texts of these lengths."""
        weights = 4 * self.width**2 + 2 * self.width * self.inner
        return float(self.layers * sum(2 * weights * length + 4 * self.width * length**2 for length in lengths))


SHAPES = {
    "MiniLM-L6, 6 x 384": Shape(6, 384, 12, 1536),
    "BERT-medium, 8 x 512": Shape(8, 512, 8, 2048),
    "BERT-base, 12 x 768": Shape(12, 768, 12, 3072),
}
SMALL = {"tiny, 2 x 32": Shape(2, 32, 2, 64, 500)}


def write_model(folder: Path, shape: Shape) -> Path:
    """A sentence-transformers folder with random weights and mean pooling."""
    words = [f"w{number}" for number in range(shape.vocabulary - len(SPECIAL))]
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    plain = folder / "plain"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST + 2, **names).save_pretrained(plain)
    torch.manual_seed(0)
    BertModel(
        BertConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.inner,
        )
    ).save_pretrained(plain)
    Encoder.from_pretrained(plain, pooling="mean", device="cpu").save_pretrained(folder / "model")
    return folder / "model"


def tokens_of(text: str) -> int:
    """Number of tokens: one per word, and two special tokens."""
    return len(text.split()) + 2


class SyntheticTexts:
    """Distinct synthetic sentences, whose word frequencies follow Zipf's law approximately."""

    def __init__(self, shape: Shape) -> None:
        self._draw = random.Random(0)
        self._words = [f"w{number}" for number in range(shape.vocabulary - len(SPECIAL))]
        total, self._until = 0.0, []
        for rank in range(len(self._words)):
            total += 1 / (rank + 10)
            self._until.append(total)
        self._seen: set[str] = set()

    def sentence(self, kind: str) -> str:
        """A premise, a hypothesis or a long text."""
        while True:
            length = min(max(round(self._draw.gauss(*WORDS[kind])), 2), LONGEST)
            text = " ".join(self._draw.choices(self._words, cum_weights=self._until, k=length))
            if text not in self._seen:
                self._seen.add(text)
                return text

    def triplets(self, count: int) -> Rows:
        """(anchor, positive, negative)."""
        return [
            (self.sentence("premise"), self.sentence("hypothesis"), self.sentence("hypothesis")) for _ in range(count)
        ]
