"""The inputs of the scale ``tiny``: an encoder with random weights and small generated files."""

from pathlib import Path
from random import Random

from nearfar.disk import new_folder, write_text

ENCODER = "encoder"
WIDTH = 32
LAYERS = 2
VECTOR_SIZE = 16
"""Dimensions of the word vectors."""
PAIRS = 60
SENTENCES = 64
SPREAD = 8
"""The initial weights are multiplied by this; otherwise all embeddings would be nearly equal."""
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_inputs(folder: Path) -> Path:
    """Write the inputs to ``folder`` unless it exists, and return it. The same files are written every time.

    ``encoder`` is a BERT of width 32 with two layers and random weights, whose words are those of the generated
    corpus ``microworld``; ``glove.txt`` has a random vector for each word; ``pairs.tsv`` has scored
    pairs, ``sentences.txt`` and ``others.txt`` one sentence per line.

    Raises:
        NearfarError: the folder cannot be written.
    """
    if folder.is_dir():
        return folder
    from nearfar.data.catalog import find
    from nearfar.data.rows import load_sentences
    from nearfar.data.sts import load_pairs

    with new_folder(folder) as part:
        sentences = [text for (text,) in load_sentences("microworld-text").rows]
        pairs = load_pairs("microworld:dev+test")
        labelled = [str(text) for _, (text,) in find("microworld", "labelled")[0].table.rows(("text",))]
        texts = [*sentences, *(text for pair in pairs for text in pair[:2]), *labelled]
        texts += [text for (text,) in load_sentences("microworld").rows]
        words = _write_encoder(part / ENCODER, texts)
        draw = Random(0)
        vectors = (" ".join(f"{draw.gauss(0, 1):.4f}" for _ in range(VECTOR_SIZE)) for _ in words)
        write_text(
            part / "glove.txt", "".join(f"{word} {vector}\n" for word, vector in zip(words, vectors, strict=True))
        )
        rows = (f"{pair.score:.3f}\t{pair.first}\t{pair.second}\n" for pair in pairs[:PAIRS])
        write_text(part / "pairs.tsv", "score\tsentence1\tsentence2\n" + "".join(rows))
        for number, name in enumerate(("sentences.txt", "others.txt")):
            some = sentences[number * SENTENCES : (number + 1) * SENTENCES]
            write_text(part / name, "".join(f"{text}\n" for text in some))
    return folder


def _write_encoder(folder: Path, texts: list[str]) -> list[str]:
    """Write the encoder and its tokenizer; returns the words of its vocabulary."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    from nearfar.encoder.pretrained import quiet

    split = pre_tokenizers.Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text.lower())})
    vocabulary = {word: index for index, word in enumerate((*_SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")],
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    fast.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=512,
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(SPREAD)
    with quiet():
        model.save_pretrained(folder)
    return words
