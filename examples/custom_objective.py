"""Train with an objective of your own: a positive's cosine must exceed a negative's by a margin (a triplet loss)."""

import sys
from dataclasses import dataclass

from torch.nn import functional

from nearfar import TrainConfig, register_method, train
from nearfar.data.triplets import load_tuples
from nearfar.methods import BuiltMethod, Loss, Method


@dataclass(frozen=True, kw_only=True)
class MarginConfig(TrainConfig):
    data: tuple[str, ...] = ()
    margin: float = 0.2


def build(config, context, rows):
    def loss_fn(batch, embeddings):
        anchors, positives, negatives = (functional.normalize(embeddings[column], dim=1) for column in batch.columns)
        gap = (anchors * (positives - negatives)).sum(dim=1)
        return Loss(functional.relu(config.margin - gap).mean(), {"gap": gap.detach().mean()})

    batches, texts = context.batches(config, rows), lambda batch: batch.sentences
    return BuiltMethod(Method("margin", batches, texts, context.encoder.embed, loss_fn, texts), rows.sources)


def main(data="examples/data/triplets.tsv", scored="microworld:dev", model=TrainConfig.model, output="runs/custom"):
    columns = ("anchor", "positive", "negative")
    register_method(
        "margin", config=MarginConfig, read_rows=lambda c: load_tuples(c.data, columns=columns), build=build
    )
    run = train("margin", data=data, evaluate_on=scored, model=model, output=output, margin=0.3, evaluate_every=2)
    print(f"Spearman on {scored}: {100 * run.start_score:.1f} before, {100 * run.best_score:.1f} after.")


if __name__ == "__main__":
    main(*sys.argv[1:])
