"""What the methods on NLI rows share: reading and batching them, and the refusal of rows without a contrast."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.config.training import TrainConfig
from nearfar.methods.base import BuildContext, repair_facts
from nearfar.methods.describe import pluralize
from nearfar.methods.roles import Roles
from nearfar.types import ENTAILMENT, NearfarError

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from torch import Tensor

    from nearfar.data.batching import NliBatch, NliBatches
    from nearfar.data.nli import NliData
    from nearfar.encoder.training_encoder import TrainingText


class Pairs(NamedTuple):
    """Labelled pairs of a batch's sentences, as indices of these; equal indices are equal texts."""

    premises: 'Int[Tensor, " pairs"]'
    hypotheses: 'Int[Tensor, " pairs"]'
    labels: 'Int[Tensor, " pairs"]'

    @classmethod
    def of(cls, batch: "NliBatch", device: "torch.device | str" = "cpu") -> "Pairs":
        """The pairs of a batch as tensors."""
        import torch

        from nearfar.runtime.transfer import to_device

        return cls(*to_device(torch.tensor([batch.premises, batch.hypotheses, batch.labels]), device))

    def labelled(self, label: int) -> 'tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]':
        """Premises and hypotheses of the pairs with this label."""
        chosen = self.labels == label
        return self.premises[chosen], self.hypotheses[chosen]


def read_nli(config: Any) -> "NliData":
    """The NLI rows of a config with :class:`nearfar.methods.settings.NliColumns`."""
    from nearfar.data.nli import load_nli

    return load_nli(
        config.data,
        premise_column=config.premise_column,
        hypothesis_column=config.hypothesis_column,
        label_column=config.label_column,
    )


def batch_nli(config: TrainConfig, context: BuildContext, data: "NliData", roles: Roles, **order: Any) -> "NliBatches":
    """Tokenize the texts, and batch their rows; ``order`` are further arguments of the batches."""
    from nearfar.data.batching import NliBatches

    rows = data.rows[: config.limit]
    context.encoder.read(roles.rows([row[:2] for row in rows]))
    return NliBatches(rows, context.batch_size, config.seed, **order)


def nli_facts(loaded: "NliData", batches: "NliBatches") -> list[str]:
    """Sources, number and labels of NLI rows, and what their batches do with them, in words."""
    counts = ", ".join(f"{count:,} {label}" for label, count in loaded.counts.items())
    facts = [*loaded.sources, f"{len(loaded.rows):,} rows: {counts}", f"{len(batches.premises):,} premises"]
    if len(batches.rows) < len(loaded.rows):
        facts.append(f"the first {len(batches.rows):,} rows are used")
    facts += repair_facts(loaded.repaired)
    if batches.oversized:
        facts.append(f"{batches.oversized} premises have more rows than a batch, and make batches of their own")
    return facts


def items_by_role(roles: Roles, batch: "NliBatch") -> "Sequence[TrainingText]":
    """What is encoded for a batch: premises are queries, hypotheses documents."""
    return roles.items(batch.sentences, batch.premises, batch.hypotheses)


def vectors_by_role(roles: Roles, batch: "NliBatch", embeddings: "Tensor") -> "tuple[Tensor, Tensor]":
    """The embeddings of the batch's sentences as premises, and as hypotheses."""
    return roles.split(embeddings, batch.sentences, batch.premises, batch.hypotheses)


def describe_silent(batch: "NliBatch", anchors: int) -> list[str]:
    """A note on premises that are no anchors; none if all are."""
    silent = len(set(batch.premises)) - anchors
    if not silent:
        return []
    return [f"no anchor   {pluralize(silent, 'premise', 'premises')} without an entailed hypothesis in this batch"]


def require_anchors(batches: "NliBatches", *, otherwise: str = "") -> None:
    """Refuse rows without an entailment, or with a single premise; ``otherwise`` says what else one can do."""
    if all(row.label != ENTAILMENT for row in batches.rows):
        raise NearfarError(
            f"none of the {len(batches.rows)} rows is an entailment, so there is nothing to pull a premise towards; "
            f"add entailment rows (are the labels in the right order?){otherwise}"
        )
    if len(batches.premises) == 1:
        raise NearfarError(
            f"all {len(batches.rows)} rows have the same premise, {batches.rows[0].premise!r}, so there are no "
            f"hypotheses of other premises to push it away from; add rows of other premises{otherwise}"
        )
