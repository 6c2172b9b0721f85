"""A peer: a loss of sentence-transformers in its own trainer, as its users run it.

A script step of nearfar study:

    script = { file = "../peers/losses.py", loss = "mnrl", data = "snli:dev+test", evaluate_on = "stsb:dev" }

Each loss takes the rows of LOSSES. The trainer uses the sampler without duplicates, or for the triplet losses the one
that groups texts by label. With --beside it trains on sentences as well, by a second loss: each batch is of one of the
two sets of rows, in random order. It keeps the step with the best Spearman on the dev pairs, or with --keep last the
last one. The record of seen texts in the model folder has the rows and, if they choose the step, the dev pairs.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses, modules
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from sentence_transformers.util import pairwise_cos_sim
from sklearn.decomposition import PCA
from torch import nn

from nearfar.data.documents import load_pairs_of_documents
from nearfar.data.fingerprints import row_hashes
from nearfar.data.rows import load_labelled, load_nli, load_pairs, load_scored, load_sentences
from nearfar.data.triplets import load_triplets, load_tuples
from nearfar.disk.model_folder import SeenHashes, write_seen
from nearfar.encoder.weights import locate
from nearfar.evaluation.results import provenance
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL

Columns = dict[str, list[Any]]
NLI_SCORES = {ENTAILMENT: 1.0, NEUTRAL: 0.5, CONTRADICTION: 0.0}
"""The score of an NLI row for a loss that takes scored pairs."""
DELETED = 0.6
"""Share of the words that TSDAE deletes (Wang et al. 2021)."""


def triplets(options: argparse.Namespace) -> Columns:
    """Triplets of NLI rows, or of a table with such columns."""
    found = load_triplets(options.data, limit=options.limit)
    return dict(zip(("anchor", "positive", "negative"), map(list, zip(*found.rows, strict=True)), strict=True))


def pairs(options: argparse.Namespace) -> Columns:
    """Related texts, or those that nearfar's method documents makes of documents."""
    if options.documents:
        found = load_pairs_of_documents(options.data, seed=options.seed, limit=options.limit)
    else:
        found = load_tuples(options.data, columns=("anchor", "positive"), limit=options.limit)
    return dict(zip(("anchor", "positive"), map(list, zip(*found.rows, strict=True)), strict=True))


def nli(options: argparse.Namespace) -> Columns:
    """NLI rows with the number of their label."""
    premises, hypotheses, labels = zip(*load_nli(options.data).rows[: options.limit], strict=True)
    return {"premise": list(premises), "hypothesis": list(hypotheses), "label": list(labels)}


def nli_scored(options: argparse.Namespace) -> Columns:
    """NLI rows with a score by label."""
    columns = nli(options)
    return {**columns, "label": [NLI_SCORES[label] for label in columns["label"]]}


def scored(options: argparse.Namespace) -> Columns:
    """Pairs with scores from 0 to 1."""
    found = load_scored(options.data, limit=options.limit)
    firsts, seconds = zip(*found.rows, strict=True)
    return {"first": list(firsts), "second": list(seconds), "label": list(map(float, found.targets or ()))}


def sentences(options: argparse.Namespace) -> Columns:
    """Sentences, or the texts of the pairs that are made of documents."""
    if options.documents:
        return {"text": list(dict.fromkeys(chain.from_iterable(zip(*pairs(options).values(), strict=True))))}
    return {"text": [text for (text,) in load_sentences(options.data, limit=options.limit).rows]}


def repeated(options: argparse.Namespace) -> Columns:
    """Each sentence as a pair with itself: dropout makes the two embeddings differ."""
    texts = sentences(options)["text"]
    return {"anchor": texts, "positive": texts}


def damaged(options: argparse.Namespace) -> Columns:
    """Each sentence with most of its words deleted, and the sentence."""
    chance = random.Random(options.seed)
    texts = sentences(options)["text"]
    return {"damaged": [_delete_words(text.split(), chance) for text in texts], "text": texts}


def _delete_words(words: Sequence[str], chance: random.Random) -> str:
    """The words that are left, at least one."""
    return " ".join([word for word in words if chance.random() >= DELETED] or [chance.choice(words)])


def labelled(options: argparse.Namespace) -> Columns:
    """Texts with the number of their label."""
    found = load_labelled(options.data, limit=options.limit)
    return {"text": [text for (text,) in found.rows], "label": list(map(int, found.targets or ()))}


