"""The geometry of embedding spaces put together: numbers, layers, plots. What ``nearfar geometry`` and notebooks call.

The folder then holds ``geometry.json`` with its table in ``geometry.md``, and the plots. The JSON has the ``schema``
and the ``provenance`` of :mod:`nearfar.evaluation.results`, and ::

    {
      "kind": "geometry", "config": what was asked for, positive_above resolved,
      "pairs": {"spec", "instead_of": the default that could not be had, or null, "pairs": number,
                "positives": those scored above positive_above, "texts": distinct ones, "digest"},
      "task": {"spec", "pairs", "digest"}, "labelled": {"spec", "texts": number, "labels": [...]}, each null without it,
      "unavailable": {default set: why it could not be had, and what to do}, "plots": [file names],
      "models": {name: {
        "model", "pooling", "dim", "alignment", "uniformity", "isotropy", "mean_cosine", "effective_rank",
        "warning": that the space has collapsed, or null, "spectrum": [...],
        "layers": {pooling: [Spearman x 100 of each layer on the task, 0 being the embedding layer]}, null without
      }}
    }
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.commands.geometry.inputs import GeometryData, load_sets
from nearfar.disk import path_errors, refuse_existing, refuse_overwriting_inputs
from nearfar.evaluation import geometry_measures as measures
from nearfar.evaluation import plots, results
from nearfar.evaluation.geometry_tables import geometry_markdown
from nearfar.evaluation.sts import Subsets, evaluate_sts
from nearfar.types import Encode, NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


class _PlotVectors(NamedTuple):
    """The vectors that the plots need of a model."""

    pairs: NDArray[Any] | None
    """Of the most, then of the least similar pairs, two rows each."""
    labelled: NDArray[Any] | None


@path_errors()
def geometry(
    models: "str | Path | Sequence[str | Path] | Mapping[str, str | Path | Encode]",
    output: str | Path,
    *,
    pairs: str | None = None,
    positive_above: float | None = None,
    task: str | None = None,
    labelled: str | None = None,
    labelled_limit: int = 400,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
) -> results.Result:
    """Measure and draw the embedding spaces of one or several models, side by side.

    Numbers are of the distinct texts of ``pairs``, and alignment of those pairs that are scored above 4: the choice of
    Gao et al. 2021 (section 3, footnote 3), who name STS-B and no split. The default is its dev split, which is in no
    test score; ``stsb:train+dev+test`` is all of it. The layers are scored on ``task`` by Spearman over all its pairs,
    as in Kim et al. 2021, Figure 1.

    A default set that cannot be had is noted under ``unavailable``, and its plot is left out. Without STS-B's dev
    split the numbers are of ``microworld:dev``, generated sentences, and ``pairs`` says so.

    Args:
        models: model folders, hub names or training runs' folders; or by name, where functions from texts to vectors
            will do too. A function has no layers.
        output: the folder to write.
        pairs: scored pairs, as :func:`nearfar.data.sts.load_task` reads them; by default ``stsb:dev``.
        positive_above: pairs with a score above this are positive; by default 0.8 of the top of the scale, which is 4
            on STS-B's 0 to 5. The scale of one's own pairs ends at their highest score.
        task: scored pairs to score each layer on; by default ``stsb``, its test split.
        labelled: labelled texts, as :func:`nearfar.data.rows.load_labelled` reads them; by default ``sst2:test``.
        labelled_limit: so many of the labelled texts are drawn: the first ones, or, where those lack a label, evenly
            spaced ones.
        pooling: instead of each model's own.
        max_length: tokens kept of a text, instead of each model's own limit.
        device: where to encode.
        seed: of uniformity's sample of pairs, of t-SNE, and of the choice among pairs with equal scores.
        overwrite: replace files in ``output`` even if they are no results of nearfar's.
        progress: show progress bars.

    Returns:
        The content of ``geometry.json`` (module docstring).

    Raises:
        NearfarError: a model or a named set cannot be had; a set that nothing can be measured on; vectors that are not
            finite; a folder that cannot be written.
    """
    from nearfar.encoder.device import check_device

    check_device(device)
    by_name = _name_models(models)
    file = _check_output(Path(output), [*by_name.values(), pairs, task, labelled], list(by_name), overwrite=overwrite)
    settings = {"pooling": pooling, "max_length": max_length, "device": device}
    _check(by_name, settings, labelled_limit)
    sets = load_sets(pairs, task, labelled, positive_above=positive_above, labelled_limit=labelled_limit, seed=seed)
    found: dict[str, Any] = {}
    plot_vectors: dict[str, _PlotVectors] = {}
    for name, model in by_name.items():
        encode, encoder = _open(model, progress=progress, **settings)
        measured, plot_vectors[name] = _measure(name, encode, sets, seed)
        layers = None if encoder is None or sets.task is None else _layers(encoder, sets.task, progress=progress)
        pooled = None if encoder is None else encoder.pooling
        found[name] = {"model": str(model), "pooling": pooled, **measured, "layers": layers}
    result = {
        "schema": results.SCHEMA,
        "kind": "geometry",
        "config": {
            "pairs": pairs,
            "positive_above": sets.positive_above,
            "task": task,
            "labelled": labelled,
            "labelled_limit": labelled_limit,
            "pooling": pooling,
            "max_length": max_length,
            "seed": seed,
        },
        "provenance": results.provenance(),
        **sets.summary(),
        "plots": _draw(file.parent, found, plot_vectors, sets, seed),
        "models": found,
    }
    results.write_result(result, file, markdown=geometry_markdown(result))
    return result


def _name_models(models: "str | Path | Sequence[str | Path] | Mapping[str, str | Path | Encode]") -> dict[str, Any]:
    """Models by name: where none is given, the end of the path, as much of it as tells the models apart."""
    if isinstance(models, Mapping):
        return dict(models)
    paths = [models] if isinstance(models, str | Path) else list(models)
    if any(callable(path) for path in paths):
        raise NearfarError("a function has no name to be shown by; give one: geometry({'name': function}, ...).")
    if len(set(map(str, paths))) < len(paths):
        raise NearfarError("the same model is named twice.")
    parts = [Path(path).parts or (str(path),) for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return dict(zip(names, paths, strict=True))
    return {str(path): path for path in paths}


def _check_output(folder: Path, inputs: Sequence[object], names: Sequence[str], *, overwrite: bool) -> Path:
    """The result file; refuses what must not be overwritten, before the first model is opened."""
    file = folder / "geometry.json"
    drawn = [folder / name for name in ("spectrum.png", "pairs.png", "labels.png", *_file_names(names).values())]
    ours = results.is_result(file)
    results.check_output(file, inputs=inputs, overwrite=overwrite)
    for plot in drawn:
        refuse_overwriting_inputs(plot, inputs)
    if not ours:
        refuse_existing(drawn, overwrite=overwrite, what="is there, and no geometry.json of nearfar's beside it")
    return file


def _check(models: Mapping[str, Any], settings: Mapping[str, Any], labelled_limit: int) -> None:
    """Refuse what would fail later, before the first model is measured."""
    from nearfar.encoder.weights import locate

    if not models:
        raise NearfarError("the geometry of what? Name a model.")
    if labelled_limit < 4:
        raise NearfarError(f"--labelled-limit {labelled_limit}: a plot needs 4 texts or more.")
    for model in models.values():
        if not callable(model):
            locate(model)
        elif given := [key for key, value in settings.items() if value is not None]:
            raise NearfarError(f"{given[0]} is a setting of a model folder or hub name; a function has its own.")


def _open(model: Any, *, progress: bool, **settings: Any) -> "tuple[Encode, Encoder | None]":
    if callable(model):
        return model, None
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(model, **settings)
    return lambda texts: encoder.encode(texts, precision="fp32", progress=progress), encoder


def _measure(name: str, encode: Encode, sets: GeometryData, seed: int) -> tuple[dict[str, Any], _PlotVectors]:
    """A model's numbers, and the vectors that will be drawn. Its texts are encoded in one call."""
    measured = list(dict.fromkeys(chain.from_iterable(pair[:2] for pair in sets.pairs)))
    texts = list(dict.fromkeys([*measured, *(sets.labelled[0] if sets.labelled else ())]))
    place = {text: row for row, text in enumerate(texts)}
    vectors = np.asarray(encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise NearfarError(f"{name}: returned shape {vectors.shape} for {len(texts)} texts, not one vector for each.")

    def of(chosen: Iterable[str]) -> NDArray[Any]:
        return vectors[[place[text] for text in chosen]]

    space = vectors[: len(measured)]
    sides = of(pair.first for pair in sets.positives), of(pair.second for pair in sets.positives)
    numbers = measures.geometry(space, sides, seed=seed) | {"isotropy": measures.isotropy(space)}
    summary = {
        "dim": vectors.shape[1],
        **{key: round(value, 6) for key, value in numbers.items()},
        "warning": measures.collapse_warning(numbers),
        "spectrum": measures.spectrum(space).round(6).tolist(),
    }
    drawn = None if sets.extremes is None else list(chain(*sets.extremes))
    return summary, _PlotVectors(
        None if drawn is None else of(chain.from_iterable(pair[:2] for pair in drawn)),
        None if sets.labelled is None else of(sets.labelled[0]),
    )


def _layers(encoder: "Encoder", subsets: Subsets, *, progress: bool) -> dict[str, list[float | None]]:
    """Spearman x 100 over all pairs, by pooling, of each layer: what evaluating with ``layer:K:pooling`` gives."""
    from nearfar.encoder.layers import layer_embeddings

    pairs = chain(*subsets.values())
    place = {text: row for row, text in enumerate(dict.fromkeys(chain.from_iterable(pair[:2] for pair in pairs)))}
    scores: dict[str, list[float | None]] = {}
    for (_, pooling), vectors in layer_embeddings(encoder, list(place), progress=progress).items():

        def encode(texts: Sequence[str], vectors: NDArray[np.float32] = vectors) -> NDArray[np.float32]:
            return vectors[[place[text] for text in texts]]

        scored = evaluate_sts(encode, {"task": subsets}, resamples=0)
        scores.setdefault(pooling, []).append(scored["tasks"]["task"]["spearman"]["all"]["score"])
    return scores


def _draw(
    folder: Path,
    found: Mapping[str, Mapping[str, Any]],
    plot_vectors: Mapping[str, _PlotVectors],
    sets: GeometryData,
    seed: int,
) -> list[str]:
    """Draw what there is to draw, and return the names of the files."""
    plots.spectra({name: model["spectrum"] for name, model in found.items()}, folder / "spectrum.png")
    drawn = ["spectrum.png"]
    layers = {name: model["layers"] for name, model in found.items() if model["layers"] is not None}
    known = [score for by_pooling in layers.values() for score in chain(*by_pooling.values()) if score is not None]
    for name, file in _file_names(list(layers)).items():
        plots.layer_heat_map(
            layers[name],
            folder / file,
            title=name,
            label=f"Spearman x 100 on {sets.task_name}",
            limits=(min(known), max(known)) if known else None,
        )
        drawn.append(file)
    if sets.extremes is not None:
        numbers = [(2 * pair, 2 * pair + 1) for pair in range(sum(map(len, sets.extremes)))]
        most = len(sets.extremes[0])
        vectors = {name: model.pairs for name, model in plot_vectors.items() if model.pairs is not None}
        plots.tsne_pairs(vectors, numbers[:most], numbers[most:], folder / "pairs.png", seed=seed)
        drawn.append("pairs.png")
    if sets.labelled is not None:
        vectors = {name: model.labelled for name, model in plot_vectors.items() if model.labelled is not None}
        plots.tsne(vectors, sets.labelled[1], folder / "labels.png", seed=seed)
        drawn.append("labels.png")
    return drawn


def _file_names(names: Sequence[str]) -> dict[str, str]:
    """A file name for each model's map of layers, no two of them alike."""
    files: dict[str, str] = {}
    for name in names:
        stem = file = "layers-" + re.sub(r"[^\w.-]+", "-", name).strip("-")
        for number in count(2):
            if f"{file}.png" not in files.values():
                break
            file = f"{stem}-{number}"
        files[name] = f"{file}.png"
    return files
