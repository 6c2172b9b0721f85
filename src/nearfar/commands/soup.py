"""``nearfar soup``: averages the weights of models into one model."""

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import SoupConfig
from nearfar.disk.checks import path_errors
from nearfar.disk.folders import check_new_folder, new_folder
from nearfar.disk.model_folder import SeenHashes, read_seen
from nearfar.encoder.precision import check_computing
from nearfar.evaluation.results.record import OMITTED, Provenance, Record, format_json, provenance
from nearfar.runs.folder import RUN_INFO, read_run_info
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.train.dev import DevSet
    from nearfar.encoder.encoder import Encoder


SOUP_FILE = "soup.json"
"""The record of an average in its model folder."""
NOT_COMPARED = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
"""Entries of config.json that change no embedding; nor do dropout probabilities."""


class Ingredient(Record):
    """One of the models."""

    model: str
    """As it was named: a folder, or owner/name on the hub."""
    fingerprint: str
    """SHA-256 over the files of the model, 16 hexadecimal digits."""
    weight: float
    """Its share in the average, in [0, 1]; 0 if a greedy average left it out."""
    score: float | None = field(default=None, metadata=OMITTED)
    """Its score on the dev set, x 100; only of greedy averages."""


class SoupResult(Record):
    """An average of models."""

    models: list[Ingredient]
    """All models, in the order in which they were named."""
    evaluate_on: str | None = field(default=None, metadata=OMITTED)
    """The dev set of a greedy average."""
    metric: str | None = field(default=None, metadata=OMITTED)
    """The name of the scores."""
    score: float | None = field(default=None, metadata=OMITTED)
    """The score of the average on the dev set, x 100."""
    provenance: Provenance

    @property
    def used(self) -> list[Ingredient]:
        """The models that are part of the average."""
        return [one for one in self.models if one.weight > 0]


@accepts_settings(SoupConfig)
@path_errors()
def soup(*models: str | Path, config: SoupConfig) -> SoupResult:
    """Average the weights of models, and save the average as a model folder in ``config.output``.

    Settings can be given by name: ``soup("runs/a", "runs/b", output="models/ab")``; see :class:`nearfar.SoupConfig`.
    With the weights θ_i of k models and shares a_i that sum to 1, the average has the weights Σ a_i θ_i, computed in
    float64. By default a_i = 1 / k (the uniform soup of Wortsman et al. 2022, "Model soups"). ``greedy`` is their
    recipe 1: models are sorted by their score on the dev set; the first is kept, and each further model is added if the
    score of the uniform average with it is not below the score without it.

    The folder has the hashes of the texts that any of its models was trained on, and for ``greedy`` those of the dev
    set, so that :func:`nearfar.evaluate` reports which test rows were seen; and ``soup.json``, a record of its models.

    Args:
        models: two or more run folders, model folders, or names on the hub. All are in memory at once.
        config: the settings.

    Raises:
        NearfarError: fewer than two models, or one of them twice; a model that is missing or damaged, or a
            classifier; models that differ in more than their weights (architecture, tokenizer, pooling, prompts,
            maximum length, shapes); another number of weights than of models; an output that exists or cannot be
            written; a dev set that cannot be scored.
    """
    from nearfar.runs.fingerprints import fingerprint_model

    names, output = [str(model) for model in models], Path(config.output)
    weights = config.weights or (1.0,) * len(names)
    if len(weights) != len(names):
        raise NearfarError(
            f"--weights: has {len(weights)} numbers, but must have one for each of the {len(names)} models."
        )
    check_computing(config.device, config.precision)
    check_new_folder(output)
    folders = _different_folders(names)
    dev = None
    if config.evaluate_on is not None:
        from nearfar.commands.train.dev import scored_dev
        from nearfar.data.rows import load_pairs

        dev = scored_dev(load_pairs(config.evaluate_on), config.evaluate_on)
    encoders = [_open(name, folder, config) for name, folder in zip(names, folders, strict=True)]
    for name, other in zip(names[1:], encoders[1:], strict=True):
        _check_same(names[0], encoders[0], name, other)
    average = _open(names[0], folders[0], config)

    def measure(numbers: Sequence[int]) -> float:
        """Let ``average`` be the average of some models; its score on the dev set, if there is one."""
        states = [(weights[number], encoders[number].state_dict()) for number in numbers]
        total = sum(weight for weight, _ in states)
        for key, tensor in average.state_dict().items():
            if tensor.is_floating_point():  # on the CPU, as some devices have no float64
                tensor.copy_(sum(weight * state[key].cpu().double() for weight, state in states) / total)
        return 0.0 if dev is None else dev.measure(average, config.precision).score or 0.0

    kept, best, scores = list(range(len(names))), -math.inf, []
    if dev is not None:
        scores, kept = [measure([number]) for number in kept], []
        for number in sorted(range(len(names)), key=lambda number: -scores[number]):  # equal ones as they were named
            if (score := measure([*kept, number])) >= best:
                kept, best = [*kept, number], score
    measure(kept)

    total = sum(weights[number] for number in kept)
    used = {folders[number]: names[number] for number in sorted(kept)}
    _warn_of_different_starts(used)
    ingredients = [
        Ingredient(
            model=name,
            fingerprint=fingerprint_model(folders[number]),
            weight=weights[number] / total if number in kept else 0.0,
            score=round(100 * scores[number], 4) if scores else None,
        )
        for number, name in enumerate(names)
    ]
    result = SoupResult(
        models=ingredients,
        evaluate_on=config.evaluate_on,
        metric=None if dev is None else dev.metric,
        score=None if dev is None else round(100 * best, 4),
        provenance=provenance(),
    )
    average.seen = _seen(used, dev) if config.fingerprints else None
    with new_folder(output) as fresh:
        average.save_pretrained(fresh)
        (fresh / SOUP_FILE).write_text(format_json(result.to_dict()) + "\n", encoding="utf-8")
    return result