def labelled_pairs(options: argparse.Namespace) -> Columns:
    """Each text with a random one of its label (score 1) and a random one of another label (score 0), as in SetFit."""
    texts, labels = labelled(options).values()
    chance = random.Random(options.seed)
    same = {label: [text for text, own in zip(texts, labels, strict=True) if own == label] for label in set(labels)}
    other = {label: [text for text, own in zip(texts, labels, strict=True) if own != label] for label in set(labels)}
    rows = [(text, chance.choice(same[label]), 1.0) for text, label in zip(texts, labels, strict=True)]
    rows += [(text, chance.choice(other[label]), 0.0) for text, label in zip(texts, labels, strict=True)]
    first, second, scores = zip(*rows, strict=True)
    return {"first": list(first), "second": list(second), "label": list(scores)}


def taught(options: argparse.Namespace) -> Columns:
    """Sentences with the vectors of the teacher, or with their main components.

    They are fitted and applied as in the library's example of fewer dimensions: found around the mean, which stays.
    """
    columns = sentences(options)
    vectors = open_guide(options).encode(columns["text"])
    if options.components is not None:
        vectors = vectors @ PCA(options.components).fit(vectors).components_.T
    return {**columns, "label": list(vectors)}


def taught_triplets(options: argparse.Namespace) -> Columns:
    """Triplets with the cosines that the teacher gives to the anchor and each of the other two texts."""
    columns, teacher = triplets(options), open_guide(options)
    anchors, *others = (teacher.encode(texts, normalize_embeddings=True) for texts in columns.values())
    return {**columns, "label": np.stack([(anchors * other).sum(1) for other in others], axis=1).tolist()}


class Loss(NamedTuple):
    """A loss, the rows that it takes, and how its batches are drawn."""

    rows: Callable[[argparse.Namespace], Columns]
    build: Callable[[SentenceTransformer, argparse.Namespace], nn.Module]
    sampler: BatchSamplers = BatchSamplers.NO_DUPLICATES


def mnrl(**settings: Any) -> Callable[[SentenceTransformer, argparse.Namespace], nn.Module]:
    """MultipleNegativesRankingLoss with settings."""
    return lambda model, options: losses.MultipleNegativesRankingLoss(model, scale=options.scale, **settings)


def gist(model: SentenceTransformer, options: argparse.Namespace) -> nn.Module:
    """GISTEmbedLoss: leaves out candidates that the guide finds more similar than the positive."""
    return losses.GISTEmbedLoss(model, open_guide(options), temperature=0.05)


def open_guide(options: argparse.Namespace) -> SentenceTransformer:
    """The model that guides or teaches."""
    if options.guide is None:
        raise SystemExit(f"--loss {options.loss} needs --guide MODEL.")
    return SentenceTransformer(str(locate(options.guide)), device="cpu")


def projected(model: SentenceTransformer, options: argparse.Namespace) -> nn.Module:
    """EmbedDistillLoss for a student of another width: a linear layer, dropped after training, has the teacher's."""
    return losses.EmbedDistillLoss(model, "cosine", projection_dim=open_guide(options).get_embedding_dimension())


def matryoshka(model: SentenceTransformer, _: argparse.Namespace) -> nn.Module:
    """MultipleNegativesRankingLoss at the full width, a half, a quarter and an eighth."""
    width = model.get_embedding_dimension() or 0
    widths = [width // part for part in (1, 2, 4, 8)]
    return losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), matryoshka_dims=widths)


def softmax(model: SentenceTransformer, _: argparse.Namespace) -> nn.Module:
    """SoftmaxLoss with three labels."""
    return losses.SoftmaxLoss(model, embedding_dimension=model.get_embedding_dimension() or 0, num_labels=3)


def tsdae(model: SentenceTransformer, options: argparse.Namespace) -> nn.Module:
    """DenoisingAutoEncoderLoss; the decoder starts from the encoder and shares its weights.

    What the decoder does not share has the type of the file, which may be half precision; training needs float32.
    """
    return losses.DenoisingAutoEncoderLoss(
        model, decoder_name_or_path=str(locate(options.model)), tie_encoder_decoder=True
    ).float()


