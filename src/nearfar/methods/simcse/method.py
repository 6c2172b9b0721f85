"""Gao et al. 2021, "SimCSE" (arXiv 2104.08821): simcse-unsup, simcse-sup, and info-nce for pairs of any kind.

All three are the mean over a batch's rows of :func:`nearfar.objectives.info_nce`.

``simcse-unsup`` (eq. 4): a row is a sentence. It is encoded twice, with two draws of dropout; the second is the first's
positive, the second draws of the batch's other sentences are its negatives. Paper: 10^6 sentences of Wikipedia, 1
epoch, batch 64, learning rate 3e-5 (BERT-base; Table A.1).

``simcse-sup`` (eq. 5): a row is a triplet, in the paper a premise of SNLI or MultiNLI, a hypothesis that it entails and
one that contradicts it, the hard negative. An anchor's negatives are the other rows' positives and all hard negatives.
Paper (and the authors' file): 275,601 triplets, 3 epochs, batch 512, learning rate 5e-5 (BERT-base; Table A.1).

``info-nce``: the same on the user's own pairs, with or without a hard negative each.

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

from collections.abc import Sequence
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.heads import TanhHead
from nearfar.encoder.training_encoder import TrainingText
from nearfar.methods.base import EmbedFn, Loss, Method
from nearfar.methods.contrastive import contrastive_loss
from nearfar.methods.describe import describe_anchor, describe_directions, describe_margin, pluralize
from nearfar.methods.roles import NO_PROMPTS, Roles
from nearfar.methods.simcse import InfoNceConfig, InfoNceSettings, SimcseConfig, SimcseSupConfig, SimcseUnsupConfig
from nearfar.objectives import (
    DirectionMasks,
    Directions,
    RowMask,
    direction_masks,
    distinct_rows,
)
from nearfar.runtime.transfer import to_device
from nearfar.types import NearfarError


def unsupervised(config: SimcseUnsupConfig, embed: EmbedFn, dim: int, batches: TextBatches) -> Method:
    """Train on single sentences, each its own positive under another draw of dropout. ``dim`` is the embeddings' width.

    Sentences of equal text are never negatives of each other. ``mlp`` and ``false_negative_margin`` work as in
    :func:`contrastive_method`.

    Terms: ``accuracy`` and ``left_out``, as in :func:`contrastive_method`.
    Raises NearfarError for rows of several texts, fewer than two distinct texts, and a batch size of 1.
    """
    name = "simcse-unsup"
    width = len(batches.texts[0])
    if width != 1:
        raise NearfarError(
            f"{name} trains on single sentences, but each row has {width} texts; "
            "the method for pairs and triplets is info-nce"
        )
    _require_negatives(name, batches)
    head = _head(config, dim)

    def extract_items(batch: TextBatch) -> list[str]:
        texts = [batch.sentences[text] for text in batch.columns[0]]
        return texts + texts

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        first, second = _projected(head, representations).chunk(2)
        known = distinct_rows(torch.tensor(batch.columns[0])).to(first.device)
        losses, terms = contrastive_loss(config, first, second, None, masks=DirectionMasks(query_to_doc=known))
        return Loss(losses.mean(), terms)

    def describe(batch: TextBatch) -> list[str]:
        lines: list[str] = []
        for text in batch.columns[0]:
            equal = batch.columns[0].count(text) - 1
            others = len(batch.columns[0]) - 1 - equal
            lines += describe_anchor(
                batch.sentences[text],
                positives=["the same sentence, encoded again with other dropout"],
                negatives=[pluralize(others, "other sentence", "other sentences")],
                left_out=pluralize(equal, "sentence of equal text", "sentences of equal text") if equal else None,
            )
        return [*lines, *describe_margin(config.false_negative_margin)]

    return Method(name, batches, extract_items, embed, loss_fn, describe, head)


def contrastive_method(
    config: SimcseSupConfig | InfoNceConfig,
    embed: EmbedFn,
    dim: int,
    batches: TextBatches,
    roles: Roles = NO_PROMPTS,
) -> Method:
    """Train on rows (anchor, positive) or (anchor, positive, negative). ``dim`` is the embeddings' width.

    Anchors are encoded as queries, positives and negatives as documents, with the prompts of ``roles``.

    An anchor's candidates are the positives of all rows and, if there are any, the negatives of all rows. Its own
    positive is pulled near, the others are pushed away, except known false negatives: a candidate, whatever its row,
    whose text is that of the anchor or of a positive of the anchor's text in any row of the batch.

    ``false_negative_margin`` also leaves out likely false negatives: a candidate from another row whose similarity to
    the anchor exceeds that of the own positive by more than the margin, with the embeddings of that step. The row's own
    negative is never left out, as the data say that it is one. The margin must not be negative: a collapsed encoder
    would then leave out everything, with a loss of 0.

    ``directions`` adds comparisons of positives with anchors, or also within both sides
    (:func:`nearfar.objectives.info_nce_directions`), with the same false negatives left out.

    ``hard_negative_weight`` is added to the logit of the row's own negative, which multiplies its share by
    exp(hard_negative_weight). With ``mlp="train_only"`` a linear layer and tanh are applied between embedding and loss;
    they are dropped after training.

    Terms: ``accuracy``, the share of anchors with no negative more similar than their own positive; with a margin also
    ``left_out``, the share of negatives that it leaves out.
    Raises NearfarError for rows of one text, ``simcse-sup`` or a ``hard_negative_weight`` on rows without negatives or
    with the direction ``doc_to_query``, pairs of which none can be a negative of another, and a batch size of 1.
    """
    name = "simcse-sup" if isinstance(config, SimcseSupConfig) else "info-nce"
    width = len(batches.texts[0])
    if width not in (2, 3):
        raise NearfarError(
            f"{name} trains on pairs (anchor, positive) or triplets (anchor, positive, negative), but each row has "
            f"{pluralize(width, 'text', 'texts')}"
        )
    if width == 2:
        if name == "simcse-sup":
            raise NearfarError(
                "simcse-sup needs rows with the columns anchor, positive and negative, but they have no negative; "
                "name its column, or use the method info-nce, which takes pairs"
            )
        if config.hard_negative_weight != 0:
            raise NearfarError(
                f"--hard-negative-weight is {config.hard_negative_weight}, but the rows have the columns anchor and "
                "positive only; name a column of negatives, or leave the weight at 0"
            )
        _require_negatives(name, batches)
    if config.directions == "doc_to_query" and config.hard_negative_weight:
        raise NearfarError(
            "--directions doc_to_query compares with anchors only, so --hard-negative-weight has no effect; leave "
            "one of them out"
        )
    head = _head(config, dim)

    def by_role(batch: TextBatch) -> tuple[list[int], list[int]]:
        return batch.columns[0], list(chain(*batch.columns[1:]))

    def extract_items(batch: TextBatch) -> Sequence[TrainingText]:
        return roles.items(batch.sentences, *by_role(batch))

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        queries, documents = roles.split(_projected(head, representations), batch.sentences, *by_role(batch))
        columns = to_device(torch.tensor(batch.columns), queries.device)
        anchors, positives, *negatives = (
            vectors[column] for vectors, column in zip((queries, documents, documents), columns, strict=False)
        )
        losses, terms = contrastive_loss(
            config,
            anchors,
            positives,
            negatives[0] if negatives else None,
            masks=_masks(batch, config.directions).to(queries.device),
            own_negatives=_own_negatives(len(anchors), queries.device) if negatives else None,
            directions=config.directions,
            hard_negative_weight=config.hard_negative_weight,
            similarity=config.similarity if isinstance(config, InfoNceConfig) else "cosine",
        )
        return Loss(losses.mean(), terms)

    def describe(batch: TextBatch) -> list[str]:
        lines: list[str] = []
        rows, known = len(batch.rows), _masks(batch, "query_to_doc").query_to_doc
        assert known is not None
        for row, negatives in enumerate(known[:].tolist()):
            anchor, positive, *own = (batch.sentences[column[row]] for column in batch.columns)
            stays = bool(own) and negatives[rows + row]
            elsewhere = sum(negatives) - stays
            equal = len(negatives) - 1 - sum(negatives)  # its own positive is none of the negatives
            lines += describe_anchor(
                anchor,
                positives=[positive],
                negatives=[*own[:stays], f"{pluralize(elsewhere, 'text', 'texts')} of other rows"],
                left_out=f"{pluralize(equal, 'text', 'texts')} equal to the anchor or a positive" if equal else None,
            )
        return [*lines, *describe_directions(config.directions), *describe_margin(config.false_negative_margin)]

    return Method(name, batches, extract_items, embed, loss_fn, describe, head)


def _masks(batch: TextBatch, directions: Directions) -> DirectionMasks:
    """Where a candidate is a negative of a row's text, judged by the texts alone."""
    return direction_masks(directions, *(torch.tensor(column) for column in batch.columns))


