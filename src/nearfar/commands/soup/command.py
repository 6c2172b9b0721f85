"""``nearfar soup``: averages the weights of models into one model."""

import warnings
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.commands.soup.models import (
    Source,
    WeightSum,
    check_same,
    locate_models,
    merged_hashes,
    open_model,
    start_of,
)
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import SoupConfig
from nearfar.disk import SeenHashes, check_new_folder, new_folder, path_errors, read_json
from nearfar.encoder.precision import check_computing
from nearfar.evaluation.results import Provenance, provenance
from nearfar.evaluation.results.record import OMITTED, Record, format_json
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.train.dev import DevSet
    from nearfar.encoder.encoder import Encoder


SOUP_FILE = "soup.json"
"""The record of an average in its model folder."""


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

    @classmethod
    def load(cls, file: Path) -> "SoupResult":
        """Read the record of an average.

        Raises:
            NearfarError: it is missing or damaged.
        """
        return cls.from_dict(read_json(file, otherwise="Average the models again."), source=file)

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
        models: two or more run folders, model folders, or names on the hub.
        config: the settings.

    Raises:
        NearfarError: fewer than two models, or one of them twice; a model that is missing or damaged, an adapter or a
            classifier; models that differ in more than their weights (architecture, tokenizer, pooling, prompts,
            maximum length, shapes); another number of weights than of models; an output that exists or cannot be
            written; a dev set that cannot be scored.
    """
    names = [str(model) for model in models]
    output = Path(config.output)
    if config.numbers is not None and len(config.numbers) != len(names):
        raise NearfarError(f"--weights {config.weights}: must be one number for each of the {len(names)} models.")
    check_computing(config.device, config.precision)
    check_new_folder(output)
    sources = locate_models(names)

    from nearfar.commands.train.dev import load_dev_pairs
    from nearfar.runs.fingerprints import fingerprint_model

    dev = (
        None
        if config.evaluate_on is None
        else load_dev_pairs(config.evaluate_on, otherwise="Without --greedy, no dev set is needed.")
    )
    encoder = open_model(sources[0], device=config.device)
    if dev is None:
        shares = _average(encoder, sources, config.numbers or (1.0,) * len(sources), device=config.device)
        scores, score = None, None
    else:
        shares, scores, score = _greedy(encoder, sources, dev, config)
    _warn_of_different_starts([source for source, share in zip(sources, shares, strict=True) if share])
    result = SoupResult(
        models=[
            Ingredient(
                model=source.name,
                fingerprint=fingerprint_model(source.folder),
                weight=share,
                score=None if scores is None else round(100 * scores[number], 4),
            )
            for number, (source, share) in enumerate(zip(sources, shares, strict=True))
        ],
        evaluate_on=config.evaluate_on,
        metric=None if dev is None else dev.metric,
        score=None if score is None else round(100 * score, 4),
        provenance=provenance(),
    )
    used = [source for source, share in zip(sources, shares, strict=True) if share]
    encoder.seen = _seen(used, dev) if config.fingerprints else None
    _save(encoder, result, output)
    return result


def _average(
    encoder: "Encoder", sources: list[Source], weights: tuple[float, ...], *, device: str | None
) -> list[float]:
    """Give ``encoder``, the first model, the weighted mean of all; return each model's share."""
    total = WeightSum().plus(encoder, weights[0])
    for source, weight in zip(sources[1:], weights[1:], strict=True):
        opened = open_model(source, device=device)
        check_same(sources[0], encoder, source, opened)
        total = total.plus(opened, weight)
    total.copy_mean_to(encoder)
    return [weight / total.total for weight in weights]


def _greedy(
    encoder: "Encoder", sources: list[Source], dev: "DevSet", config: SoupConfig
) -> tuple[list[float], list[float], float]:
    """Give ``encoder``, the first model, the greedy average; return the shares, all scores, and the average's."""

    def score_of(one: "Encoder") -> float:
        score = dev.measure(one, config.precision).score()
        assert score is not None
        return score

    scores = [score_of(encoder)]
    for source in sources[1:]:
        opened = open_model(source, device=config.device)
        check_same(sources[0], encoder, source, opened)
        scores.append(score_of(opened))
    order = sorted(range(len(sources)), key=lambda number: -scores[number])  # stable: equal scores as they were named
    total, best = WeightSum(), scores[order[0]]
    kept: list[int] = []
    for number in order:
        candidate = total.plus(open_model(sources[number], device=config.device))
        candidate.copy_mean_to(encoder)
        score = scores[number] if not kept else score_of(encoder)
        if not kept or score >= best:
            total, best = candidate, score
            kept.append(number)
    total.copy_mean_to(encoder)
    return [1 / len(kept) if number in kept else 0.0 for number in range(len(sources))], scores, best


def _seen(used: list[Source], dev: "DevSet | None") -> SeenHashes | None:
    """The hashes of what the models were trained on and chosen by, and of the dev set that chose among them."""
    import numpy as np

    from nearfar.data.fingerprints import row_hashes
    from nearfar.disk import read_seen

    seen, unknown = merged_hashes({source.name: read_seen(source.folder) for source in used})
    if unknown and seen is not None:
        warnings.warn(
            f"{', '.join(unknown)}: has no record of the texts that it was trained on; that of the average lacks them.",
            stacklevel=2,
        )
    if dev is None:
        return seen
    chosen = SeenHashes(*row_hashes(()), *(np.unique(hashes) for hashes in row_hashes(dev.rows)))
    return chosen if seen is None else seen.union(chosen)


def _warn_of_different_starts(used: list[Source]) -> None:
    """Warn if runs started from different models: the average of their weights is then mostly noise."""
    starts = {source.name: start for source in used if (start := start_of(source)) is not None}
    first = next(iter(starts), "")
    other = next((name for name, start in starts.items() if start != starts[first]), None)
    if other is not None:
        warnings.warn(
            f"{first} and {other} were trained from different models. An average is useful only for models that were "
            "trained from the same one.",
            stacklevel=2,
        )


def _save(encoder: "Encoder", result: SoupResult, output: Path) -> None:
    """Write the model folder and the record of its models."""
    with new_folder(output) as fresh:
        encoder.save_pretrained(fresh)
        (fresh / SOUP_FILE).write_text(format_json(result.to_dict()) + "\n", encoding="utf-8")
