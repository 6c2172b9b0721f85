"""Trains on sentences alone by the recipe (sg-opt1, the token embeddings as guide) and additions to it.

A script step of nearfar study:

    script = { file = "../sentences.py", data = "sentences", evaluate_on = "stsb-clean:dev", decorrelation = 0.1 }

The additions are not methods of nearfar; they are here so that the studies that measured them can be run again.

--layer-share P      the guide is a learned mixture of all layers of the frozen copy: sum_k softmax(w)_k h_k, with P for
                     the token embeddings at the start, and the rest equal (the scalar mixture of Peters et al. 2018)
--decorrelation W    adds W times the decorrelation of the embeddings' dimensions (decorrelation_loss below)
--reconstruction W   adds W times the loss of a decoder that reconstructs each sentence from the embedding of a damaged
                     copy, in which 60% of the words are deleted (TSDAE, Wang et al. 2021). The decoder starts from the
                     encoder; unlike in TSDAE it shares no weights with it afterwards
--neighbours K       fills each batch with groups of K sentences that are similar to each other by the embeddings of the
                     encoder before training: the negatives become harder
--poolings W         adds W times InfoNCE, with temperature 0.05, between [CLS] and the mean over the tokens, each of a
                     pass of its own; with --dropout the two passes differ
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM

import nearfar
from nearfar import objectives
from nearfar.data.batching import TextBatch
from nearfar.data.rows import TextData
from nearfar.encoder.ragged import transformer_layers
from nearfar.encoder.weights import locate
from nearfar.methods import BuiltMethod, Loss, Method
from nearfar.methods.base import BuildContext
from nearfar.methods.kim import SgOpt1Config, build_self_guided, read_sentences
from nearfar.neighbours.exact import nearest

DELETED = 0.6
"""Share of the words that are deleted before a reconstruction."""
WEIGHT_SCALE = 100.0
"""How much faster the weights of the layers are trained than the encoder."""
CANDIDATES = 50
"""Number of neighbours of each sentence from which a group is filled."""


@dataclass(frozen=True, kw_only=True)
class Config(SgOpt1Config):
    """sg-opt1 and the additions."""

    layer_share: float | None = None
    decorrelation: float = 0.0
    reconstruction: float = 0.0
    neighbours: int = 1
    poolings: float = 0.0


def main() -> None:
    """Train; write the run folder, its model and numbers.json."""
    options = vars(parse())
    output: Path = options.pop("output")
    nearfar.register_method("sg-opt1-more", config=Config, read_rows=read_sentences, build=build)
    views = "0-0" if options["layer_share"] is None else "all"
    run = nearfar.train("sg-opt1-more", output=output, views=views, **options)
    numbers = {"validation": 100 * run.best_score}
    (output / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    """The command line; each name is that of a setting."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--evaluate-on", required=True)
    parser.add_argument("--evaluate-every", type=int, default=20)
    parser.add_argument("--pooling")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--start-weight", type=float, default=0.0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--layer-share", type=float, help="between 0 and 1")
    parser.add_argument("--decorrelation", type=float, default=0.0, help="its weight")
    parser.add_argument("--reconstruction", type=float, default=0.0, help="its weight")
    parser.add_argument("--neighbours", type=int, default=1, help="sentences in a group")
    parser.add_argument("--poolings", type=float, default=0.0, help="its weight")
    parser.add_argument("--dropout", type=float, default=0.0, help="its probability")
    parser.add_argument("--false-negative-margin", type=float, help="as in nearfar train; not with --layer-share")
    options = parser.parse_args()
    share = options.layer_share
    if share is not None and not 0 < share < 1:
        parser.error(f"--layer-share {share}: must be between 0 and 1")
    if share is not None and options.false_negative_margin is not None:
        parser.error("--false-negative-margin does not go with --layer-share")
    if options.neighbours < 1:
        parser.error(f"--neighbours {options.neighbours}: must be at least 1")
    for name in ("decorrelation", "reconstruction", "poolings"):
        if getattr(options, name) < 0:
            parser.error(f"--{name} {getattr(options, name)}: must be at least 0")
    return options


