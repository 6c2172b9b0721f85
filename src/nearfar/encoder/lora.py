"""LoRA: train low-rank adapters instead of the encoder's own weights, then merge them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from nearfar.encoder.ragged import transformer_layers
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


def add_lora(encoder: "Encoder", *, rank: int, alpha: float, dropout: float = 0.0) -> Callable[[], None]:
    """Add adapters to all linear layers inside the transformer layers, and freeze the rest of the backbone.

    W x becomes W x + (alpha / rank) B A dropout(x), A [rank, in], B [out, rank] (Hu et al. 2022, section 4.1). B is
    initialised to 0, so that embeddings do not change at first; A is drawn by torch's global generator. Modules after
    the pooling (Dense) stay trainable. peft changes the backbone in place.

    Returns:
        A function that merges the adapters into the weights. It restores the plain backbone, which can be saved as
        before, and makes the same parameters trainable again.

    Raises:
        NearfarError: peft is not installed; the rank is under 1; dropout is outside [0, 1); the encoder has adapters
            already.
    """
    if rank < 1:
        raise NearfarError(f"--lora-rank {rank}: must be 1 or more.")
    if not 0 <= dropout < 1:
        raise NearfarError(f"LoRA dropout {dropout}: must be in [0, 1).")
    try:
        from peft import LoraConfig, LoraModel
    except ImportError as error:
        raise NearfarError("LoRA needs the package peft: pip install nearfar[lora].") from error

    backbone = encoder.backbone
    if not backbone.config.num_hidden_layers:
        raise NearfarError("--lora-rank: a static encoder has no linear layers to adapt; train all of its vectors.")
    if hasattr(backbone, "peft_config"):
        raise NearfarError("this encoder has LoRA adapters already; merge them first.")
    inside = set(transformer_layers(backbone).modules())
    targets = [name for name, module in backbone.named_modules() if module in inside and isinstance(module, nn.Linear)]
    trainable = [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft only divides it by the rank
        lora_dropout=dropout,
        target_modules=targets,
        bias="none",
    )
    adapted = LoraModel(backbone, config, "default")
    encoder.train(encoder.training)  # new adapters are in training mode; set the encoder's mode

    def merge() -> None:
        adapted.merge_and_unload()
        if hasattr(backbone, "peft_config"):  # older versions of peft do not remove it
            del backbone.peft_config
        parameters = dict(backbone.named_parameters())
        for name in trainable:
            parameters[name].requires_grad_(True)

    return merge
