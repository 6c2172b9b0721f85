"""Gao et al. 2021, "SimCSE" (arXiv 2104.08821): simcse-unsup, simcse-sup, and info-nce for pairs of any kind.

All three are the mean over a batch's rows of :func:`nearfar.objectives.info_nce`.

``simcse-unsup`` (eq. 4): a row is a sentence. It is encoded twice, with two draws of dropout; the second is the first's
positive, the second draws of the batch's other sentences are its negatives. Paper: 10^6 sentences of Wikipedia, 1
epoch, batch 64, learning rate 3e-5 (BERT-base; Table A.1).

``simcse-sup`` (eq. 5): a row is a triplet, in the paper a premise of SNLI or MultiNLI, a hypothesis that it entails and
one that contradicts it, the hard negative. An anchor's negatives are the other rows' positives and all hard negatives.
Paper (and the authors' file): 275,601 triplets, 3 epochs, batch 512, learning rate 5e-5 (BERT-base; Table A.1).

``info-nce``: the same on the user's own pairs, with or without a hard negative each.

Where paper, authors' code and this page differ:

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

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nearfar.data.batching import TextBatch, TextBatches
from nearfar.encoder.heads import TanhHead
from nearfar.methods import EmbedFn, Loss, Method
from nearfar.methods.describe import describe_anchor, pluralize
from nearfar.objectives import (
    RowMask,
    Similarity,
    all_row_masks,
    below_positive_row_mask,
    distinct_row_mask,
    info_nce,
    masked_fraction,
    not_known_positive_row_mask,
    row_blocks,
)
from nearfar.types import NearfarError


def unsupervised(
    embed: EmbedFn,
    dim: int,
    batches: TextBatches,
    *,
    temperature: float = 0.05,  # Gao et al. 2021, Table D.1
    mlp: bool = True,  # Table 6: best with an MLP that is there in training only
    false_negative_margin: float | None = None,
) -> Method:
    """Train on single sentences, each its own positive under another draw of dropout. ``dim`` is the embeddings' width.

    Sentences of equal text are never negatives of each other. ``false_negative_margin`` is explained at
    :func:`contrast`. With ``mlp`` a linear layer and tanh stand between embedding and loss.

    Terms: ``accuracy`` and ``left_out``, as those of :func:`contrast`.
    Raises NearfarError for rows of several texts, fewer than two distinct texts, a batch size of 1, and for bad
    settings.
    """
    name = "simcse-unsup"
    width = len(batches.texts[0])
    if width != 1:
        raise NearfarError(
            f"{name} trains on single sentences, but each row has {width} texts; "
            "the method for pairs and triplets is info-nce"
        )
    _require_negatives(name, batches)
    _check(temperature=temperature, similarity="cosine", false_negative_margin=false_negative_margin)
    head = TanhHead(dim) if mlp else None

    def extract_items(batch: TextBatch) -> list[str]:
        texts = [batch.sentences[text] for text in batch.columns[0]]
        return texts + texts

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        first, second = _projected(head, representations).chunk(2)
        return _loss(
            first,
            second,
            None,
            distinct_row_mask(torch.tensor(batch.columns[0], device=representations.device)),
            temperature=temperature,
            similarity="cosine",
            hard_negative_weight=0.0,
            false_negative_margin=false_negative_margin,
        )

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
        return [*lines, *_describe_margin(false_negative_margin)]

    return Method(name, batches, extract_items, embed, loss_fn, describe, head)


def contrastive_method(
    name: str,
    embed: EmbedFn,
    dim: int,
    batches: TextBatches,
    *,
    temperature: float = 0.05,  # Gao et al. 2021, Table D.1
    similarity: Similarity = "cosine",  # Table D.1: better than the dot product
    hard_negative_weight: float = 0.0,  # log alpha of eq. 8; Table 7: alpha = 1 is best
    mlp: bool = False,  # Table 6, supervised: without one as good as with one that is kept
    false_negative_margin: float | None = None,
) -> Method:
    """Train on rows (anchor, positive) or (anchor, positive, negative). ``dim`` is the embeddings' width.

    An anchor's candidates are the positives of all rows and, if there are any, the negatives of all rows. Its own
    positive is pulled near, the others are pushed away, but for known false negatives: a candidate, whatever its row,
    whose text is that of the anchor or of a positive that any row of the batch names for the anchor's text.

    ``false_negative_margin`` leaves out what is likely to be a false negative too: a candidate from another row whose
    similarity to the anchor is greater than the own positive's by more than the margin, by the embeddings of that very
    step. The row's own negative stays, as the data call it one. The margin can't be negative: then a collapsed encoder
    would leave out everything, at a loss of 0.

    ``hard_negative_weight`` is added to the logit of the row's own negative, which multiplies its share by
    exp(hard_negative_weight). With ``mlp`` a linear layer and tanh stand between embedding and loss; they are dropped
    after training.

    Terms: ``accuracy``, the share of anchors with no negative more similar than their own positive; with a margin also
    ``left_out``, the share of negatives that it leaves out.
    Raises NearfarError for rows of one text, ``simcse-sup`` or a ``hard_negative_weight`` on rows without negatives,
    pairs of which none can be a negative of another or a batch size of 1, and for bad settings.
    """
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
        if hard_negative_weight != 0:
            raise NearfarError(
                f"--hard-negative-weight is {hard_negative_weight}, but the rows have the columns anchor and positive "
                "only; name a column of negatives, or leave the weight at 0"
            )
        _require_negatives(name, batches)
    if not math.isfinite(hard_negative_weight):
        raise NearfarError(f"--hard-negative-weight must be a finite number, not {hard_negative_weight}")
    _check(temperature=temperature, similarity=similarity, false_negative_margin=false_negative_margin)
    head = TanhHead(dim) if mlp else None

    def loss_fn(batch: TextBatch, representations: Tensor) -> Loss:
        embeddings = _projected(head, representations)
        anchors, positives, *negatives = (embeddings[column] for column in batch.columns)
        return _loss(
            anchors,
            positives,
            negatives[0] if negatives else None,
            _negative_row_mask(batch, embeddings.device),
            temperature=temperature,
            similarity=similarity,
            hard_negative_weight=hard_negative_weight,
            false_negative_margin=false_negative_margin,
        )

    def describe(batch: TextBatch) -> list[str]:
        lines: list[str] = []
        rows, known = len(batch.rows), _negative_row_mask(batch)
        for row in range(rows):
            negatives = known(torch.tensor([row]))[0].tolist()
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
        return [*lines, *_describe_margin(false_negative_margin)]

    return Method(name, batches, lambda batch: batch.sentences, embed, loss_fn, describe, head)


def _negative_row_mask(batch: TextBatch, device: torch.device | None = None) -> RowMask:
    """Whether a candidate is a negative of a row's anchor, for all that texts tell.

    Candidates are the positives of all rows, then the negatives of all rows.
    """
    anchors, positives, *negatives = (torch.tensor(column, device=device) for column in batch.columns)
    return not_known_positive_row_mask(anchors, positives, torch.cat([positives, *negatives]))


def _loss(
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    negatives: Float[Tensor, "batch dim"] | None,
    known: RowMask,
    *,
    temperature: float,
    similarity: Similarity,
    hard_negative_weight: float,
    false_negative_margin: float | None,
) -> Loss:
    """Mean InfoNCE; ``known`` is True where a candidate is a negative of an anchor for all that texts tell."""
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    terms = {"accuracy": _accuracy(anchors, positives, candidates, known, similarity)}
    mask = known
    if false_negative_margin is not None:
        below = below_positive_row_mask(
            anchors, positives, candidates, margin=false_negative_margin, similarity=similarity
        )

        def own_or_below(rows: Tensor) -> Tensor:
            found = below(rows)
            return found if negatives is None else found.scatter(1, len(anchors) + rows[:, None], value=True)

        mask = all_row_masks(known, own_or_below)
        terms["left_out"] = masked_fraction(mask, known, len(anchors), len(candidates), device=anchors.device)
    per_anchor = info_nce(
        anchors,
        positives,
        negatives,
        temperature=temperature,
        hard_negative_weight=hard_negative_weight,
        similarity=similarity,
        mask=mask,
    )
    return Loss(per_anchor.mean(), terms)


def _accuracy(
    anchors: Float[Tensor, "batch dim"],
    positives: Float[Tensor, "batch dim"],
    candidates: Float[Tensor, "candidates dim"],
    known: RowMask,
    similarity: Similarity,
) -> Tensor:
    """The share of anchors with no negative nearer than the positive, none left out for its similarity."""
    below = below_positive_row_mask(anchors, positives, candidates, margin=0.0, similarity=similarity)
    blocks = row_blocks(len(anchors), len(candidates), device=anchors.device)
    return torch.cat([(below(rows) | ~known(rows)).all(dim=1) for rows in blocks]).float().mean()


def _projected(head: nn.Module | None, representations: Float[Tensor, "items dim"]) -> Float[Tensor, "items dim"]:
    return representations if head is None else head(representations)


def _require_negatives(name: str, batches: TextBatches) -> None:
    """Refuse what can never give an anchor a negative. A row of one text is its own positive."""
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
            f"{batches.texts[0][-1]!r} to {batches.texts[0][0]!r}, so there is nothing to push away; bring rows of "
            "other texts too"
        )


def _check(*, temperature: float, similarity: Similarity, false_negative_margin: float | None) -> None:
    """Refuse settings now, not with the first batch."""
    if false_negative_margin is not None and not 0 <= false_negative_margin < math.inf:
        raise NearfarError(f"--false-negative-margin must be 0 or more, not {false_negative_margin}")
    info_nce(torch.eye(2), torch.eye(2), temperature=temperature, similarity=similarity)


def _describe_margin(false_negative_margin: float | None) -> list[str]:
    if false_negative_margin is None:
        return []
    margin = "" if false_negative_margin == 0 else f" by over {false_negative_margin:g}"
    return [f"at each step, texts of other rows more similar to the anchor than its positive{margin} are left out"]
