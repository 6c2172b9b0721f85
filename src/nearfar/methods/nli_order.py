"""nli-order: contrast of premises with all entailed hypotheses, and the order of the labels of NLI rows.

A batch is premises with all their rows. Two losses are added:

- InfoNCE. An anchor is a premise with an entailed hypothesis. Each of its entailed hypotheses is a positive, and the
  loss of the anchor is the mean over them (as L_out of Khosla et al. 2020, eq. 2, but without the anchor's other
  positives in the denominator). Candidates are the entailed and the contradicted hypotheses of the whole batch.
  Neutral hypotheses are no candidates.
- Order, with weight ``order_weight``: of two hypotheses with different labels, the one with the higher label
  (entailment above neutral above contradiction) shall be more similar to its premise. ``within-premise`` is the mean of
  :func:`nearfar.objectives.ranknet` over the comparisons of hypotheses of the same premise, ``batch`` is
  :func:`nearfar.objectives.cosent` over all pairs of the batch. With ``order_unrelated`` these are also the pairs of a
  premise with a hypothesis of another premise, which rank below contradiction.

Both use the same vectors: each distinct text is encoded once.

The method is nearfar's own, so its defaults have no paper.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nearfar.config.bounds import Count, Temperature, Weight
from nearfar.methods.base import BuildContext, BuiltMethod, bibtex, judged, open_guide
from nearfar.methods.liao import Pairs, batch_nli, describe_pairs, read_nli, require_anchors
from nearfar.methods.settings import DirectionSettings, InfoNceSettings, NliSettings
from nearfar.methods.simcse import contrastive_loss
from nearfar.types import CONTRADICTION, ENTAILMENT, NEUTRAL, Loss, Method, MethodEntry

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from nearfar.data.batching import TextBatch
    from nearfar.data.rows import TextData

PAPERS = (bibtex("khosla2020supervised"), bibtex("burges2005learning"))


@dataclass(frozen=True, kw_only=True)
class NliOrderConfig(DirectionSettings, NliSettings, InfoNceSettings):
    """nli-order: InfoNCE on NLI rows, and a loss that ranks entailment above neutral above contradiction."""

    batch_size: Count = 192
    """Rows in a batch per process, in SNLI about 64 premises; at most the number of rows."""
    distinct_texts: bool = True
    """No text of two premises in a batch, as far as possible: a premise that repeats one waits for a later batch.
    --no-distinct-texts: take the premises in a random order, whatever they repeat."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """cosine, or dot."""
    order_weight: Weight = 1.0
    """Weight of the order loss; 0 for InfoNCE alone. With ORDER_PAIRS batch, whose loss is a sum, start with 0.1."""
    order_pairs: Literal["within-premise", "batch"] = "within-premise"
    """Hypotheses that the order loss compares: those of the same premise, each pair for itself (RankNet), or all of the
    batch in one sum (CoSENT)."""
    order_temperature: Temperature = 0.05
    """Divides the similarities in the order loss."""
    order_margin: Weight = 0.0
    """Similarity by which a higher label has to exceed a lower one in the order loss."""
    order_unrelated: bool = False
    """With ORDER_PAIRS batch: rank the hypotheses of other premises below contradicted ones."""
    neutral: bool = True
    """Rank neutral hypotheses between entailed and contradicted ones. --no-neutral: leave them out."""

    needs = (("order_unrelated", "order_pairs batch"),)


def build(config: NliOrderConfig, context: BuildContext, data: "TextData") -> BuiltMethod:
    """Build InfoNCE + order_weight * order. Both losses are 0 in a batch without an anchor or a comparison.

    Premises are encoded as queries, hypotheses as documents.

    A candidate is left out for an anchor if its text is that of the premise, or a hypothesis that the premise entails
    or is neutral to. A text that occurs several times in the batch is one candidate. ``false_negative_margin`` also
    leaves out candidates of other premises that are more similar to the premise than the positive by more than the
    margin. ``directions`` are those of :func:`nearfar.objectives.info_nce_directions`.

    Terms: ``info_nce``; ``order`` if it has a weight; ``accuracy``, the share of positives without a more similar
    negative; with a margin ``left_out``, the share of negatives that it leaves out.

    Raises:
        NearfarError: no row is an entailment, or all rows have the same premise.
    """
    import torch

    from nearfar.objectives import RowMask, direction_masks, not_known_positive, to_device

    batches, facts = batch_nli(config, context, data, distinct_texts=config.distinct_texts)
    roles = context.roles
    require_anchors(batches)
    guide = open_guide(config.guide, config, context, data)

    def loss_fn(batch: "TextBatch", embeddings: "Tensor") -> Loss:
        pairs, device = Pairs.of(batch), embeddings.device
        queries, documents = roles.split(embeddings, batch)
        (anchors, positives), (owners, negatives) = (pairs.labelled(label) for label in (ENTAILMENT, CONTRADICTION))
        candidates = torch.cat([positives, negatives])
        texts = anchors, positives, negatives
        near = pairs.labelled(NEUTRAL)
        masks = direction_masks(config.directions, *texts, owners=owners, near=near, distinct=True)

        def contradicted(rows: slice) -> "Tensor":
            """Where a candidate's text is a contradicted hypothesis of the row's premise, or the premise itself."""
            known = torch.cat([anchors, owners]), torch.cat([anchors, negatives])
            return ~not_known_positive(*known, candidates)[rows]

        ids = [to_device(column, device) for column in texts]
        losses, terms = contrastive_loss(
            config,
            queries[ids[0]],
            documents[ids[1]],
            documents[ids[2]],
            masks=masks.to(device),
            own_negatives=RowMask(contradicted, (len(anchors), len(candidates))).to(device),
            judged=judged(guide, batch, ids),
        )
        _, anchor, counts = anchors.unique(return_inverse=True, return_counts=True)
        contrast = (losses / to_device(counts[anchor], device)).sum() / max(len(counts), 1)
        terms = {"info_nce": contrast.detach(), **terms}
        if not config.order_weight:
            return Loss(contrast, terms)
        ranked = pairs if config.neutral else Pairs(*(column[pairs.labels != NEUTRAL] for column in pairs))
        order = _order(config, queries, documents, ranked)
        return Loss(contrast + config.order_weight * order, {**terms, "order": order.detach()})

    method = Method("nli-order", batches, roles.items, context.encoder.embed, loss_fn, describe_pairs)
    return BuiltMethod(method, facts, teachers=() if guide is None else (guide,))


def _order(
    config: NliOrderConfig, queries: 'Float[Tensor, "texts dim"]', documents: 'Float[Tensor, "texts dim"]', pairs: Pairs
) -> 'Float[Tensor, ""]':
    """How far the similarities of the pairs are from the order of their labels; 0 if there is nothing to compare."""
    import torch

    from nearfar.objectives import cosent, ranknet, row_similarities, similarities, to_device

    premise, hypothesis = to_device(torch.stack([pairs.premises, pairs.hypotheses]), queries.device)
    scores = row_similarities(queries[premise], documents[hypothesis], config.similarity)
    ranks, settings = -pairs.labels, {"temperature": config.order_temperature, "margin": config.order_margin}
    if config.order_pairs == "within-premise":
        losses = ranknet(scores, ranks, pairs.premises, **settings)
        return losses.sum() / max(len(losses), 1)
    if config.order_unrelated:
        premises, hypotheses = pairs.premises.unique(), pairs.hypotheses.unique()
        unrelated = premises[:, None] != hypotheses  # different texts and no pair of the batch, whatever its label
        paired = torch.searchsorted(premises, pairs.premises), torch.searchsorted(hypotheses, pairs.hypotheses)
        unrelated[paired] = False
        one, other = to_device(unrelated.nonzero().T.contiguous(), queries.device)
        others = similarities(
            queries[to_device(premises, queries.device)],
            documents[to_device(hypotheses, queries.device)],
            config.similarity,
        )[one, other]
        scores = torch.cat([scores, others])
        ranks = torch.cat([ranks, ranks.new_full(others.shape, -CONTRADICTION - 1)])
    return cosent(scores, to_device(ranks, scores.device), **settings)


METHODS = {
    "nli-order": MethodEntry(
        config=NliOrderConfig, read_rows=read_nli, build=build, min_rows=1, papers=PAPERS, by_role=True
    )
}
