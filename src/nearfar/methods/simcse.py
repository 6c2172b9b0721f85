"""Gao et al. 2021, "SimCSE" (arXiv 2104.08821): simcse-unsup, simcse-sup, and info-nce for pairs of any kind.

All three are the mean over a batch's rows of :func:`nearfar.objectives.info_nce`.

``simcse-unsup`` (eq. 4): a row is a sentence. It is encoded twice, with two draws of dropout; the second is the first's
positive, the second draws of the batch's other sentences are its negatives. Paper: 10^6 sentences of Wikipedia, 1
epoch, batch 64, learning rate 3e-5 (BERT-base; Table A.1).

``simcse-sup`` (eq. 5): a row is a triplet, in the paper a premise of SNLI or MultiNLI, a hypothesis that it entails and
one that contradicts it, the hard negative. An anchor's negatives are the other rows' positives and all hard negatives.
Paper (and the authors' file): 275,601 triplets, 3 epochs, batch 512, learning rate 5e-5 (BERT-base; Table A.1).

``info-nce``: the same on the user's own pairs, with or without a hard negative each.

``documents``: the same on pairs made of documents alone (:func:`nearfar.data.documents.pairs_of`), for search in them
without labels or queries: titles with passages, as queries, and passages with each other (the inverse cloze task: Lee
et al. 2019, "Latent retrieval for weakly supervised open domain question answering"; crops: Izacard et al. 2022,
"Unsupervised dense information retrieval with contrastive learning").

Where paper, authors' code and this module differ:

=================  ======================  ===========================  =======================================
                   paper                   authors' code                here
=================  ======================  ===========================  =======================================
false negatives    negatives               negatives                    left out where texts are equal
a text that comes  not said                encoded in each row          supervised: encoded once; unsupervised:
again in a batch                                                        twice in each row
hard negatives     one for a premise,      the rows as they are         the rows as they are
                   drawn (footnote 7)
their weight       alpha                   log alpha                    log alpha
=================  ======================  ===========================  =======================================
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from nearfar.config.bounds import Count, Epochs, File, Fraction, LearningRate, Length, OpenFraction, Steps, Weight
from nearfar.methods import base
from nearfar.methods.settings import DirectionSettings, HardNegativeSettings, InfoNceSettings, PairColumns, TextColumn
from nearfar.types import Loss, Method, MethodEntry, NearfarError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn

    from nearfar.data.batching import TextBatch, TextBatches
    from nearfar.data.rows import TextData
    from nearfar.encoder.training_encoder import TrainingText
    from nearfar.objectives import DirectionMasks, RowMask, Similarity

PAPER = base.bibtex("gao2021simcse")


@dataclass(frozen=True, kw_only=True)
class SimcseConfig(InfoNceSettings):
    """Settings of both methods of Gao et al. 2021."""

    pooling: str | None = "cls"
    mlp: Literal["train_only", "kept", "none"] = "train_only"
    """A tanh layer on the embedding: in training only (best in Gao et al. 2021), also after training, or none."""
    mlm_weight: Weight = 0.0
    """Weight of a masked-language-model loss on the same sentences; 0.1 in the paper's ablation."""
    mlm_probability: OpenFraction = 0.15
    """Share of the tokens to predict in the masked-language-model loss."""
    learning_rate: LearningRate = 3e-5
    """Peak learning rate (BERT-base; Gao et al. 2021, appendix A)."""
    warmup: Fraction = 0.0
    train_max_length: Length | None = 32
    """Maximum number of tokens in training only (the authors' script)."""
    evaluate_every: Steps | None = 250
    """Steps between evaluations (the paper; its script has 125); none for a tenth of the run."""