def build(config: Config, context: BuildContext, rows: TextData) -> BuiltMethod:
    """Build sg-opt1 with the additions."""
    base = SgOpt1Config(**{field.name: getattr(config, field.name) for field in fields(SgOpt1Config)})
    built = build_self_guided(base, context, rows)
    method, extra = built.method, built.extra_losses
    if config.neighbours > 1:
        texts = [text for (text,) in rows.rows]
        vectors = context.encoder.encoder.encode(texts, normalize=True)
        batches = NeighbourBatches(texts, vectors, context.batch_size, config.neighbours, config.seed)
        method = replace(method, batches=batches)
    if config.layer_share is not None:
        method = mix_layers(method, 1 + len(transformer_layers(context.encoder.encoder.backbone)), config)
    if config.decorrelation:
        method = decorrelate(method, config.decorrelation)
    if config.reconstruction:
        extra = (*extra, (reconstruct(config, context, rows, method), config.reconstruction))
    if config.poolings:
        extra = (*extra, (contrast_poolings(context, method), config.poolings))
    return built._replace(method=method, extra_losses=extra)


class LayerMixture(nn.Module):
    """Views [batch, layers, dim] -> sum_k softmax(w)_k h_k. It may have a larger effective learning rate."""

    def __init__(self, layers: int, share: float) -> None:
        super().__init__()
        rest = (1 - share) / (layers - 1)
        self.logits = nn.Parameter(torch.tensor([share, *[rest] * (layers - 1)]).log() / WEIGHT_SCALE)

    def forward(self, views: Tensor) -> Tensor:
        """The mixture of each text's views, [batch, 1, dim]."""
        weights = functional.softmax(WEIGHT_SCALE * self.logits, dim=0)
        return (weights[:, None] * views).sum(dim=1, keepdim=True)


def mix_layers(method: Method, layers: int, config: Config) -> Method:
    """The same loss with a learned mixture of the layers as the view; the weights get the gradient of the contrast."""
    assert config.layer_share is not None
    head, mixture = method.head, LayerMixture(layers, config.layer_share)
    assert head is not None

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        mixed = torch.cat([representations[:, :1], mixture(representations[:, 1:].detach())], dim=1)
        drift = method.loss_fn(batch, mixed.detach()).penalty
        projected = head(mixed)
        contrast = objectives.self_guided(
            projected[:, 0], projected[:, 1], temperature=config.temperature, variant="opt1"
        ).mean()
        weights = functional.softmax(WEIGHT_SCALE * mixture.logits.detach(), dim=0)
        return Loss(contrast, {f"layer_{number}": weight for number, weight in enumerate(weights)}, drift)

    return replace(method, loss_fn=loss_fn, head=nn.ModuleList([head, mixture]))


def decorrelation_loss(embeddings: Tensor) -> Tensor:
    """The mean over dimensions i of sum_{j != i} r_ij^2, r_ij the correlation of dimensions i and j over the batch.

    Barlow Twins' second term (Zbontar et al. 2021) for one set of views, and VICReg's covariance term (Bardes et al.
    2022) for dimensions of variance 1.
    """
    centred = embeddings - embeddings.mean(dim=0)
    unit = centred / centred.norm(dim=0).clamp(min=1e-6)
    with torch.autocast(embeddings.device.type, enabled=False):
        correlations = unit.T @ unit
    return (correlations.square().sum() - correlations.diagonal().square().sum()) / embeddings.shape[1]


def decorrelate(method: Method, weight: float) -> Method:
    """The method's loss, plus ``weight`` times the decorrelation loss of the embeddings."""

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        loss = method.loss_fn(batch, representations)
        term = decorrelation_loss(representations[:, 0])
        return Loss(loss.value + weight * term, loss.terms | {"decorrelation": term.detach()}, loss.penalty)

    return replace(method, loss_fn=loss_fn)


