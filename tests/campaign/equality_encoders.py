"""Equality of vectors: ragged and padded batches, compiled kernels and torch, orders and sizes of batches; in forks."""

import contextlib
import os
import random
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from nearfar import Encoder
from nearfar.commands.encode.command import encode
from nearfar.encoder import kernels, token_batches
from tests.tiny import save_tiny, sentences

EMBEDDING, GRADIENT = 1e-5, 1e-4
"""Largest differences: of an element of an embedding, absolute, as all are near 1; of a gradient, relative."""
FLOOR = 1e-3
"""A parameter whose gradient is smaller than this share of the largest one is compared with that share."""
BF16_FACTOR = 2
"""With kernels, the rounding error of bfloat16 is at most this times that of torch."""
ACTIVATION = {"distilbert": "activation", "modernbert": "hidden_activation"}
"""Name of the setting, where it is not ``hidden_act``."""


def build(folder: Path, shape: Mapping[str, Any]) -> Path:
    """Write an encoder of this shape: a tiny one of its family with other sizes and other weights."""
    family = shape["family"]
    save_tiny(folder, family, dropout=shape.get("dropout", 0.0))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"word{number}" for number in range(shape["vocabulary"] - len(tokenizer))])
    tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    width = shape["heads"] * shape["head_dim"]
    config.hidden_size, config.num_attention_heads = width, shape["heads"]
    config.num_hidden_layers, config.vocab_size = shape["layers"], shape["vocabulary"]
    setattr(config, "hidden_dim" if family == "distilbert" else "intermediate_size", shape["intermediate"])
    setattr(config, ACTIVATION.get(family, "hidden_act"), shape["activation"])
    config.max_position_embeddings = shape["positions"] + 2 * (family in ("roberta", "xlm-roberta", "mpnet"))
    if family == "electra":
        config.embedding_size = shape["embedding"]
    if family == "distilbert":
        config.sinusoidal_pos_embds = shape["sinusoidal"]
    if family == "mpnet":
        config.relative_attention_num_buckets = shape["buckets"]
    if family == "modernbert":
        config.local_attention, config.global_attn_every_n_layers = shape["window"], shape["every"]
        config.layer_types = [
            "full_attention" if layer % shape["every"] == 0 else "sliding_attention" for layer in range(shape["layers"])
        ]
    torch.manual_seed(shape["seed"])
    model = transformers.AutoModel.from_config(config)
    with torch.no_grad():  # the default initialisation makes all embeddings nearly equal
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.9 / parameter.shape[1] ** 0.5)
    model.save_pretrained(folder)
    return folder


def ragged_equals_padded(shape: Mapping[str, Any], lengths: Sequence[int], pooling: str) -> str:
    """Embeddings and gradients of ragged batches against the model's own forward on padded batches."""
    folder = build(Path("model"), shape)
    draw = random.Random(shape["seed"])
    ids = [[draw.randrange(5, shape["vocabulary"]) for _ in range(length)] for length in lengths]
    encoder = Encoder.from_pretrained(folder, pooling=pooling, device="cpu")
    found = encoder(ids)
    plain = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
    expected = pooled_by_padding(plain, ids, pooling)
    error = float((found - expected).detach().abs().max())
    if not error <= EMBEDDING:
        return f"an embedding differs from that of the padded batch by {error:.1e} ({encoder.route})"
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    return gradient_difference(_gradients(encoder.backbone), _gradients(plain))