@dataclass(frozen=True, kw_only=True)
class SimcseUnsupConfig(TextColumn, SimcseConfig):
    """simcse-unsup: InfoNCE; the positive is the same sentence with another dropout mask (Gao et al. 2021)."""

    data: tuple[File, ...] = ("wiki1m",)
    """Sentences: text files with one a line, tables, or wiki1m, wiki, sentences, stsb-text, microworld."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.dropout == 0:
            yield (
                "--dropout 0: simcse-unsup needs dropout, which makes the positive of each sentence; set one, such as "
                "--dropout 0.1."
            )


@dataclass(frozen=True, kw_only=True)
class SimcseSupConfig(DirectionSettings, HardNegativeSettings, SimcseConfig):
    """simcse-sup: InfoNCE with entailments as positives, contradictions as hard negatives (Gao et al. 2021)."""

    data: tuple[File, ...] = ("snli+mnli",)
    """NLI rows, to build triplets of, or files of triplets (anchor, positive, negative or sent0, sent1, hard_neg)."""
    mlp: Literal["train_only", "kept", "none"] = "kept"
    """A tanh layer on the embedding: also after training, in training only, or none."""
    batch_size: Count = 512
    epochs: Epochs = 3
    learning_rate: LearningRate = 5e-5
    """Peak learning rate (BERT-base; Gao et al. 2021, appendix A)."""


@dataclass(frozen=True, kw_only=True)
class InfoNceConfig(DirectionSettings, HardNegativeSettings, PairColumns, InfoNceSettings):
    """info-nce: InfoNCE on your own pairs or triplets, with the other rows of the batch as negatives."""

    # --- Rows ---

    data: tuple[File, ...] = ()
    """Files with the columns below, or flickr8k (captions of one photo), microworld."""

    # --- Options ---

    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""


@dataclass(frozen=True, kw_only=True)
class DocumentsConfig(DirectionSettings, InfoNceSettings):
    """documents: InfoNCE on pairs made of documents alone: titles with passages, and passages with each other."""

    # --- Rows ---

    data: tuple[File, ...] = ()
    """Documents: a folder of text files (.txt, .md, .rst), tables, or text files with one document a line."""
    title_column: str = "title"
    """Column of the titles, in tables that have it."""
    text_column: str = "text"
    """Column of the documents, in tables."""
    pairs_per_document: Count = 4
    """Most pairs made of a document: in turn its title with a passage of two sentences, and two passages."""

    # --- Options ---

    distinct_texts: bool = True
    """No text twice in a batch, as far as possible: a row that repeats one waits for a later batch, so that pairs of
    one document are apart. --no-distinct-texts: batches of any pairs."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""


ContrastiveConfig: TypeAlias = SimcseSupConfig | InfoNceConfig | DocumentsConfig
"""Settings of methods whose rows are an anchor, a positive and perhaps a negative."""


def build_unsupervised(config: SimcseUnsupConfig, context: base.BuildContext, rows: "TextData") -> base.BuiltMethod:
    """Build simcse-unsup: single sentences, each its own positive under another draw of dropout.

    Sentences of equal text are never negatives of each other. ``mlp`` and ``false_negative_margin`` work as in
    :func:`build_contrastive`, and so do the terms.

    Raises:
        NearfarError: fewer than two distinct texts.
    """
    import torch
    from torch import nn

    from nearfar.objectives import DirectionMasks, distinct_rows

    batches, head = _batches_and_head(config, context, rows)
    project = nn.Identity() if head is None else head
    base.require_different((row[0] for row in batches.texts), "sentence")

    def extract_items(batch: "TextBatch") -> list[str]:
        texts = [batch.sentences[text] for text in batch.columns[0]]
        return texts + texts

    def tensors(batch: "TextBatch") -> "Sequence[Tensor]":
        return [torch.tensor(batch.columns[0])]

    def loss_fn(batch: "TextBatch | tuple[Tensor, ...]", representations: "Tensor") -> Loss:
        (ids,) = batch if isinstance(batch, tuple) else tensors(batch)
        first, second = project(representations[: 2 * len(ids)]).chunk(2)
        masks = DirectionMasks(query_to_doc=distinct_rows(ids)).to(first.device)
        losses, terms = contrastive_loss(config, first, second, None, masks=masks)
        return Loss(losses.mean(), terms)

    describe = partial(base.describe_rows, names=("sentence",))
    method = Method(
        "simcse-unsup", batches, extract_items, context.encoder.embed, loss_fn, describe, head, tensors=tensors
    )
    return base.BuiltMethod(method, base.text_facts(rows), _extra_losses(config, context, batches))


