"""``nearfar geometry``: measures, layer scores and plots of embedding spaces in one folder, and the explorer page.

The folder holds ``geometry.json`` (:class:`nearfar.evaluation.results.GeometryResult`) with its table in
``geometry.md``, and the plots. The page is one HTML file (:mod:`nearfar.evaluation.explorer`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
from numpy.typing import NDArray

from nearfar.commands.encode.vectors import open_encoder, vectors_folder
from nearfar.commands.geometry.inputs import GeometryData, load_geometry_data, load_page_texts
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import GeometryConfig
from nearfar.disk.checks import check_output_file, path_errors, refuse_existing
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

LAYERS = "layers-{}.png"
"""The plot of the layers of a model, by the number of the model."""


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
    file, page = config.output and Path(config.output, "geometry.json"), config.page and Path(config.page)
    if file:  # before a model is opened
        replaces_result = results.is_result(file)
        results.check_output(file, inputs=inputs, overwrite=config.overwrite)
        names = ["spectrum.png", "pairs.png", "labels.png", *(LAYERS.format(n + 1) for n in range(len(by_name)))]
        refuse_existing(map(file.with_name, names), overwrite=config.overwrite or replaces_result)
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
        NearfarError: there are none, one is not found, or a function is given settings.
    """
    if not isinstance(models, Mapping):
        paths = [models] if isinstance(models, str | Path) else list(models)
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


def _open(model: Any, opening: Mapping[str, Any], kept: Path, *, progress: bool) -> "tuple[Encode, Encoder | None]":
    """A function from distinct texts to vectors, which are kept in a folder; and the encoder, if the model has one."""
    if callable(model):
        return model, None
    opened = open_encoder(model, opening)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        with progress_bar("encoding", len(texts), shown=progress) as advance:
            return opened.encode_texts(kept, texts, normalize=False, on_texts=advance)

    return encode, opened.encoder


def _lookup(texts: Sequence[str], vectors: NDArray[Any]) -> Encode:
    """A function from some of the texts to their vectors."""
    rows = {text: row for row, text in enumerate(texts)}
    return lambda chosen: vectors[[rows[text] for text in chosen]]


def _measure(name: str, encode: Encode, data: GeometryData, seed: int) -> dict[str, Any]:
    """The measures of a model, and the positions to plot. Its texts are encoded in one call."""
    measured = list(dict.fromkeys(chain.from_iterable(pair[:2] for pair in data.pairs)))
    texts = list(dict.fromkeys([*measured, *(data.labelled[0] if data.labelled else ())]))
    vectors = np.asarray(encode(texts))
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise NearfarError(f"{name}: returned shape {vectors.shape} for {len(texts)} texts, not one vector for each.")
    space, take = vectors[: len(measured)], _lookup(texts, vectors)
    sides = take([pair.first for pair in data.positives]), take([pair.second for pair in data.positives])
    numbers = measures.geometry(space, sides, seed=seed) | {"isotropy": measures.isotropy(space)}

    def layout(chosen: Sequence[str]) -> NDArray[np.float64]:
        return plane_layout(unit_vectors(take(chosen), name), seed=seed).astype(np.float64).round(3)

    return {
        "dim": vectors.shape[1],
        **{key: round(value, 6) for key, value in numbers.items()},
        "warning": measures.collapse_warning(numbers),
        "spectrum": measures.spectrum(space).round(6).tolist(),
        "projection": _project(data, layout),
    }


def _project(data: GeometryData, layout: Encode) -> results.Projection | None:
    """The positions of the plotted texts, by their ``layout``; None if there is nothing to plot."""
    positions: dict[str, Any] = {}
    if data.extremes is not None:
        texts = [text for pair in chain(*data.extremes) for text in pair[:2]]
        positions["similar"], positions["dissimilar"] = layout(texts).reshape(2, -1, 4).tolist()
    if data.labelled is not None:
        points = pandas.DataFrame(layout(data.labelled[0])).groupby(np.array(data.labelled[1]))
        positions["labelled"] = {label: own.to_numpy().tolist() for label, own in points}
    return results.Projection(**positions) if positions else None


def _layers(encoder: "Encoder", subsets: Subsets, *, progress: bool) -> dict[str, list[float | None]]:
    """Pooling -> Spearman x 100 over all pairs for each layer, as evaluating with ``layer:K:pooling`` gives it."""
    from nearfar.encoder.encoder import layer_embeddings

    texts = list(dict.fromkeys(text for pair in chain(*subsets.values()) for text in pair[:2]))
    scores: dict[str, list[float | None]] = {}
    for (_, pooling), vectors in layer_embeddings(encoder, texts, progress=progress).items():
        encode = _lookup(texts, np.asarray(vectors))
        scored = evaluate_sts(encode, {"task": subsets}, similarity=encoder.similarity, resamples=0)
        scores.setdefault(pooling, []).append(scored.tasks["task"].spearman.all.score)
    return scores


def _draw(folder: Path, measured: Mapping[str, results.ModelGeometry], data: GeometryData) -> list[str]:
    """Draw all plots that there is data for, and return their file names."""
    spectra = {name: [*enumerate(model.spectrum, 1)] for name, model in measured.items()}
    figures: dict[str, Any] = {"spectrum.png": plots.spectra(spectra, title="Singular spectrum of the embeddings")}
    layers = [(number, name, model.layers) for number, (name, model) in enumerate(measured.items(), 1) if model.layers]
    known = [score for _, _, scores in layers for score in chain(*scores.values()) if score is not None]
    for number, name, scores in layers:
        label = f"Spearman x 100 on {data.described['task'].spec}"
        limits = (min(known), max(known)) if known else None
        figures[LAYERS.format(number)] = plots.layer_map(scores, title=name, label=label, limits=limits)
    positions = {name: model.projection for name, model in measured.items() if model.projection is not None}
    if data.extremes is not None:
        figures["pairs.png"] = plots.connected_pairs(positions)
    if data.labelled is not None:
        figures["labels.png"] = plots.labelled_texts(positions)
    for file, figure in figures.items():
        plots.save(figure, folder / file)
    return [*figures]
