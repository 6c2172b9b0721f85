"""Opens the models of an average, and checks that they differ in nothing but their weights."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.disk import SeenHashes
from nearfar.runs.records import RUN_INFO, read_run_info
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import torch

    from nearfar.encoder.encoder import Encoder

NOT_COMPARED = {
    *("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "id2label", "label2id"),
    *(
        "problem_type",
        "use_cache",
        "return_dict",
        "output_hidden_states",
        "output_attentions",
        "gradient_checkpointing",
    ),
}
"""Entries of config.json that change no embedding; nor do dropout probabilities."""


class Source(NamedTuple):
    """A model as it was named, and its folder."""

    name: str
    folder: Path


def locate_models(names: list[str]) -> list[Source]:
    """The folders of the models.

    Raises:
        NearfarError: fewer than two models, a model that is not found, or one that is given twice.
    """
    from nearfar.encoder.weights import locate

    if len(names) < 2:
        raise NearfarError("two models or more are needed for an average.")
    found: dict[Path, str] = {}
    for name in names:
        folder = locate(name).resolve()
        if folder in found:
            raise NearfarError(f"{name}: is the same model as {found[folder]}; give it once, with a higher --weights.")
        found[folder] = name
    return [Source(name, folder) for folder, name in found.items()]


def open_model(source: Source, *, device: str | None = None) -> "Encoder":
    """Open a sentence encoder.

    Raises:
        NearfarError: it is damaged, or an adapter or a classifier.
    """
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.encoder_folder import transformer_folder
    from nearfar.encoder.folder_checks import read_object

    inner = transformer_folder(source.folder)
    file = inner / "config.json"
    if not file.exists() and (inner / "adapter_config.json").exists():
        raise NearfarError(
            f"{source.name}: is an adapter without its model, and averages of adapters are not those of models; merge "
            "it into its model, and name the merged model."
        )
    kinds = read_object(file).get("architectures") if file.exists() else None
    if isinstance(kinds, list) and any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
        raise NearfarError(f"{source.name}: is a classifier; soup averages sentence encoders.")
    return Encoder.from_pretrained(source.folder, device=device)


def check_same(first: Source, encoder: "Encoder", other: Source, opened: "Encoder") -> None:
    """Check that two models differ in nothing but the values of their weights.

    Raises:
        NearfarError: something else differs; the message names it.
    """
    for what, value_of in ASPECTS.items():
        ours, theirs = value_of(encoder), value_of(opened)
        if ours != theirs:
            raise NearfarError(
                f"{other.name}: cannot be averaged with {first.name}: they have different {what}"
                f"{_difference(ours, theirs)}. All models must be trained from the same model, with the same settings "
                "of inference."
            )
    ours, theirs = encoder.state_dict(), opened.state_dict()
    for name in ours:
        if not ours[name].is_floating_point() and not ours[name].equal(theirs[name]):
            raise NearfarError(f"{other.name}: cannot be averaged with {first.name}: their {name} differ.")


def _architecture(encoder: "Encoder") -> dict[str, Any]:
    settings = encoder.backbone.config.to_dict()
    kept = {key: value for key, value in settings.items() if key not in NOT_COMPARED and "drop" not in key}
    return {"class": type(encoder.backbone).__name__, **kept}


def _tokenizer(encoder: "Encoder") -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    vocabulary = {"vocabulary": dict(sorted(encoder.tokenizer.get_vocab().items()))}
    return vocabulary | {key: value for key, value in settings.items() if key not in ("truncation", "padding")}


def _modules(encoder: "Encoder") -> list[tuple[str, Any]]:
    """The modules after the pooling and their settings."""
    return [(type(module).__name__, module.get_config_dict()) for module in encoder.tail]  # type: ignore[operator]


def _inference(encoder: "Encoder") -> dict[str, Any]:
    settings = encoder.inference_settings._replace(matryoshka=())._asdict()
    return settings | {"prompts": {name: text for name, text in settings["prompts"].items() if text}}


ASPECTS: Mapping[str, "Callable[[Encoder], Any]"] = {
    "architectures": _architecture,
    "tokenizers": _tokenizer,
    "poolings": lambda encoder: encoder.pooling,
    "modules after the pooling": _modules,
    "normalization": lambda encoder: encoder.normalizes,
    "prompts or similarities": _inference,
    "widths of --matryoshka": lambda encoder: encoder.matryoshka,
    "maximum lengths": lambda encoder: encoder.max_length,
    "shapes of weights": lambda encoder: {key: tuple(value.shape) for key, value in encoder.state_dict().items()},
}
"""What must be equal in all models of an average, by its name in messages."""


def _difference(ours: Any, theirs: Any) -> str:
    """The first difference of two values in words, if it is short."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
        shown = _difference(ours.get(key), theirs.get(key))
        return f": {key}{shown.replace(':', '', 1) if shown else ''}"
    return f": {ours} and {theirs}" if len(str(ours)) + len(str(theirs)) < 120 else ""


def start_of(source: Source) -> str | None:
    """The fingerprint of the model that a run started from; None for a folder that is not in a run folder."""
    for folder in (Path(source.name), source.folder.parent):
        if (folder / RUN_INFO).is_file():
            inputs = read_run_info(folder).get("inputs")
            named = inputs.items() if isinstance(inputs, dict) else ()
            return next((str(value) for key, value in named if key.startswith("--model ")), None)
    return None


class WeightSum:
    """A sum of state dicts in float64."""

    def __init__(self) -> None:
        self.total = 0.0
        """Sum of the weights of the models."""
        self._sums: dict[str, torch.Tensor] = {}

    def plus(self, encoder: "Encoder", weight: float = 1.0) -> "WeightSum":
        """A new sum with ``weight`` times the encoder's weights added."""
        import torch

        found = WeightSum()
        found.total = self.total + weight
        for name, tensor in encoder.state_dict().items():
            if tensor.is_floating_point():
                addend = weight * tensor.to("cpu", torch.float64)  # some devices have no float64
                found._sums[name] = self._sums[name] + addend if self._sums else addend
        return found

    def copy_mean_to(self, encoder: "Encoder") -> None:
        """Replace the encoder's weights by the weighted mean; weights that are no floating-point numbers stay."""
        for name, tensor in encoder.state_dict().items():
            if name in self._sums:
                tensor.copy_(self._sums[name] / self.total)


def merged_hashes(encoders: Mapping[str, SeenHashes | None]) -> tuple[SeenHashes | None, list[str]]:
    """The union of the hashes of several models by name, and the names of the models without hashes.

    The union is None if no model has any.
    """
    union: SeenHashes | None = None
    unknown = []
    for name, seen in encoders.items():
        if seen is None:
            unknown.append(name)
        else:
            union = seen if union is None else union.union(seen)
    return union, unknown