ALL_DIRECTIONS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
BOTH = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
LOSSES: dict[str, Loss] = {
    "mnrl": Loss(triplets, mnrl()),
    "mnrl-both": Loss(triplets, mnrl(**BOTH)),
    "mnrl-all": Loss(triplets, mnrl(directions=ALL_DIRECTIONS)),
    "mnrl-hardness": Loss(triplets, mnrl(hardness_mode="hard_negatives", hardness_strength=5.0)),
    "mnrl-pairs": Loss(pairs, mnrl()),
    "mnrl-pairs-both": Loss(pairs, mnrl(**BOTH)),
    "mnrl-pairs-all": Loss(pairs, mnrl(directions=ALL_DIRECTIONS)),
    "mnrl-pairs-hardness": Loss(pairs, mnrl(hardness_mode="in_batch_negatives", hardness_strength=9.0)),
    "gist": Loss(triplets, gist),
    "gist-pairs": Loss(pairs, gist),
    "matryoshka": Loss(triplets, matryoshka),
    "softmax": Loss(nli, softmax),
    "cosent-nli": Loss(nli_scored, lambda model, _: losses.CoSENTLoss(model)),
    "angle-nli": Loss(nli_scored, lambda model, _: losses.AnglELoss(model)),
    "cosent": Loss(scored, lambda model, _: losses.CoSENTLoss(model)),
    "angle": Loss(scored, lambda model, _: losses.AnglELoss(model)),
    "cosine": Loss(scored, lambda model, _: losses.CosineSimilarityLoss(model)),
    "simcse": Loss(repeated, mnrl()),
    "tsdae": Loss(damaged, tsdae),
    "contrastive-tension": Loss(
        sentences, lambda model, _: losses.ContrastiveTensionLossInBatchNegatives(model), BatchSamplers.BATCH_SAMPLER
    ),
    "distill-mse": Loss(taught, lambda model, _: losses.MSELoss(model), BatchSamplers.BATCH_SAMPLER),
    "distill-cosine": Loss(
        taught, lambda model, _: losses.EmbedDistillLoss(model, distance_metric="cosine"), BatchSamplers.BATCH_SAMPLER
    ),
    "distill-projected": Loss(taught, projected, BatchSamplers.BATCH_SAMPLER),
    "distill-kl": Loss(
        taught_triplets,
        lambda model, _: losses.DistillKLDivLoss(model, similarity_fct=pairwise_cos_sim, temperature=0.05),
    ),
    "margin-mse": Loss(taught_triplets, lambda model, _: losses.MarginMSELoss(model, similarity_fct=pairwise_cos_sim)),
    "batch-hard-soft-margin": Loss(
        labelled, lambda model, _: losses.BatchHardSoftMarginTripletLoss(model), BatchSamplers.GROUP_BY_LABEL
    ),
    "batch-semi-hard": Loss(
        labelled, lambda model, _: losses.BatchSemiHardTripletLoss(model), BatchSamplers.GROUP_BY_LABEL
    ),
    "batch-all": Loss(labelled, lambda model, _: losses.BatchAllTripletLoss(model), BatchSamplers.GROUP_BY_LABEL),
    "cosine-labels": Loss(labelled_pairs, lambda model, _: losses.CosineSimilarityLoss(model)),
}
"""Name of a loss -> what it is."""
SENTENCE_LOSSES = ("simcse", "tsdae", "contrastive-tension")
"""Losses for sentences alone."""


def main() -> None:
    """Train, and write the model of the best step, run.json and numbers.json."""
    options = parse()
    rows = {options.loss: LOSSES[options.loss].rows(options)}
    if options.beside is not None:
        beside = argparse.Namespace(data=options.beside, limit=options.beside_limit, seed=options.seed, documents=False)
        rows[options.beside_loss] = LOSSES[options.beside_loss].rows(beside)
    dev = load_pairs(options.evaluate_on)
    model = open_model(options.model, options.pooling)
    if options.keep_layers is not None:
        keep_layers(model, options.keep_layers)
    set_dropout(model, options.dropout)
    start = [weight.clone() for weight in model.state_dict().values()]
    datasets = {name: Dataset.from_dict(columns) for name, columns in rows.items()}
    built = {name: LOSSES[name].build(model, options) for name in rows}
    with tempfile.TemporaryDirectory() as scratch:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=training_arguments(scratch, options, LOSSES[options.loss].sampler),
            train_dataset=datasets[options.loss] if options.beside is None else datasets,
            loss=built[options.loss] if options.beside is None else built,
            evaluator=EmbeddingSimilarityEvaluator(
                [pair.first for pair in dev], [pair.second for pair in dev], [pair.score for pair in dev], name="dev"
            ),
        )
        trainer.train()
    average(model, start, options.start_weight)
    history = [
        (entry["step"], entry["eval_dev_spearman_cosine"])
        for entry in trainer.state.log_history
        if "eval_dev_spearman_cosine" in entry
    ]
    trained_on = [row for columns in rows.values() for row in zip(*columns.values(), strict=True)]
    write(options, model, trained_on, dev, history)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", choices=LOSSES, required=True)
    parser.add_argument("--guide", help="a sentence-transformers model, for gist and the losses with a teacher")
    parser.add_argument("--components", type=int, help="number of principal components of the teacher to learn")
    parser.add_argument("--data", required=True)
    parser.add_argument("--documents", action="store_true", help="the data are documents; pairs are made of each")
    parser.add_argument("--limit", type=int, help="number of rows, by default all")
    parser.add_argument("--beside", help="sentences to train on as well, by --beside-loss")
    parser.add_argument("--beside-loss", choices=SENTENCE_LOSSES, default="simcse")
    parser.add_argument("--beside-limit", type=int, help="number of these sentences, by default all")
    parser.add_argument("--evaluate-on", required=True)
    parser.add_argument("--pooling", choices=("cls", "mean", "own"), default="cls")
    parser.add_argument("--keep-layers", type=int, nargs="+", help="train a model of these layers, counted from 1")
    parser.add_argument("--dropout", type=float, help="probability of dropout, by default the model's own")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--scale", type=float, default=20.0, help="of cosines in MultipleNegativesRankingLoss")
    parser.add_argument("--start-weight", type=float, default=0.0, help="share of the start in the saved weights")
    parser.add_argument("--warmup", type=float, default=0.0, help="share of the steps in which the learning rate rises")
    parser.add_argument("--max-grad-norm", type=float, default=1.0, help="the norm at which gradients are clipped")
    parser.add_argument("--evaluate-every", type=int, default=33)
    parser.add_argument("--keep", choices=("best", "last"), default="best", help="the step whose weights are saved")
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    return parser.parse_args()