def build_contrastive(config: ContrastiveConfig, context: base.BuildContext, rows: "TextData") -> base.BuiltMethod:
    """Build simcse-sup, info-nce or documents, on rows (anchor, positive) or (anchor, positive, negative).

    Anchors are encoded as queries, positives and negatives as documents.

    An anchor's candidates are the positives of all rows and, if there are any, the negatives of all rows. Its own
    positive is pulled near, the others are pushed away, except known false negatives: a candidate, whatever its row,
    whose text is that of the anchor or of a positive of the anchor's text in any row of the batch.

    ``false_negative_margin`` also leaves out likely false negatives: a candidate from another row whose similarity to
    the anchor exceeds that of the own positive by more than the margin, with the embeddings of that step. The row's own
    negative is never left out, as the data say that it is one. The margin must not be negative: a collapsed encoder
    would then leave out everything, with a loss of 0. With a ``guide``, the similarities are the cosines of that frozen
    encoder (Solatorio 2024, "GISTEmbed"), and the margin is 0 if none is given.

    ``directions`` adds comparisons of positives with anchors, or also within both sides
    (:func:`nearfar.objectives.info_nce_directions`), with the same false negatives left out.

    ``hard_negative_weight`` is added to the logit of the row's own negative, which multiplies its share by
    exp(hard_negative_weight). With ``mlp="train_only"`` a linear layer and tanh are applied between embedding and loss;
    they are dropped after training.

    Terms: ``accuracy``, the share of anchors with no negative more similar than their own positive; with a margin also
    ``left_out``, the share of negatives that it leaves out.

    Raises:
        NearfarError: pairs that all have the same anchor; from the loss, a ``hard_negative_weight`` on rows without
            negatives or with the direction ``doc_to_query``.
    """
    import torch
    from torch import nn

    from nearfar.objectives import RowMask, direction_masks, to_device

    name = next(name for name, entry in METHODS.items() if entry.config is type(config))
    roles = context.roles
    batches, head = _batches_and_head(config, context, rows, by_role=True, distinct_texts=config.distinct_texts)
    if head is not None and context.frozen is not None:
        raise NearfarError(
            "--freeze documents and --mlp train_only: its layer is for queries and documents alike, and vectors of "
            "documents stay as they are; give --mlp none or kept."
        )
    project = nn.Identity() if head is None else head
    guide = base.open_guide(config.guide, config, context, rows)
    if len(batches.texts[0]) == 2:
        base.require_different((row[0] for row in batches.texts), "anchor")

    def tensors(batch: "TextBatch") -> "Sequence[Tensor | None]":
        columns = torch.tensor(batch.columns)
        frozen, judged = roles.frozen_vectors(batch), None if guide is None else guide(batch.sentences)
        return [
            columns,
            roles.rows_of(batch),
            None if frozen is None else frozen[columns[1:].to(frozen.device)],
            None if judged is None else judged[columns.to(judged.device)],
        ]

    def loss_fn(batch: "TextBatch | tuple[Tensor | None, ...]", representations: "Tensor") -> Loss:
        texts, rows, frozen, judged = batch if isinstance(batch, tuple) else tensors(batch)
        assert texts is not None
        assert rows is not None
        vectors, device = project(representations), representations.device
        anchors, positives, *negatives = (vectors[column] for column in to_device(rows, device))
        if frozen is not None:
            positives, *negatives = to_device(frozen, device)
        index = torch.arange(2 * len(anchors), device=device)
        own = RowMask(
            lambda rows: index == len(anchors) + index[: len(anchors)][rows, None], (len(anchors), len(index))
        )
        losses, terms = contrastive_loss(
            config,
            anchors,
            positives,
            negatives[0] if negatives else None,
            masks=direction_masks(config.directions, *texts).to(device),
            own_negatives=own if negatives else None,  # the positives come first among the candidates
            judged=None if judged is None else list(to_device(judged, device)),
        )
        return Loss(losses.mean(), terms)

    describe = partial(base.describe_rows, names=("anchor", "positive", "negative"))
    method = Method(name, batches, roles.items, context.encoder.embed, loss_fn, describe, head, tensors=tensors)
    extra = _extra_losses(config, context, batches, roles.items) if isinstance(config, SimcseSupConfig) else ()
    return base.BuiltMethod(method, base.text_facts(rows), extra, () if guide is None else (guide,))


def contrastive_loss(
    config: InfoNceSettings,
    anchors: 'Float[Tensor, "batch dim"]',
    positives: 'Float[Tensor, "batch dim"]',
    negatives: 'Float[Tensor, "negatives dim"] | None',
    *,
    masks: "DirectionMasks",
    own_negatives: "RowMask | None" = None,
    judged: "Sequence[Tensor] | None" = None,
) -> 'tuple[Float[Tensor, " batch"], dict[str, Tensor]]':
    """The loss of each row, and the terms to log: ``accuracy``, and with a margin ``left_out``.

    Similarity, directions and the weight of hard negatives are those of ``config``, as far as it has them.
    ``masks`` are True where a candidate is a negative, judged by the texts alone; there must be one for
    ``query_to_doc``. ``own_negatives`` is True where a document is a hard negative of the row's own anchor, which the
    margin never leaves out. ``judged`` are a guide's vectors of anchors, positives and negatives, whose cosines the
    margin is in. ``accuracy`` is the share of anchors with no negative more similar than their own positive,
    ``left_out`` the share of an anchor's negatives that the margin leaves out.
    """
    import torch

    from nearfar.objectives import DirectionMasks, below_positive, info_nce_directions, l2_normalize, masked_fraction

    names = ("temperature", "similarity", "directions", "hard_negative_weight")
    settings: dict[str, Any] = {name: getattr(config, name) for name in names if hasattr(config, name)}
    similarity: Similarity = settings.get("similarity", "cosine")
    if similarity == "cosine":  # the vectors are scaled once for all comparisons
        anchors, positives = l2_normalize(anchors), l2_normalize(positives)
        negatives = None if negatives is None else l2_normalize(negatives)
        similarity = settings["similarity"] = "dot"
    documents = positives if negatives is None else torch.cat([positives, negatives])
    known, margin = masks.query_to_doc, config.false_negative_margin
    assert known is not None
    judging = (anchors, positives, documents)
    if judged is not None:
        judging, margin = (judged[0], judged[1], torch.cat([*judged[1:]])), margin or 0.0
    by: Similarity = similarity if judged is None else "cosine"
    # The share of anchors with no negative nearer than the positive; the margin leaves out none of them.
    below = below_positive(anchors, positives, documents, margin=0.0, similarity=similarity)
    terms = {"accuracy": (below | ~known).all_candidates().float().sum() / max(len(anchors), 1)}
    if margin is not None:
        of_directions = (  # an anchor, its positive, and the candidates
            judging,
            (judging[1], judging[0], judging[0]),
            (judging[0], judging[1], judging[0]),
            (judging[1], judging[0], judging[2]),
        )
        query_to_doc, *others = (
            None if mask is None else mask & below_positive(*vectors, margin=margin, similarity=by)
            for mask, vectors in zip(masks, of_directions, strict=True)
        )
        assert query_to_doc is not None
        if own_negatives is not None:
            query_to_doc |= known & own_negatives
        masks = DirectionMasks(query_to_doc, *others)
        terms["left_out"] = masked_fraction(query_to_doc, known)
    return info_nce_directions(anchors, positives, negatives, masks=masks, **settings), terms