def _own_negatives(batch: int, device: torch.device) -> RowMask:
    """Where a candidate is the negative of the same row; the positives of all rows come first."""
    index = torch.arange(2 * batch, device=device)
    return RowMask(lambda rows: index == batch + index[:batch][rows, None], (batch, 2 * batch))


def _head(config: InfoNceSettings, dim: int) -> nn.Module | None:
    """The linear layer and tanh that are dropped after training, if ``mlp`` asks for them."""
    return TanhHead(dim) if isinstance(config, SimcseConfig) and config.mlp == "train_only" else None


def _projected(head: nn.Module | None, representations: Float[Tensor, "items dim"]) -> Float[Tensor, "items dim"]:
    return representations if head is None else head(representations)


def _require_negatives(name: str, batches: TextBatches) -> None:
    """Refuse rows in which no anchor can have a negative. In a row of one text, the text is its own positive."""
    if batches.batch_size == 1:
        raise NearfarError(
            f"--batch-size is 1, but {name} takes its negatives from the batch's other rows; make it 2 or more"
        )
    near: dict[str, set[str]] = {}
    for row in batches.texts:
        near.setdefault(row[0], {row[0]}).add(row[-1])
    positives = {row[-1] for row in batches.texts}
    if all(positives <= texts for texts in near.values()):
        raise NearfarError(
            f"{name}: in the {len(batches.texts)} rows every positive belongs to every anchor, such as "
            f"{batches.texts[0][-1]!r} to {batches.texts[0][0]!r}, so there is nothing to push away; add rows of "
            "other texts"
        )
