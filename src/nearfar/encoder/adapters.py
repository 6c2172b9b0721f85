"""LoRA adapters of peft: added for training, saved beside the model or merged into it, and read from a folder.

A weight W [out, in] of a linear layer becomes

    W + s B A,   A [r, in], B [out, r],   s = alpha / r, or alpha / sqrt(r) where the adapter says ``use_rslora``

(Hu et al. 2022, section 4.1; Kalajdzievski 2023). A folder of peft holds A and B in ``adapter_model.safetensors`` and
their settings in ``adapter_config.json``, which names the base: a folder, or a model on the hub. It is opened with the
adapter merged into the base, without peft, so that no setting of the folder reaches code.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearfar.encoder.folder_checks import ADAPTER, read_object
from nearfar.encoder.pretrained import PreTrainedModel, load_model, opening, reason
from nearfar.encoder.ragged import transformer_layers
from nearfar.encoder.weights import locate, path_of, shapes_of
from nearfar.types import NearfarError
from nearfar.validation import convert, format_value

WEIGHTS, PREFIX = "adapter_model.safetensors", "base_model.model."
"""The file with the weights of an adapter, and what their names begin with."""
WITHOUT_EFFECT = (
    *("r", "rank_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),  # of A and B
    *("fan_in_fan_out", "task_type", "auto_mapping", "inference_mode", "peft_version", "megatron_core"),
    *("lora_dropout", "qalora_group_size", "ensure_weight_tying"),
)
"""Settings of LoRA that the weights of the adapter already say, or that change no vector."""


class AdapterSettings(Struct):
    """The settings in ``adapter_config.json`` that change vectors."""

    peft_type: str
    base_model_name_or_path: str
    lora_alpha: float
    bias: str = "none"
    use_rslora: bool = False
    init_lora_weights: bool | str = True


def read_adapter_settings(folder: Path) -> AdapterSettings:
    """The settings of the adapter in a folder.

    Raises:
        NearfarError: they are damaged, are not of LoRA, or include one that nearfar does not support.
    """
    file = folder / ADAPTER
    content = read_object(file)
    settings = convert(content, AdapterSettings, source=file)
    known = {*settings.__struct_fields__, *WITHOUT_EFFECT}
    plain = {"peft_type": ("LORA",), "bias": ("none",), "init_lora_weights": (True, False, "gaussian")}
    refused = [name for name, values in plain.items() if getattr(settings, name) not in values]
    refused += [name for name, value in content.items() if value and name not in known]
    if refused:
        problem = f"{refused[0]} is {format_value(content[refused[0]])}, and nearfar opens plain LoRA adapters alone"
        raise NearfarError(f"{file}: {problem}; merge the adapter into its model (by peft: merge_and_unload).")
    return settings


def add_lora(
    backbone: PreTrainedModel, *, rank: int, alpha: float, dropout: float = 0.0, base: str | None = None
) -> Callable[[], None]:
    """Add adapters to all linear layers inside the transformer layers, and freeze the rest of the backbone.

    W x becomes W x + (alpha / rank) B A dropout(x). B is initialised to 0, so that embeddings do not change at first; A
    is drawn by torch's global generator. Modules after the pooling (Dense) stay trainable. peft changes the backbone in
    place. Adapters that are not merged are saved alone, as those of ``base``: the folder of the transformer that the
    backbone was read from, or its name on the hub.

    Returns:
        A function that merges the adapters into the weights. It restores the plain backbone, which can be saved as
        before, and makes the same parameters trainable again.

    Raises:
        NearfarError: peft is not installed; the rank is under 1; dropout is outside [0, 1); the encoder has adapters
            already, or no linear layers, or peft does not support its architecture.
    """
    try:
        from peft import LoraConfig, LoraModel
    except ImportError as error:
        raise NearfarError("LoRA needs the package peft: pip install nearfar[lora].") from error
    from transformers.pytorch_utils import Conv1D

    if not backbone.config.num_hidden_layers:
        raise NearfarError("--lora-rank: a static encoder has no linear layers to adapt; train all of its vectors.")
    if hasattr(backbone, "peft_config"):
        raise NearfarError("this encoder has LoRA adapters already; merge them first.")
    inside = set(transformer_layers(backbone).modules())
    linear = {name: type(module) for name, module in backbone.named_modules() if module in inside}
    linear = {name: kind for name, kind in linear.items() if issubclass(kind, nn.Linear | Conv1D)}
    if not linear:
        raise NearfarError(f"--lora-rank: {type(backbone).__name__} has no linear layers to adapt.")
    trainable = [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft only divides it by the rank
        lora_dropout=dropout,
        target_modules=list(linear),
        fan_in_fan_out=Conv1D in linear.values(),  # the linear layers of GPT-2 have transposed weights
        bias="none",
        base_model_name_or_path=base,
    )
    try:
        adapted = LoraModel(backbone, config, "default")
    except ValueError as error:
        name = type(backbone).__name__
        raise NearfarError(f"--lora-rank: peft cannot adapt {name} ({reason(error)}).") from error
    backbone.train(backbone.training)  # new adapters are in training mode

    def merge() -> None:
        adapted.merge_and_unload()
        if hasattr(backbone, "peft_config"):  # older versions of peft do not remove it
            del backbone.peft_config
        parameters = dict(backbone.named_parameters())
        for name in trainable:
            parameters[name].requires_grad_(True)

    return merge


def base_name(model: str, folder: Path, transformer: Path) -> str:
    """What an adapter of ``model`` in ``folder`` names as its base: ``owner/name`` on the hub, else a path."""
    if path_of(model).is_dir() or transformer != folder:
        return str(transformer.resolve())
    return model if "/" in model else f"sentence-transformers/{model}"


def save_adapter(folder: Path, backbone: PreTrainedModel) -> None:
    """Write the adapters of a backbone alone, in peft's format.

    Raises:
        NearfarError: they were added to be merged.
    """
    from peft import get_peft_model_state_dict

    config: Any = cast(Any, backbone).peft_config["default"]
    if config.base_model_name_or_path is None:
        raise NearfarError(f"{folder}: merge the LoRA adapters into the encoder before saving it.")
    weights = get_peft_model_state_dict(backbone, adapter_name="default", save_embedding_layers=False)
    config.save_pretrained(folder)
    save_file({f"{PREFIX}{name}": weight.cpu() for name, weight in weights.items()}, folder / WEIGHTS)


def load_adapted(folder: Path) -> tuple[PreTrainedModel, Path]:
    """The base of the adapter in ``folder``, in float32, with the adapter merged into it; and the base's folder.

    Raises:
        NearfarError: as :func:`read_adapter_settings`; the base is not found; the weights of the adapter are missing,
            damaged, or do not fit the base.
    """
    settings, file = read_adapter_settings(folder), folder / WEIGHTS
    if not file.exists():
        raise NearfarError(f"{folder}: holds {ADAPTER} but no {WEIGHTS}; pickled weights are not opened.")
    shapes_of(file)
    try:
        base = locate(settings.base_model_name_or_path)
    except NearfarError as error:
        raise NearfarError(f"{folder / ADAPTER}: the model that the adapter belongs to is missing: {error}") from error
    backbone: PreTrainedModel = load_model(base)
    with opening(file):
        weights = load_file(file)
    while weights:
        name = next(iter(weights))
        stem, _, part = name.rpartition(".lora_")
        down, up = (weights.pop(f"{stem}.lora_{side}.weight", None) for side in "AB")
        target = _linear_layer(backbone, stem.removeprefix(PREFIX))
        if part not in ("A.weight", "B.weight") or down is None or up is None or target is None:
            raise NearfarError(f"{file}: {format_value(name)} belongs to no linear layer of {base}.")
        weight: Any = target.weight if isinstance(target, nn.Linear) else cast(Tensor, target.weight).T
        sizes = [*down.shape, *up.shape]
        if sizes != [rank := sizes[0], weight.shape[1], weight.shape[0], rank] or not rank:
            raise NearfarError(f"{file}: {format_value(stem)} has the sizes {sizes}, which do not fit {base}.")
        scale = settings.lora_alpha / (math.sqrt(rank) if settings.use_rslora else rank)
        weight.data += scale * (up.float() @ down.float())
    return backbone, base


def _linear_layer(backbone: PreTrainedModel, name: str) -> nn.Module | None:
    """The linear layer of this name, which may begin with the name of the backbone in a larger model."""
    from transformers.pytorch_utils import Conv1D

    modules = dict(backbone.named_modules())
    module = modules.get(name, modules.get(name.removeprefix(f"{backbone.base_model_prefix}.")))
    return module if isinstance(module, nn.Linear | Conv1D) else None
