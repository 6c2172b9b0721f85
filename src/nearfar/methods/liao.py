"""Liao 2021, "Sentence Embeddings using Supervised Contrastive Learning" (arXiv 2106.04791): sbert, scl, augment.

Data: NLI rows (premise, hypothesis, label); SNLI train in the paper. A batch is 64 rows (section 4.2) in which, here,
all rows of a premise meet. Each distinct sentence is encoded once, so a premise has one dropout draw in a batch, while
the authors encode it again for each of its rows.

``sbert``, the baseline (eq. 1; Reimers & Gurevych 2019): embeddings u, v of premise and hypothesis, logits =
head([u; v; |u - v|]), and the loss is CE = the mean cross-entropy over the pairs.

``scl`` (eq. 2 and 3): (1 - scl_weight) CE + scl_weight SCL, where SCL is the mean over the anchors, the batch's
entailment pairs, of :func:`nearfar.objectives.premise_scl`. ``max_positives`` and ``max_negatives`` are the paper's
"3p3n", "3palln", "allpalln". Best on STS: all, all, weight 0.3, temperature 1.0 (Table 2); best on transfer: weight 0.1
(Table 3).

``augment`` (the paper's "3p3n-Augment", "allpalln-Augment"): no SCL, but its (anchor, positive) and (anchor, negative)
sets as further labelled pairs for CE.

The loop (section 4.2): 1 epoch at batch 64, warm-up over the first 10% of the steps. The learning rate, 2e-5, is the
code's; the paper's text does not give it.

Where paper, authors' code and this module differ:

================  ========================  =============================  ==============================
                  paper                     authors' code                  here
================  ========================  =============================  ==============================
row order         not given                 file order, not shuffled       premises shuffled; or ``file``
anchors           premises                  entailment rows                entailment rows
negatives         3 or all                  3 in early versions; all in    ``max_negatives`` is kept
                                            the last, whatever is set
false negatives   negatives                 negatives                      left out where texts are equal
no anchor         0 / 0                     0 / 0                          SCL counts as 0
augment's labels  not given                 not published                  see :func:`augmented_pairs`
pooling           mean without [CLS]        that, over the padded length;  the encoder's
                                            with padding in ``encode``
schedule          linear after warm-up      constant after warm-up         the loop's
optimiser         Adam                      AdamW                          the loop's
================  ========================  =============================  ==============================
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from nearfar.config.bounds import Cap, Fraction, Temperature
from nearfar.config.training import TrainConfig
from nearfar.methods.base import BuildContext, BuiltMethod, bibtex, describe_rows, repair_facts, require_different
from nearfar.methods.settings import MarginSettings, NliSettings
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, Loss, Method, MethodEntry, NearfarError

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from torch import Tensor

    from nearfar.data.batching import TextBatch, TextBatches
    from nearfar.data.rows import TextData

PAPER = bibtex("liao2021sentence")
SBERT_PAPER = bibtex("reimers2019sentence")


@dataclass(frozen=True, kw_only=True)
class SbertConfig(NliSettings, TrainConfig):
    """sbert: softmax cross-entropy over (u, v, |u - v|) on NLI rows (Reimers & Gurevych 2019, as run by Liao 2021)."""

    pooling: str | None = "mean_without_cls"
    """cls, mean, mean_without_cls (Liao 2021, section 3), max, first_last, embeddings_last, last_two, layer:K; 'own'
    for the model's own."""
    order: Literal["premise", "file", "rows"] = "premise"
    """premise: shuffled, all rows of a premise in one batch; file: not shuffled (the authors' code); rows: shuffled."""
    head_layers: Literal[1, 2] = 2
    """Linear layers of the classifier: 2 in Liao 2021 (3h, 3h/2, 3; no activation between), 1 in SBERT."""


@dataclass(frozen=True, kw_only=True)
class SclConfig(MarginSettings, SbertConfig):
    """scl: (1 - lambda) cross-entropy + lambda premise-anchored supervised contrastive loss (Liao 2021, eq. 2, 3)."""

    scl_weight: Fraction = 0.3
    """Lambda, the weight of the contrastive loss: best on STS 0.3, on transfer tasks 0.1 (Liao 2021, tables 2, 3)."""
    temperature: Temperature = 1.0
    """Divides the similarities (Liao 2021, section 4.4); with cosine, 0.05 is usual."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Dot product, as in the authors' code, or cosine."""
    hard_negatives: Literal["all", "contradiction", "none"] = "all"
    """Negatives with the anchor's own premise: all not entailed (the paper), contradictions only, or none."""
    max_positives: Cap = "all"
    """Maximum number of positives of an anchor, the entailed hypotheses of its premise; or all."""
    max_negatives: Cap = "all"
    """Maximum number of negatives of an anchor, other hypotheses of the batch; or all."""


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(SbertConfig):
    """augment: cross-entropy with the pairs of scl as extra rows (3p3n- and allpalln-Augment of Liao 2021)."""

    max_positives: Cap = 3
    """Maximum number of positives of an anchor, the entailed hypotheses of its premise; or all (allpalln)."""
    max_negatives: Cap = 3
    """Maximum number of negatives of an anchor, other hypotheses of the batch; or all (allpalln)."""