def pooled_by_padding(model: transformers.PreTrainedModel, ids: Sequence[Sequence[int]], pooling: str) -> Tensor:
    """Embeddings of a padded batch, with more padding than needed where the positions allow it."""
    model.eval()
    offset = 2 if model.config.model_type in ("roberta", "xlm-roberta", "mpnet") else 0
    longest = min(max(map(len, ids)) + 3, model.config.max_position_embeddings - offset)
    tokens = torch.full((len(ids), longest), model.config.pad_token_id)
    mask = torch.zeros(len(ids), longest, dtype=torch.long)
    for row, text in enumerate(ids):
        tokens[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    layers = model(input_ids=tokens, attention_mask=mask, output_hidden_states=True).hidden_states
    last = model.config.num_hidden_layers
    name, _, rest = pooling.partition(":")
    number, _, kind = rest.partition(":")
    chosen = {"first_last": (1, last), "embeddings_last": (0, last), "last_two": (last - 1, last)}.get(name, (last,))
    if name == "layer":
        chosen, name = (int(number),), kind or "mean"
    states = sum(layers[layer] for layer in chosen) / len(chosen)
    rows = [states[row, : len(text)] for row, text in enumerate(ids)]
    return torch.stack([_pool(row, name) for row in rows])


def _pool(states: Tensor, name: str) -> Tensor:
    match name:
        case "cls":
            return states[0]
        case "max":
            return states.max(dim=0).values
        case "mean_without_cls":
            return states[1:].sum(0) / (len(states) - 1)
    return states.sum(0) / len(states)


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return {name: gradient for name, gradient in found.items() if gradient.any()}


def gradient_difference(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, tolerance: float = GRADIENT
) -> str:
    """What differs between gradients by more than rounding; those that are missing count as zero."""
    largest = max((float(gradient.abs().max()) for gradient in expected.values()), default=0.0)
    if largest < 1e-3:
        return "the gradients of this case are zero, so that it compares nothing"
    for name in expected.keys() | found.keys():
        one, other = found.get(name, torch.zeros(())), expected.get(name, torch.zeros(()))
        scale = max(float(other.abs().max()), FLOOR * largest)
        error = float((one - other).abs().max()) / scale
        if not error <= tolerance:
            return f"the gradient of {name} differs by {error:.1e} of its largest element"
    return ""


def kernels_equal_torch(shape: Mapping[str, Any], lengths: Sequence[int], *, bf16: bool) -> str:
    """A training step with compiled kernels against one without, with the same dropout."""
    folder = build(Path("model"), shape)
    draw = random.Random(shape["seed"])
    ids = [[draw.randrange(5, shape["vocabulary"]) for _ in range(length)] for length in lengths]
    exact, exact_gradients = _step(folder, ids, "0", bf16=False)
    if not bf16:
        found, gradients = _step(folder, ids, "1", bf16=False)
        error = float((found - exact).abs().max())
        if not error <= EMBEDDING:
            return f"an embedding differs by {error:.1e}"
        return gradient_difference(gradients, exact_gradients)
    found, gradients = _step(folder, ids, "1", bf16=True)
    plain, plain_gradients = _step(folder, ids, "0", bf16=True)
    for what, ours, theirs, reference in (
        ("the embeddings", found, plain, exact),
        *((name, gradients[name], plain_gradients[name], exact_gradients[name]) for name in exact_gradients),
    ):
        own, others = float((ours - reference).norm()), float((theirs - reference).norm())
        if not own <= BF16_FACTOR * others + 1e-2 * float(reference.norm()):
            return f"in bfloat16, {what} is {own:.1e} from float32 with kernels, and {others:.1e} without"
    return ""


def _step(folder: Path, ids: Sequence[Sequence[int]], switch: str, *, bf16: bool) -> tuple[Tensor, dict[str, Tensor]]:
    os.environ[kernels.VARIABLE] = switch
    kernels.kernels.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the kernels cannot be built
        encoder = Encoder.from_pretrained(folder, device="cpu")
        encoder.train()
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            found = encoder(ids).float()
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    (found * weights).sum().backward()
    return found.detach(), {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


def encode_equals(kind: str, family: str, seed: int, *, processes: int = 1) -> str:
    """Vectors in another order, in other batches, blocks or processes; at most 1e-5 from those of one call."""
    draw = random.Random(seed)
    folder = save_tiny(Path("model"), family)
    texts = [*sentences(draw.randint(2, 60), seed=seed, longest=draw.choice((3, 12, 55))), *sentences(3, longest=1)]
    encoder = Encoder.from_pretrained(folder, device="cpu")
    expected = encoder.encode(texts, precision="fp32")
    order = list(range(len(texts)))
    match kind:
        case "shuffled":
            draw.shuffle(order)
        case "sorted":
            order.sort(key=lambda row: len(texts[row]), reverse=draw.random() < 0.5)
        case "one by one":
            found = np.concatenate([encoder.encode([text], precision="fp32") for text in texts])
            return vector_difference(found, expected)
        case "batches":
            token_batches.TOKENS_PER_BATCH = draw.randint(1, 300)
        case "repeated":
            order = [draw.randrange(len(texts)) for _ in range(3 * len(texts))]
        case "file":
            draw.shuffle(order)
            Path("texts.txt").write_text("".join(f"{texts[row]}\n" for row in order))
            settings = {"input": "texts.txt", "output": "vectors.npy", "precision": "fp32", "processes": processes}
            encode(folder, **settings, block=draw.randint(1, len(texts)), progress=False)
            return vector_difference(np.load("vectors.npy"), expected[order])
    return vector_difference(encoder.encode([texts[row] for row in order], precision="fp32"), expected[order])


def vector_difference(found: np.ndarray, expected: np.ndarray) -> str:
    """What differs between vectors by more than rounding."""
    if found.shape != expected.shape:
        return f"there are {found.shape} numbers, not {expected.shape}"
    if not np.abs(expected).max() > 0.1:
        return "all vectors are zero, so that this case compares nothing"
    rows = np.abs(found - expected).max(axis=1)
    worst = int(np.nanargmax(np.where(np.isnan(rows), np.inf, rows)))
    return "" if rows[worst] <= EMBEDDING else f"vector {worst} differs by {rows[worst]:.1e}"


def in_empty_folder(function: Any, *arguments: Any, **settings: Any) -> str:
    """Call one of these functions in a temporary folder, as a fork does."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        result: str = function(*arguments, **settings)
        return result
