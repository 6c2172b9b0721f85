"""nli-order: its settings. The method is nearfar's own, so its defaults have no paper."""

from dataclasses import dataclass
from typing import Literal

from nearfar.config.bounds import Count, File, Temperature, Weight
from nearfar.methods.settings import DirectionSettings, NliColumns
from nearfar.methods.simcse import InfoNceSettings
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class NliOrderConfig(DirectionSettings, NliColumns, InfoNceSettings):
    """nli-order: InfoNCE on NLI rows, and a loss that ranks entailment above neutral above contradiction."""

    data: tuple[File, ...] = ("snli",)
    """NLI rows: snli, mnli, snli+mnli, snli:dev+test, microworld, or files; several are joined."""
    batch_size: Count = 192
    """Rows in a batch per process, in SNLI about 64 premises; the default shrinks to the number of rows."""
    distinct_texts: bool = True
    """No text of two premises in a batch, as far as possible: a premise that repeats one waits for a later batch."""
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
    """Rank neutral hypotheses between entailed and contradicted ones; without, they are not used."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude each other."""
        super().__post_init__()
        if self.order_unrelated and self.order_pairs != "batch":
            raise NearfarError(
                f"--order-unrelated and --order-pairs {self.order_pairs}: hypotheses of other premises are ranked with "
                "--order-pairs batch only."
            )