def open_model(name: str, pooling: str) -> SentenceTransformer:
    """A transformers model with a pooling, or a sentence-transformers model with its own."""
    name = str(locate(name))
    if pooling == "own":
        return SentenceTransformer(name, device="cpu", model_kwargs={"dtype": "float32"})
    transformer = modules.Transformer(name, model_kwargs={"dtype": "float32"})
    layer = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling)
    return SentenceTransformer(modules=[transformer, layer], device="cpu")


def keep_layers(model: SentenceTransformer, numbers: Sequence[int]) -> None:
    """Remove all other layers of a BERT-like model, as the library's example of distillation does."""
    backbone = model[0].auto_model
    layers = backbone.encoder.layer
    if not all(1 <= number <= len(layers) for number in numbers):
        raise SystemExit(f"--keep-layers {' '.join(map(str, numbers))}: this model has the layers 1 to {len(layers)}.")
    backbone.encoder.layer = nn.ModuleList(layers[number - 1] for number in numbers)
    backbone.config.num_hidden_layers = len(numbers)


def set_dropout(model: nn.Module, probability: float | None) -> None:
    """Set the probability of every dropout of the model, those of attention too; None leaves them."""
    for module in model.modules():
        if isinstance(module, nn.Dropout) and probability is not None:
            module.p = probability


def average(model: nn.Module, start: Sequence[torch.Tensor], share: float) -> None:
    """Average the weights with those of the start, whose share it is."""
    for weight, before in zip(model.state_dict().values(), start, strict=True):
        if share and weight.is_floating_point():
            weight.lerp_(before, share)


def training_arguments(
    scratch: str, options: argparse.Namespace, sampler: BatchSamplers
) -> SentenceTransformerTrainingArguments:
    """One linear schedule, and the best step of several evaluations or the last one."""
    return SentenceTransformerTrainingArguments(
        output_dir=scratch,
        num_train_epochs=options.epochs,
        max_steps=options.max_steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        warmup_steps=options.warmup,
        lr_scheduler_type="linear",
        weight_decay=0.0,
        max_grad_norm=options.max_grad_norm,
        bf16=options.precision == "bf16",
        use_cpu=True,
        seed=options.seed,
        batch_sampler=sampler,
        eval_strategy="steps",
        eval_steps=options.evaluate_every,
        save_strategy="steps",
        save_steps=options.evaluate_every,
        save_total_limit=1,
        load_best_model_at_end=options.keep == "best",
        metric_for_best_model="eval_dev_spearman_cosine",
        report_to=[],
        disable_tqdm=True,
    )


def write(
    options: argparse.Namespace,
    model: SentenceTransformer,
    rows: Sequence[Sequence[object]],
    dev: Sequence[Sequence[object]],
    history: Sequence[tuple[float, float]],
) -> None:
    """Write the model with its record of seen texts, run.json and numbers.json."""
    model.save_pretrained(str(options.output / "model"))
    chosen_by = dev if options.keep == "best" else []
    seen = SeenHashes(*(np.unique(hashes) for one in (rows, chosen_by) for hashes in row_hashes(one)))
    write_seen(options.output / "model", seen)
    run = {**provenance().to_dict(), "config": {**vars(options), "output": str(options.output)}, "history": history}
    scores = [score for _, score in history]
    numbers = {"validation": 100 * (max(scores) if options.keep == "best" else scores[-1])} if scores else {}
    for name, values in {"run.json": run, "numbers.json": numbers}.items():
        (options.output / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