Contrasting: TypeAlias = SclConfig | AugmentConfig
"""Settings of the methods with positives and negatives."""


# --- NLI rows and their batches ---


class Pairs(NamedTuple):
    """Labelled pairs of a batch's sentences, as indices of these; equal indices are equal texts."""

    premises: 'Int[Tensor, " pairs"]'
    hypotheses: 'Int[Tensor, " pairs"]'
    labels: 'Int[Tensor, " pairs"]'

    @classmethod
    def of(cls, batch: "TextBatch") -> "Pairs":
        """The pairs of a batch as tensors on the CPU."""
        import torch

        return cls(*torch.tensor([*batch.columns, batch.targets]))

    def to(self, device: "torch.device") -> "Pairs":
        """The same pairs on ``device``."""
        import torch

        from nearfar.objectives import to_device

        return Pairs(*to_device(torch.stack(self), device))

    def labelled(self, label: int) -> 'tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]':
        """Premises and hypotheses of the pairs with this label."""
        chosen = self.labels == label
        return self.premises[chosen], self.hypotheses[chosen]


def read_nli(config: Any) -> "TextData":
    """The NLI rows of a config with :class:`nearfar.methods.settings.NliSettings`."""
    from nearfar.data.rows import load_nli

    columns = (config.premise_column, config.hypothesis_column, config.label_column)
    return load_nli(config.data, columns=columns)


def batch_nli(
    config: TrainConfig, context: BuildContext, data: "TextData", **settings: Any
) -> tuple["TextBatches", list[str]]:
    """Tokenize the texts and batch their rows, by premises if ``settings`` of the batches do not say otherwise.

    Returns the batches, and in words sources, number and labels of the rows and what their batches do with them.
    """
    from nearfar.data.batching import TextBatches

    rows = data.rows[: config.limit]
    texts, labels = [row[:2] for row in rows], [row.label for row in rows]
    context.encoder.read(context.roles.rows(texts))
    settings = {"order": "premise", "min_batch_size": 1, **settings}
    batches = TextBatches(texts, context.batch_size, config.seed, labels, **settings)
    tally = Counter(row.label for row in data.rows)
    counts = ", ".join(f"{tally[label]:,} {name}" for label, name in enumerate(LABEL_NAMES))
    facts = [*data.sources, f"{len(data.rows):,} rows: {counts}", f"{len(batches.premises):,} premises"]
    if len(rows) < len(data.rows):
        facts.append(f"the first {len(rows):,} rows are used")
    facts += repair_facts(data.repaired)
    return batches, facts


def require_anchors(batches: "TextBatches") -> None:
    """Refuse rows without an entailment, or with a single premise."""
    if ENTAILMENT not in (batches.targets or ()):
        raise NearfarError(
            f"none of the {len(batches.texts)} rows is an entailment, so there is nothing to pull a premise towards; "
            "add entailments (are the labels in the right order?)"
        )
    require_different((premise for premise, _ in batches.texts), "premise")


# --- the methods ---