def reconstruct(config: Config, context: BuildContext, rows: TextData, method: Method) -> Method:
    """Each sentence of the batch from the embedding of its damaged copy, word by word: the mean of the cross-entropy.

    The decoder is a transformer with causal attention; it attends to the embedding, and to the tokens before the one to
    predict.
    """
    encoder, chance = context.encoder, random.Random(config.seed)
    damaged = {text: _delete_words(text.split(), chance) for (text,) in rows.rows}
    encoder.read((text,) for text in damaged.values())
    decoder = AutoModelForCausalLM.from_pretrained(
        locate(config.model), is_decoder=True, add_cross_attention=True, dtype=torch.float32
    )

    def represent(texts: Sequence[str]) -> Tensor:
        return encoder.embed([damaged[text] for text in texts])

    def loss_fn(batch: TextBatch, embeddings: Tensor) -> Loss:
        ids = nn.utils.rnn.pad_sequence(
            [torch.tensor(one) for one in encoder.ids(batch.sentences)], batch_first=True, padding_value=-100
        ).to(embeddings.device)
        with torch.autocast(embeddings.device.type, dtype=torch.bfloat16, enabled=encoder.bf16):
            logits = decoder(
                input_ids=ids[:, :-1].clamp(min=0),
                attention_mask=(ids[:, :-1] >= 0).long(),
                encoder_hidden_states=embeddings[:, None],
            ).logits
        return Loss(functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()), {})

    return Method(
        "reconstruction", method.batches, lambda batch: batch.sentences, represent, loss_fn, lambda _: [], decoder
    )


def _delete_words(words: Sequence[str], chance: random.Random) -> str:
    """The words that are left, at least one."""
    return " ".join([word for word in words if chance.random() >= DELETED] or [chance.choice(words)])


def contrast_poolings(context: BuildContext, method: Method) -> Method:
    """[CLS] of each sentence against the means of all sentences; its own mean is the positive."""
    encoder = context.encoder

    def represent(texts: Sequence[str]) -> Tensor:
        ids = encoder.ids(texts)
        one, other = (encoder.hidden(ids).split(ids.lengths.tolist()) for _ in range(2))
        pooled = (torch.stack([states[0] for states in one]), torch.stack([states.mean(dim=0) for states in other]))
        return torch.stack(pooled, dim=1)

    def loss_fn(batch: TextBatch, pooled: Tensor) -> Loss:  # noqa: ARG001, sentences are distinct
        return Loss(objectives.info_nce(pooled[:, 0], pooled[:, 1], temperature=0.05).mean(), {})

    return Method("poolings", method.batches, lambda batch: batch.sentences, represent, loss_fn, lambda _: [])


class NeighbourBatches:
    """Batches of groups of similar sentences: each group is a random sentence with its nearest unused ones.

    A group holds fewer where its first sentence has no more unused neighbours among its CANDIDATES nearest ones.
    """

    def __init__(self, texts: Sequence[str], vectors: np.ndarray, batch_size: int, size: int, seed: int) -> None:
        self.texts, self.batch_size, self.size, self.seed = texts, batch_size, size, seed
        self.nearest = nearest(vectors, vectors, min(CANDIDATES + 1, len(texts))).ids

    def steps(self, epoch: int) -> int:  # noqa: ARG002, the interface of batches
        """Number of full batches; the remainder joins the last one."""
        return max(1, len(self.texts) // self.batch_size)

    def total_steps(self, epochs: int) -> int:
        """Number of batches of all epochs."""
        return epochs * self.steps(0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[TextBatch]:
        """Yield the batches of one epoch, starting at its step ``start``."""
        rows = self.order(epoch)
        cuts = [step * self.batch_size for step in range(self.steps(epoch))] + [len(rows)]
        for first, end in list(pairwise(cuts))[start:]:
            chosen = rows[first:end]
            yield TextBatch([self.texts[row] for row in chosen], (list(range(len(chosen))),), [], chosen)

    def order(self, epoch: int) -> list[int]:
        """All rows, group by group."""
        left = list(range(len(self.texts)))
        random.Random(f"{self.seed} {epoch}").shuffle(left)
        unused, found = set(left), []
        for first in left:
            if first not in unused:
                continue
            others = [int(row) for row in self.nearest[first] if row != first and int(row) in unused]
            group = [first, *others[: self.size - 1]]
            unused.difference_update(group)
            found += group
        return found


if __name__ == "__main__":
    main()