def _different_folders(names: Sequence[str]) -> list[Path]:
    """The folder of each model; refuses fewer than two, and one of them twice."""
    from nearfar.encoder.weights import locate

    if len(names) < 2:
        raise NearfarError("two models or more are needed for an average.")
    folders = [locate(name).resolve() for name in names]
    for number, folder in enumerate(folders):
        if (first := folders.index(folder)) < number:
            what = f"{names[number]}: is the same model as {names[first]}"
            raise NearfarError(f"{what}; give it once, with a higher --weights.")
    return folders


def _open(name: str, folder: Path, config: SoupConfig) -> "Encoder":
    """Open a sentence encoder; classifiers are refused."""
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.encoder_folder import transformer_folder
    from nearfar.encoder.folder_checks import holds_classifier

    if holds_classifier(transformer_folder(folder)):
        raise NearfarError(f"{name}: is a classifier; soup averages sentence encoders.")
    return Encoder.from_pretrained(folder, device=config.device)


def _check_same(first: str, encoder: "Encoder", other: str, opened: "Encoder") -> None:
    """Check that two models differ in nothing but the values of their weights; the message names what differs."""
    theirs = _aspects(opened)
    if different := [what for what, ours in _aspects(encoder).items() if ours != theirs[what]]:
        raise NearfarError(
            f"{other}: cannot be averaged with {first}: they have different {', '.join(different)}. All models must be "
            "trained from the same model, with the same settings of inference."
        )


def _aspects(encoder: "Encoder") -> dict[str, Any]:
    """What must be equal in all models of an average, by its name in messages."""
    shape = encoder.backbone.config.to_dict()
    shape = {key: value for key, value in shape.items() if key not in NOT_COMPARED and "drop" not in key}
    tokenizer = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    tokenizer = {key: value for key, value in tokenizer.items() if key not in ("truncation", "padding")}
    inference = encoder.inference_settings._replace(matryoshka=())._asdict()
    inference["prompts"] = {name: text for name, text in inference["prompts"].items() if text}
    return {
        "architectures": {"class": type(encoder.backbone).__name__, **shape},
        "tokenizers": tokenizer,
        "poolings": encoder.pooling,
        "modules after the pooling": repr(encoder.tail),
        "normalization": encoder.normalizes,
        "prompts or similarities": inference,
        "widths of --matryoshka": encoder.matryoshka,
        "maximum lengths": encoder.max_length,
        "shapes of weights": {key: tuple(value.shape) for key, value in encoder.state_dict().items()},
    }


def _seen(used: Mapping[Path, str], dev: "DevSet | None") -> SeenHashes | None:
    """The hashes of what the models were trained on and chosen by, and of the dev set that chose among them."""
    from nearfar.runs.fingerprints import seen_hashes

    hashes = {name: read_seen(folder) for folder, name in used.items()}
    known = [seen for seen in hashes.values() if seen is not None]
    if known and (unknown := [name for name, seen in hashes.items() if seen is None]):
        warnings.warn(
            f"{', '.join(unknown)}: has no record of the texts that it was trained on; that of the average lacks them.",
            stacklevel=2,
        )
    if dev is not None:
        known.append(seen_hashes((), dev.rows, before=None))
    return reduce(SeenHashes.union, known) if known else None


def _warn_of_different_starts(used: Mapping[Path, str]) -> None:
    """Warn if runs started from different models: the average of their weights is then mostly noise.

    A run tells by the fingerprint of the model that it started from; a folder that is not in a run folder by nothing.
    """
    starts: dict[str, str] = {}
    for model, name in used.items():
        inputs = read_run_info(model.parent).get("inputs") if (model.parent / RUN_INFO).is_file() else None
        for what, fingerprint in inputs.items() if isinstance(inputs, dict) else ():
            if what.startswith("--model "):
                starts[str(fingerprint)] = starts.get(str(fingerprint), name)
    if len(starts) > 1:
        first, other, *_ = starts.values()
        warnings.warn(
            f"{first} and {other} were trained from different models. An average is useful only for models that were "
            "trained from the same one.",
            stacklevel=2,
        )