def build(config: SbertConfig, context: BuildContext, data: "TextData") -> BuiltMethod:
    """Build sbert, scl or augment: (1 - scl_weight) CE + scl_weight SCL, for all but scl with a weight of 0.

    Premises are encoded as queries, hypotheses as documents. SCL of a batch without an entailment is 0; with
    ``scl_weight=1`` there is no CE and no head. Positives and negatives beyond their maximum number are left out at
    random, with torch's global generator.

    Terms: ``scl`` of scl; ``ce`` and, over the batch's own rows, ``accuracy`` of the head if there is one. CE of
    augment is over the batch's rows and the pairs that :func:`augmented_pairs` adds.

    Raises:
        NearfarError: for all rows with the same premise and hypothesis; for scl and augment no entailment, or a single
            premise; for sbert and scl a single label, if CE has a weight.
    """
    import torch

    from nearfar.encoder.heads import SoftmaxHead
    from nearfar.objectives import nli_softmax, nli_softmax_features, premise_scl

    batches, facts = batch_nli(config, context, data, order=config.order)
    roles, scl_weight = context.roles, config.scl_weight if isinstance(config, SclConfig) else 0.0
    require_different(batches.texts, "premise and hypothesis")
    if isinstance(config, Contrasting):
        require_anchors(batches)
    if scl_weight < 1 and not isinstance(config, AugmentConfig):
        require_different([LABEL_NAMES[int(label)] for label in batches.targets or ()], "label")
    head = SoftmaxHead(context.encoder.encoder.dim, layers=config.head_layers) if scl_weight < 1 else None

    def loss_fn(batch: "TextBatch", embeddings: "Tensor") -> Loss:
        queries, documents = roles.split(embeddings, batch)
        own = labelled = Pairs.of(batch)
        if isinstance(config, AugmentConfig):
            labelled = Pairs(*map(torch.cat, zip(own, augmented_pairs(own, **_caps(config)), strict=True)))
        pairs, total, terms = labelled.to(embeddings.device), embeddings.new_zeros(()), {}
        if isinstance(config, SclConfig):
            per_anchor = premise_scl(
                queries[pairs.premises],
                documents[pairs.hypotheses],
                own.premises,
                own.labels,
                temperature=config.temperature,
                similarity=config.similarity,
                hard_negatives=config.hard_negatives,
                hypothesis_ids=own.hypotheses,
                false_negative_margin=config.false_negative_margin,
                **_caps(config),
            )
            scl = per_anchor.sum() / max(len(per_anchor), 1)  # 0, not 0 / 0, without an anchor
            total, terms["scl"] = scl_weight * scl, scl.detach()
        if head is not None:
            logits = head(nli_softmax_features(queries[pairs.premises], documents[pairs.hypotheses]))
            ce = nli_softmax(logits, pairs.labels).mean()
            right = (logits.argmax(dim=1) == pairs.labels).float()
            total = (1 - scl_weight) * ce + total
            terms |= {"ce": ce.detach(), "accuracy": right[: len(own.labels)].mean()}
        return Loss(total, terms)

    name = "scl" if isinstance(config, SclConfig) else "augment" if isinstance(config, AugmentConfig) else "sbert"
    method = Method(name, batches, roles.items, context.encoder.embed, loss_fn, describe_pairs, head)
    return BuiltMethod(method, facts)


def _caps(config: Contrasting) -> dict[str, Any]:
    caps = {"max_positives": config.max_positives, "max_negatives": config.max_negatives}
    return {name: None if cap == "all" else cap for name, cap in caps.items()}


def augmented_pairs(pairs: Pairs, **caps: Any) -> Pairs:
    """Turn the positives and negatives of every anchor, capped as in SCL, into further labelled pairs.

    ``caps`` are ``max_positives`` and ``max_negatives``, None for all.

    An anchor's positives but its own hypothesis become entailment pairs. They are rows of the batch already, as
    positives share the anchor's premise, and so count once more; that is all that more positives can do for CE.
    Negatives from other premises become contradiction pairs: the paper does not say what label they get, but SNLI's
    annotators were to take two captions as being of the same photo (Bowman et al. 2015, section 2.1), of which an
    unrelated one is false. The premise's own neutral and contradicted hypotheses, if drawn, are not added again.
    """
    import torch

    from nearfar.objectives import premise_sets

    sets = premise_sets(pairs.premises, pairs.labels, hypothesis_ids=pairs.hypotheses, **caps)
    positives, negatives = sets.positives[:], sets.negatives[:]
    own = sets.anchors[:, None] == torch.arange(len(pairs.labels))
    elsewhere = pairs.premises[sets.anchors, None] != pairs.premises
    anchors, added = ((positives & ~own) | (negatives & elsewhere)).nonzero(as_tuple=True)
    labels = torch.where(positives[anchors, added], ENTAILMENT, CONTRADICTION)
    return Pairs(pairs.premises[sets.anchors[anchors]], pairs.hypotheses[added], labels)


def describe_pairs(batch: "TextBatch") -> list[str]:
    """Each premise, and below it its labelled hypotheses."""
    return describe_rows(batch, lambda label: ("premise", LABEL_NAMES[int(label)]))


METHODS = {
    "sbert": MethodEntry(
        config=SbertConfig, read_rows=read_nli, build=build, min_rows=1, papers=(SBERT_PAPER, PAPER), by_role=True
    ),
    "scl": MethodEntry(config=SclConfig, read_rows=read_nli, build=build, min_rows=1, papers=(PAPER,), by_role=True),
    "augment": MethodEntry(
        config=AugmentConfig, read_rows=read_nli, build=build, min_rows=1, papers=(PAPER,), by_role=True
    ),
}
