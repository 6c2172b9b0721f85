"""LoRA: train a few added weights instead of the encoder's own, then merge them in."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from nearfar.encoder.ragged import transformer_layers
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


def add_lora(encoder: "Encoder", *, rank: int, alpha: float, dropout: float = 0.0) -> Callable[[], None]:
    """Add adapters to all linear layers inside the transformer layers, and freeze the rest of the backbone.

    W x becomes W x + (alpha / rank) B A dropout(x), A [rank, in], B [out, rank] (Hu et al. 2022, section 4.1). B starts
    at 0, so that embeddings do not change; A is drawn by torch's global generator. What follows pooling (Dense) stays
    trainable. The backbone is changed in place, by peft.

    Returns:
        A function that adds the adapters' products to the weights. It leaves the plain backbone there was, which saves
        as before, with what was trainable trainable again.

    Raises:
        NearfarError: peft is not installed; a rank under 1; dropout outside [0, 1); adapters are there already.
    """
    if rank < 1:
        raise NearfarError(f"--lora-rank {rank}: takes 1 or more.")
    if not 0 <= dropout < 1:
        raise NearfarError(f"LoRA dropout {dropout}: takes 0 up to, but not, 1.")
    try:
        from peft import LoraConfig, LoraModel
    except ImportError as error:
        raise NearfarError("LoRA needs the package peft: pip install nearfar[lora].") from error

    backbone = encoder.backbone
    if hasattr(backbone, "peft_config"):
        raise NearfarError("this encoder has LoRA adapters already; merge them first.")
    inside = set(transformer_layers(backbone).modules())
    targets = [name for name, module in backbone.named_modules() if module in inside and isinstance(module, nn.Linear)]
    trained = [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # only ever divided by the rank
        lora_dropout=dropout,
        target_modules=targets,
        bias="none",
    )
    adapted = LoraModel(backbone, config, "default")
    encoder.train(encoder.training)  # the adapters' dropout starts in training mode, whatever the encoder's

    def merge() -> None:
        adapted.merge_and_unload()
        if hasattr(backbone, "peft_config"):  # peft's mark, which its older versions leave behind
            del backbone.peft_config
        parameters = dict(backbone.named_parameters())
        for name in trained:
            parameters[name].requires_grad_(True)

    return merge
