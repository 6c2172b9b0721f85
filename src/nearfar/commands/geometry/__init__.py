"""``nearfar geometry``: measures, layer scores and plots of embedding spaces in one folder, and the explorer page.

The folder holds ``geometry.json`` (:class:`nearfar.evaluation.results.GeometryResult`) with its table in
``geometry.md``, and the plots. The page is one HTML file (:mod:`nearfar.evaluation.explorer`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines.whitening import CachedEncode
from nearfar.commands.encode.vectors import open_encoder, vectors_folder
from nearfar.commands.geometry.inputs import GeometryData, load_geometry_data, load_page_texts
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import GeometryConfig
from nearfar.disk.checks import check_output_file, path_errors, refuse_existing, refuse_overwriting_inputs
from nearfar.encoder.precision import check_device, choose_device
from nearfar.encoder.weights import locate
from nearfar.evaluation import geometry_measures as measures
from nearfar.evaluation import plots, results
from nearfar.evaluation.explorer import describe_column, unit_vectors, write_page
from nearfar.evaluation.explorer.layout import plane_layout
from nearfar.evaluation.render import short_names
from nearfar.evaluation.sts import Subsets, evaluate_sts
from nearfar.evaluation.tables import save_with_tables
from nearfar.runtime.progress import progress_bar
from nearfar.types import Encode, NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


@accepts_settings(GeometryConfig)
@path_errors()
def geometry(
    models: "str | Path | Sequence[str | Path] | Mapping[str, str | Path | Encode]",
    config: GeometryConfig,
    *,
    progress: bool = True,
) -> results.GeometryResult | results.ExplorerPage:
    """Measure and plot the embedding spaces of one or several models, or write a page to explore texts by them.

    Settings can be given by name: ``geometry(["a", "b"], output="space")``; see :class:`nearfar.GeometryConfig`.
    ``geometry(["before", "after"], texts="texts.tsv", page="page.html")`` writes the page alone, without scored pairs,
    and returns its description. With ``output`` and ``page`` the description is ``page`` of the result.

    Measures are computed on the distinct texts of ``pairs``; alignment on the pairs with a score above
    ``positive_above``, by default 4 on STS-B as in Gao et al. 2021 (section 3, footnote 3). They name STS-B and no
    split; the default here is the dev split, which no test score uses. ``stsb:train+dev+test`` is the whole data set.
    Layers are scored on ``task`` by Spearman over all its pairs, as in Kim et al. 2021, Figure 1.

    The page has the distinct texts of ``texts``, a layout by each model (t-SNE; the second starts from the first and is
    rotated onto it), the exact nearest and farthest texts of each text by cosine, and the change of its neighbourhood:
    1 - |A & B| / |A | B| of its 10 nearest texts A and B by the two models.

    A default data set that cannot be loaded is listed in ``unavailable``, and its plot is left out. Without STS-B's dev
    split the measures are computed on ``microworld:dev``, generated sentences, and ``pairs.instead_of`` says so.

    Args:
        models: model folders, hub names or run folders; or a mapping from names to these or to functions from texts to
            vectors. A function has no layers.
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: a model or a named data set cannot be loaded; a data set that nothing can be measured on; vectors
            that are not finite; a folder or page that cannot be written; settings of an output that is not named.
    """
    check_device(config.device)
    by_name = _name_models(models, config.opening)
    config.check_models(len(by_name))
    inputs = [*by_name.values(), config.pairs, config.task, config.labelled, config.texts]
    file = config.output and _check_output(Path(config.output), inputs, list(by_name), overwrite=config.overwrite)
    page = config.page and Path(config.page)
    if page:
        check_output_file(page, inputs, overwrite=config.overwrite, flag="--page")
    data = load_geometry_data(config) if file else None
    texts = load_page_texts(config) if page else None
    measured: dict[str, results.ModelGeometry] = {}
    page_vectors: dict[str, NDArray[Any]] = {}
    explorer: results.ExplorerPage | None = None
    with vectors_folder(file or page or None) as kept:
        for name, model in by_name.items():
            encode, encoder = _open(model, config.opening, kept, progress=progress)
            if data:
                measured[name] = results.ModelGeometry(
                    model=str(model),
                    pooling=None if encoder is None else encoder.pooling,
                    **_measure(name, encode, data, config.seed),
                    layers=_layers(encoder, data.task, progress=progress) if encoder and data.task else None,
                )
            if texts:
                page_vectors[name] = np.asarray(encode(texts.texts))
        if page and texts:
            columns = [describe_column(name, values) for name, values in texts.columns.items()]
            how: dict[str, Any] = {"device": str(choose_device(config.device)), "color_by": config.color_by}
            how |= {"notes": texts.notes(config.seed), "seed": config.seed, "progress": progress}
            explorer = write_page(page, texts.texts, columns, page_vectors, spec=str(config.texts), **how)
        if not (file and data):
            assert explorer is not None  # the settings name an output
            return explorer
        own = {field.name: getattr(config, field.name) for field in fields(results.GeometrySettings)}
        result = results.GeometryResult(
            config=results.GeometrySettings(**{**own, "positive_above": data.positive_above}),
            provenance=results.provenance(),
            plots=_draw(file.parent, measured, data),
            models=measured,
            page=explorer,
            **data.described,
        )
        save_with_tables(result, file)
    return result


def _name_models(
    models: "str | Path | Sequence[str | Path] | Mapping[str, str | Path | Encode]", opening: Mapping[str, Any]
) -> dict[str, Any]:
    """Models by name; by default the last parts of the path, as many as make the names distinct.

    Raises:
        NearfarError: there are none, one is named twice or not found, or a function has no name or is given settings.
    """
    if not isinstance(models, Mapping):
        paths = [models] if isinstance(models, str | Path) else list(models)
        if any(callable(path) for path in paths):
            raise NearfarError("a function needs a name: geometry({'name': function}, ...).")
        if len(set(map(str, paths))) < len(paths):
            raise NearfarError("the same model is named twice.")
        names = short_names([str(path) for path in paths])
        models = {names[str(path)]: path for path in paths}
    if not models:
        raise NearfarError("no model given; name one or more.")
    given = [key for key, value in opening.items() if value is not None]
    for model in models.values():
        if not callable(model):
            locate(model)
        elif given:
            raise NearfarError(f"{given[0]} is a setting of a model folder or hub name; a function has its own.")
    return dict(models)


def _check_output(folder: Path, inputs: Sequence[object], names: Sequence[str], *, overwrite: bool) -> Path:
    """The path of the result file; refuses outputs that must not be overwritten, before a model is opened."""
    file = folder / "geometry.json"
    drawn = [folder / name for name in ("spectrum.png", "pairs.png", "labels.png", *_file_names(names).values())]
    replaces_result = results.is_result(file)
    results.check_output(file, inputs=inputs, overwrite=overwrite)
    for plot in drawn:
        refuse_overwriting_inputs(plot, inputs)
    refuse_existing(drawn, overwrite=overwrite or replaces_result)
    return file


def _open(model: Any, opening: Mapping[str, Any], kept: Path, *, progress: bool) -> "tuple[Encode, Encoder | None]":
    """A function from distinct texts to vectors, which are kept in a folder; and the encoder, if the model has one."""
    if callable(model):
        return model, None
    opened = open_encoder(model, opening)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        with progress_bar("encoding", len(texts), shown=progress) as advance:
            return opened.encode_texts(kept, texts, normalize=False, on_texts=advance)

    return encode, opened.encoder


def _measure(name: str, encode: Encode, data: GeometryData, seed: int) -> dict[str, Any]:
    """The measures of a model, and the positions to plot. Its texts are encoded in one call."""
    measured = list(dict.fromkeys(chain.from_iterable(pair[:2] for pair in data.pairs)))
    texts = list(dict.fromkeys([*measured, *(data.labelled[0] if data.labelled else ())]))
    cached = CachedEncode(encode)
    vectors = np.asarray(cached(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise NearfarError(f"{name}: returned shape {vectors.shape} for {len(texts)} texts, not one vector for each.")
    space = vectors[: len(measured)]
    sides = cached([pair.first for pair in data.positives]), cached([pair.second for pair in data.positives])
    numbers = measures.geometry(space, sides, seed=seed) | {"isotropy": measures.isotropy(space)}
    return {
        "dim": vectors.shape[1],
        **{key: round(value, 6) for key, value in numbers.items()},
        "warning": measures.collapse_warning(numbers),
        "spectrum": measures.spectrum(space).round(6).tolist(),
        "projection": _project(data, lambda chosen: plane_layout(unit_vectors(cached(chosen), name), seed=seed)),
    }


def _project(data: GeometryData, layout: Encode) -> results.Projection | None:
    """The positions of the plotted texts, by their ``layout``; None if there is nothing to plot."""
    pairs: list[Any] = []
    labelled: dict[str, list[Any]] = {}
    if data.extremes is not None:
        texts = [text for pair in chain(*data.extremes) for text in pair[:2]]
        pairs = np.asarray(layout(texts), np.float64).round(3).reshape(-1, 4).tolist()
    if data.labelled is not None:
        points = np.asarray(layout(data.labelled[0]), np.float64).round(3).tolist()
        for label in sorted(set(data.labelled[1])):
            labelled[label] = [point for own, point in zip(data.labelled[1], points, strict=True) if own == label]
    if not pairs and not labelled:
        return None
    most = len(pairs) // 2
    return results.Projection(similar=pairs[:most], dissimilar=pairs[most:], labelled=labelled)


def _layers(encoder: "Encoder", subsets: Subsets, *, progress: bool) -> dict[str, list[float | None]]:
    """Pooling -> Spearman x 100 over all pairs for each layer, as evaluating with ``layer:K:pooling`` gives it."""
    from nearfar.encoder.encoder import layer_embeddings

    texts = list(dict.fromkeys(text for pair in chain(*subsets.values()) for text in pair[:2]))
    rows = {text: row for row, text in enumerate(texts)}
    scores: dict[str, list[float | None]] = {}

    def take(vectors: NDArray[Any], wanted: Sequence[str]) -> NDArray[Any]:
        return vectors[[rows[text] for text in wanted]]

    for (_, pooling), vectors in layer_embeddings(encoder, texts, progress=progress).items():
        how: dict[str, Any] = {"similarity": encoder.similarity, "resamples": 0}
        scored = evaluate_sts(partial(take, np.asarray(vectors)), {"task": subsets}, **how)
        scores.setdefault(pooling, []).append(scored.tasks["task"].spearman.all.score)
    return scores


def _draw(folder: Path, measured: Mapping[str, results.ModelGeometry], data: GeometryData) -> list[str]:
    """Draw all plots that there is data for, and return their file names."""
    plots.spectra({name: model.spectrum for name, model in measured.items()}, folder / "spectrum.png")
    layers = {name: model.layers for name, model in measured.items() if model.layers is not None}
    known = [score for by_pooling in layers.values() for score in chain(*by_pooling.values()) if score is not None]
    drawn = _file_names(list(layers))
    for name, file in drawn.items():
        label = f"Spearman x 100 on {data.described['task'].spec}"
        limits = (min(known), max(known)) if known else None
        plots.save(plots.layer_map(layers[name], title=name, label=label, limits=limits), folder / file)
    positions = {name: model.projection for name, model in measured.items() if model.projection is not None}
    pictures: dict[str, Callable[..., Any]] = {}
    pictures |= {"pairs.png": plots.connected_pairs} if data.extremes is not None else {}
    pictures |= {"labels.png": plots.labelled_texts} if data.labelled is not None else {}
    for file, drawing in pictures.items():
        plots.save(drawing(positions), folder / file)
    return ["spectrum.png", *drawn.values(), *pictures]


def _file_names(names: Sequence[str]) -> dict[str, str]:
    """Model -> file name of its heat map of layers; the names are distinct."""
    stems = ["layers-" + re.sub(r"[^\w.-]+", "-", name).strip("-") for name in names]
    ends = [f"-{number}.png" if stem in stems[: number - 1] else ".png" for number, stem in enumerate(stems, 1)]
    return {name: stem + end for name, stem, end in zip(names, stems, ends, strict=True)}
