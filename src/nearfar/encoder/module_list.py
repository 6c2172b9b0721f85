"""Reads and checks modules.json of a sentence-transformers folder, and the settings of its modules.

Only sentence-transformers' own module classes are loaded, and only from inside the folder.
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from nearfar.encoder.folder_checks import check_links, printable, quoted, read_json, read_object
from nearfar.encoder.pooling import mean_of_layers
from nearfar.encoder.pretrained import load_module, opening
from nearfar.encoder.prompts import PROMPTS_FILE
from nearfar.encoder.weights import check_weights, weight_file
from nearfar.types import NearfarError

AFTER_POOLING = ("Dense", "LayerNorm", "Dropout", "Normalize")
POOLING = ("Pooling", "WordWeights", "WeightedLayerPooling")
STATIC = "StaticEmbedding"
FIRST = ("Transformer", STATIC)
ROUTED = ("Router", "Asym")
"""Modules that send queries and documents to different encoders."""
OWN = re.compile(r"sentence_transformers\.(?:\w+\.)*(\w+)")
"""The full name of a class of sentence-transformers, in any version."""
EMBEDDING = "sentence_embedding"
WEIGHTED = {"Dense": ("linear.weight", ("out_features", "in_features")), "LayerNorm": ("norm.weight", ("dimension",))}
"""Module with weights -> its main weight tensor, and the settings that give its shape."""


def modules_of(folder: Path) -> list[tuple[str, str]]:
    """Kind and path of each module, the Transformer or StaticEmbedding first.

    Raises:
        NearfarError: the list is missing or damaged, starts with another module, or names a module that nearfar
            does not support or that is outside the folder.
    """
    check_links(folder, folder)
    listing = folder / "modules.json"
    if not listing.exists():
        others = [*folder.glob(PROMPTS_FILE), *folder.glob("*_Pooling")]
        if others:
            raise NearfarError(
                f"{folder}: holds {others[0].name} but no modules.json, which lists the modules after the "
                "transformer; copy the whole model folder again."
            )
        return [("Transformer", "")]
    entries = read_json(listing)
    if not isinstance(entries, list):
        raise NearfarError(f"{listing}: must hold a list of modules.")
    modules = [_parse_module(listing, number, entry) for number, entry in enumerate(entries)]
    if routed := [kind for kind, _ in modules if kind in ROUTED]:
        raise NearfarError(
            f"{listing}: has a module {quoted(routed[0])}, which encodes queries and documents by different modules; "
            "nearfar trains encoders that encode both by the same ones, with or without prompts."
        )
    if not modules or modules[0][0] not in FIRST:
        raise NearfarError(
            f"{listing}: does not start with a Transformer or a StaticEmbedding, so it is no encoder that nearfar can "
            "train."
        )
    following = AFTER_POOLING if modules[0][0] == STATIC else (*POOLING, *AFTER_POOLING)
    unknown = [kind for kind, _ in modules[1:] if kind not in following]
    if unknown:
        raise NearfarError(f"{listing}: has a module {quoted(unknown[0])}, which nearfar does not support.")
    for _, path in modules:
        check_links(folder / path, folder)
    return modules


def _parse_module(listing: Path, number: int, entry: Any) -> tuple[str, str]:
    kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(path, str):
        raise NearfarError(f"{listing}: entry {number} (counted from 0) must have a type and a path, both strings.")
    if (own := OWN.fullmatch(kind)) is None:
        raise NearfarError(
            f"{listing}: names the class {quoted(kind)}, which is not a module of sentence-transformers; nearfar never "
            "runs code from a model folder."
        )
    outside = PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or ".." in re.split(r"[/\\]", path)
    if outside or "\0" in path:
        raise NearfarError(f"{listing}: the path {quoted(path)} of {own[1]} points outside the model folder.")
    return own[1], path


def tail_module(kind: str, folder: Path) -> nn.Module:
    """Load a module that follows pooling.

    Raises:
        NearfarError: as :func:`check_settings`; or the module's weights are missing, damaged, or of other sizes than
            its settings say.
    """
    settings = check_settings(kind, folder)
    if kind in WEIGHTED:
        weight, names = WEIGHTED[kind]
        shape, expected = check_weights(folder).get(weight), tuple(settings.get(name) for name in names)
        if shape != expected:
            sizes = " and ".join(f"{name} {quoted(settings.get(name))}" for name in names)
            raise NearfarError(
                f"{folder / 'config.json'}: has {sizes}, but {weight} in {weight_file(folder).name} has the shape "
                f"{shape}."
            )
    with opening(folder / "config.json"):
        return load_module(kind, folder)


def check_settings(kind: str, folder: Path) -> dict[str, Any]:
    """Read and check the settings of a module that follows pooling.

    Raises:
        NearfarError: the file is missing or damaged, or nearfar does not support a setting.
    """
    file = folder / "config.json"
    settings = read_object(file) if kind != "Normalize" or file.exists() else {}
    input_name, output_name = (settings.get(f"module_{side}_name") or EMBEDDING for side in ("input", "output"))
    if (input_name, output_name) != (EMBEDDING, EMBEDDING):
        raise NearfarError(
            f"{file}: the {kind} module reads {quoted(input_name)} and writes {quoted(output_name)}; "
            f"nearfar supports only {EMBEDDING!r}."
        )
    activation = settings.get("activation_function")
    if activation is not None and not _is_torch_module(activation):
        raise NearfarError(
            f"{file}: activation_function is {quoted(activation)}, and must name a module class of torch.nn."
        )
    return settings


def _is_torch_module(activation: object) -> bool:
    """Whether ``activation`` is the full name of a module class of torch.nn."""
    name = str(activation).rsplit(".", 1)[-1]
    found = getattr(nn, name, None)
    return isinstance(found, type) and activation in (f"{found.__module__}.{name}", f"torch.nn.{name}")


def check_tail(folder: Path, width: int, tail: Sequence[nn.Module]) -> None:
    """Run the modules after pooling once, on ``width`` zeros, to check that their widths match.

    Raises:
        NearfarError: a module fails, or its output has another width than its settings say.
    """
    embedding = torch.zeros(1, width)
    for number, module in enumerate(tail, start=1):
        with opening(folder / "modules.json"), torch.no_grad():
            embedding = module.eval()({EMBEDDING: embedding})[EMBEDDING]
            width = getattr(module, "out_features", width)
            if embedding.shape != (1, width):
                raise NearfarError(
                    f"{folder / 'modules.json'}: module {number} after pooling, {type(module).__name__}, should give "
                    f"{width} dimensions, but gives the shape {list(embedding.shape[1:])}."
                )


def pooling_name(folder: Path, modules: Sequence[tuple[str, str]], *, cls_token: str | None) -> str:
    """The name in nearfar of the pooling of these modules; ``cls_token`` is the tokenizer's.

    Raises:
        NearfarError: nearfar does not support this pooling, or a module's files are damaged.
    """
    paths = {kind: folder / path for kind, path in modules}
    if "Pooling" not in paths:
        raise NearfarError(f"{folder / 'modules.json'}: has no Pooling module; choose a pooling with --pooling.")
    file = paths["Pooling"] / "config.json"
    settings = read_object(file)
    legacy = {
        key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens"): value
        for key, value in settings.items()
        if key.startswith("pooling_mode_")
    }
    mode = settings.get("pooling_mode") or [name for name, on in legacy.items() if on]
    mode = mode[0] if isinstance(mode, list) and len(mode) == 1 else mode
    if not mode:
        raise NearfarError(f"{file}: names no pooling mode; choose one with --pooling.")
    if mode not in ("cls", "mean", "max"):
        raise NearfarError(
            f"{file}: pools by {printable(str(mode))}, which nearfar does not support; choose another with --pooling."
        )
    if "WordWeights" in paths:
        file = paths["WordWeights"] / "config.json"
        weighted = read_object(file)
        only_cls = weighted.get("word_weights") == {cls_token: 0} and weighted.get("unknown_word_weight", 1) == 1
        if mode != "mean" or not only_cls:
            raise NearfarError(f"{file}: weights single words, which nearfar does not support.")
        mode = "mean_without_cls"
    if "WeightedLayerPooling" in paths:
        return _layer_pooling_name(paths["WeightedLayerPooling"], mode)
    return str(mode)


def includes_prompt(folder: Path, modules: Sequence[tuple[str, str]]) -> bool:
    """Whether the Pooling module, if there is one, includes the tokens of a prompt.

    Raises:
        NearfarError: the setting is not true or false.
    """
    path = dict(modules).get("Pooling")
    file = folder / (path or "") / "config.json"
    included = True if path is None else read_object(file).get("include_prompt", True)
    if not isinstance(included, bool):
        raise NearfarError(f"{file}: include_prompt is {quoted(included)}, and must be true or false.")
    return included


def _layer_pooling_name(folder: Path, tokens: str) -> str:
    file = folder / "config.json"
    settings = read_object(file)
    start, layers = (settings.get(name) for name in ("layer_start", "num_hidden_layers"))
    if type(start) is not int or type(layers) is not int:
        raise NearfarError(f"{file}: layer_start and num_hidden_layers must be integers.")
    with opening(folder / "model.safetensors"):
        weights = load_file(folder / "model.safetensors")["layer_weights"]
    chosen = [int(layer) + start for layer in weights.nonzero().flatten()]
    if len(chosen) == 1:
        return f"layer:{chosen[0]}" if tokens == "mean" else f"layer:{chosen[0]}:{tokens}"
    name = mean_of_layers(chosen, layers=layers)
    if name is not None and tokens == "mean" and weights.max() == weights.sum() / 2:
        return name
    raise NearfarError(
        f"{folder}: weights the layers in a way that nearfar does not support; choose a pooling with --pooling."
    )
