"""Tiny encoders with random weights, one per architecture, and tiny data files, generated on demand."""

import atexit
import random
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from nearfar.types import LABEL_NAMES, NliRow

WORDS = (
    "a the one two dog dogs cat bird man woman child red blue big small runs sleeps eats sees is not by in on under "
    "park house river ball apple and with no who seen eaten ."
).split()
ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "distilbert", "mpnet", "electra", "modernbert")
PADDED = ("mpnet",)
"""The architectures that need padded batches."""
DECODERS = ("qwen3", "gemma3", "mistral")
"""Causal decoders, but for gemma3, which attends both ways, as EmbeddingGemma does; the tokenizer appends EOS."""


def sentences(count: int, *, seed: int = 0, longest: int = 12) -> list[str]:
    """Return random sentences of 1 to ``longest`` words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


def save_tiny(folder: Path, architecture: str = "bert", *, seed: int = 0, dropout: float = 0.1) -> Path:
    """Write a two-layer encoder of width 32 and its tokenizer to ``folder``; cached per process, then copied."""
    cached, generator = _make_tiny(architecture, seed, dropout)
    shutil.copytree(cached, folder, dirs_exist_ok=True)
    torch.set_rng_state(generator)  # the same state with and without the cache
    return folder


@cache
def _make_tiny(architecture: str, seed: int, dropout: float) -> tuple[Path, torch.Tensor]:
    """Return the folder to copy, and the state of torch's generator after the weights were drawn."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    roberta_like, decoder = architecture in ("roberta", "xlm-roberta", "mpnet"), architecture in DECODERS
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    if roberta_like:
        names = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    if decoder:
        names = {"pad": "<pad>", "unk": "<unk>", "bos": "<bos>", "eos": "<eos>"}
    vocabulary = {word: index for index, word in enumerate([*names.values(), *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = (names["bos"], names["eos"]) if decoder else (names["cls"], names["sep"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {last}" if architecture == "qwen3" else f"{first} $A {last}",
        special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])],
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=62,
        padding_side="left" if architecture == "qwen3" else "right",
        **{f"{name}_token": token for name, token in names.items()},
    )
    fast.save_pretrained(folder)
    shared = {"vocab_size": len(vocabulary), "pad_token_id": vocabulary[names["pad"]]}
    torch.manual_seed(seed)
    if architecture == "distilbert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}
        sizes |= {"dropout": dropout, "attention_dropout": dropout}
        config = transformers.DistilBertConfig(**shared, **sizes, max_position_embeddings=64)
    elif architecture == "modernbert":
        sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48}
        windows = {"local_attention": 8, "global_attn_every_n_layers": 3, "max_position_embeddings": 64}
        tokens = {
            f"{role}_token_id": vocabulary[names[key]]
            for role, key in {"cls": "cls", "sep": "sep", "bos": "cls", "eos": "sep"}.items()
        }
        config = transformers.ModernBertConfig(**shared, **sizes, **windows, **tokens)
    elif decoder:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
        sizes |= {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64}
        tokens = {f"{role}_token_id": vocabulary[names[role]] for role in ("bos", "eos")}
        if architecture == "gemma3":
            sizes |= {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
            tokens |= {"use_bidirectional_attention": True}
        if architecture == "mistral":
            sizes |= {"sliding_window": 8}
        kind = {"qwen3": "Qwen3Config", "gemma3": "Gemma3TextConfig", "mistral": "MistralConfig"}[architecture]
        config = getattr(transformers, kind)(**shared, **sizes, **tokens, attention_dropout=dropout)
    else:
        kind = {
            "bert": transformers.BertConfig,
            "roberta": transformers.RobertaConfig,
            "xlm-roberta": transformers.XLMRobertaConfig,
            "mpnet": transformers.MPNetConfig,
            "electra": transformers.ElectraConfig,
        }[architecture]
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
        dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        extra = {"embedding_size": 16} if architecture == "electra" else {}
        config = kind(**shared, **sizes, **dropouts, **extra, max_position_embeddings=64 + 2 * roberta_like)
    model = transformers.AutoModel.from_config(config)
    with torch.no_grad():  # with the default initialisation all embeddings would be nearly equal
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    model.save_pretrained(folder)
    return folder, torch.get_rng_state()


def nli_rows(premises: int, *, seed: int = 0) -> list[NliRow]:
    """Return three rows per premise: part of it is entailed, its words mixed with others neutral, others contradict."""
    rows = []
    for number, premise in enumerate(sentences(premises, seed=seed, longest=9)):
        words = premise.split()
        entailed, neutral, contradicted = words[: len(words) // 2 + 1], words[:1], []
        for label, kept in enumerate((entailed, neutral, contradicted)):
            rest = sentences(1, seed=1000 * seed + 3 * number + label, longest=3)[0] if label else ""
            rows.append(NliRow(f"{premise} {number}", " ".join([*kept, rest]).strip(), label))
    return rows


def write_nli(file: Path, premises: int = 40, *, seed: int = 0) -> Path:
    """Write NLI rows as a TSV file."""
    lines = [f"{row.premise}\t{row.hypothesis}\t{LABEL_NAMES[row.label]}" for row in nli_rows(premises, seed=seed)]
    file.write_text("premise\thypothesis\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return file


def write_anchors(file: Path, count: int) -> None:
    """Write pairs of an anchor and a positive that shares some of its words."""
    draw = random.Random(0)
    rows = [draw.choices(WORDS, k=6) for _ in range(count)]
    lines = [f"{' '.join(row)}\t{' '.join([*row[:3], *draw.choices(WORDS, k=3)])}" for row in rows]
    file.write_text("\n".join(["anchor\tpositive", *lines]) + "\n", encoding="utf-8")


def write_pairs(file: Path, count: int = 30, *, seed: int = 7) -> Path:
    """Write scored pairs as a TSV file; the score, 0 to 5, is proportional to the word overlap."""
    texts = sentences(2 * count, seed=seed)
    lines = []
    for first, second in zip(texts[:count], texts[count:], strict=True):
        one, two = set(first.split()), set(second.split())
        lines.append(f"{5 * len(one & two) / len(one | two):.3f}\t{first}\t{second}")
    file.write_text("score\tsentence1\tsentence2\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return file


def write_labelled(file: Path, labels: Sequence[str], *, longest: int = 12) -> Path:
    """Write one text per label as a TSV file; the texts have nothing to do with the labels."""
    texts = sentences(len(labels), longest=longest)
    lines = [f"{label}\t{text} {n}" for n, (label, text) in enumerate(zip(labels, texts, strict=True))]
    file.write_text("label\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return file


def write_colours(file: Path, count: int = 60) -> Path:
    """Write labelled texts that a classifier can learn, as a TSV file: the first word determines the label."""
    texts = sentences(count, longest=5)
    rows = [f"{'red' if n % 2 else 'blue'} {text}\t{'warm' if n % 2 else 'cold'}" for n, text in enumerate(texts)]
    file.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return file


def write_queries(file: Path, count: int = 30) -> Path:
    """Write pairs of a query and its document, as a TSV file; all texts are different."""
    texts = list(dict.fromkeys(sentences(2 * count, seed=5, longest=9)))
    rows = [f"{query}\t{document}" for query, document in zip(texts[::2], texts[1::2], strict=False)]
    file.write_text("\n".join(["anchor\tpositive", *rows]) + "\n", encoding="utf-8")
    return file


def make_workspace(folder: Path) -> Path:
    """Write the usual inputs to ``folder``: ``tiny`` (an encoder), ``nli.tsv`` and ``pairs.tsv`` (scored pairs)."""
    save_tiny(folder / "tiny")
    write_nli(folder / "nli.tsv")
    write_pairs(folder / "pairs.tsv")
    return folder