def _batches_and_head(
    config: SimcseConfig | ContrastiveConfig, context: base.BuildContext, rows: "TextData", **order: bool
) -> "tuple[TextBatches, nn.Module | None]":
    """Batches of the rows, and the layer between embedding and loss that is dropped after training, if there is one.

    A layer that is kept is added to the encoder.
    """
    from nearfar.encoder.heads import TanhHead

    encoder, mlp = context.encoder.encoder, config.mlp if isinstance(config, SimcseConfig) else "none"
    if mlp == "kept":
        encoder.add_dense()
    batches = context.batches(config, rows, **order)
    return batches, TanhHead(encoder.dim) if mlp == "train_only" else None


def _extra_losses(
    config: SimcseConfig,
    context: base.BuildContext,
    batches: "TextBatches",
    texts: "Callable[[TextBatch], Sequence[TrainingText]]" = base.sentences_of,
) -> tuple[tuple[Method, float], ...]:
    """The masked-language-model loss on the ``texts`` of a batch, if it has a weight."""
    from torch import nn

    from nearfar.encoder.heads import MaskedLmHead
    from nearfar.methods.masked_lm import masked_language_model

    if not config.mlm_weight:
        return ()
    encoder = context.encoder.encoder
    words = encoder.backbone.get_input_embeddings()
    assert isinstance(words, nn.Embedding)
    head = MaskedLmHead(encoder.backbone.config.hidden_size, words, std=base.initializer_range(encoder.backbone))
    method = masked_language_model(config.mlm_probability, context.encoder, head, batches, texts)
    return ((method, config.mlm_weight),)


def read_sentences(config: SimcseUnsupConfig) -> "TextData":
    """Read single sentences."""
    from nearfar.data.rows import load_sentences

    return load_sentences(config.data, column=config.text_column, limit=config.limit)


def read_triplets(config: SimcseSupConfig) -> "TextData":
    """Read triplets, or build them from NLI rows."""
    from nearfar.data.triplets import load_triplets

    return load_triplets(config.data, limit=config.limit)


def read_pairs(config: InfoNceConfig) -> "TextData":
    """Read pairs, or triplets where there are negatives."""
    from nearfar.data.triplets import load_tuples

    auto = config.negative_column == "auto"
    data = base.require_data(config, "info-nce")
    return load_tuples(data, columns=config.columns, find_negatives=auto, limit=config.limit)


def read_documents(config: DocumentsConfig) -> "TextData":
    """Read documents, and make pairs of them."""
    from nearfar.data.documents import load_pairs_of_documents

    return load_pairs_of_documents(
        base.require_data(config, "documents"),
        title_column=config.title_column,
        text_column=config.text_column,
        pairs=config.pairs_per_document,
        seed=config.seed,
        limit=config.limit,
    )


METHODS = {
    name: MethodEntry(
        config=kind, read_rows=read_rows, build=build, papers=(PAPER,), by_role=build is build_contrastive
    )
    for name, kind, read_rows, build in (
        ("simcse-unsup", SimcseUnsupConfig, read_sentences, build_unsupervised),
        ("simcse-sup", SimcseSupConfig, read_triplets, build_contrastive),
        ("info-nce", InfoNceConfig, read_pairs, build_contrastive),
        ("documents", DocumentsConfig, read_documents, build_contrastive),
    )
}
