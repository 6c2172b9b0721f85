"""``nearfar geometry``: measures, layer scores and plots of embedding spaces in one folder, and the explorer page.

The folder holds ``geometry.json`` (:class:`nearfar.evaluation.results.GeometryResult`) with its table in
``geometry.md``, and the plots. The page is one HTML file (:mod:`nearfar.evaluation.explorer`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import chain, count
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines.whitening import CachedEncode
from nearfar.commands.encode.vectors import open_encoder, remove_vectors, vectors_folder
from nearfar.commands.geometry.inputs import GeometryData, load_geometry_data, load_texts
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import GeometryConfig
from nearfar.disk import check_output_file, path_errors, refuse_existing, refuse_overwriting_inputs
from nearfar.encoder.precision import check_device, choose_device
from nearfar.encoder.weights import locate
from nearfar.evaluation import geometry_measures as measures
from nearfar.evaluation import plots, results
from nearfar.evaluation.explorer import unit_vectors, write_page
from nearfar.evaluation.explorer.layout import plane_layout
from nearfar.evaluation.render import short_names
from nearfar.evaluation.results import (
    ExplorerPage,
    GeometryResult,
    GeometrySettings,
    ModelGeometry,
    Projection,
)
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
) -> GeometryResult | ExplorerPage:
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
    by_name = _name_models(models)
    config.check_models(len(by_name))
    inputs = [*by_name.values(), config.pairs, config.task, config.labelled, config.texts]
    file = config.output and _check_output(Path(config.output), inputs, list(by_name), overwrite=config.overwrite)
    page = config.page and Path(config.page)
    if page:
        check_output_file(page, inputs, overwrite=config.overwrite, flag="--page")
    _check(by_name, config.opening)
    data = load_geometry_data(config) if file else None
    texts, columns = load_texts(config) if page else (None, [])
    with vectors_folder(file or page or None) as kept:
        measured: dict[str, ModelGeometry] = {}
        page_vectors: dict[str, NDArray[Any]] = {}
        for name, model in by_name.items():
            encode, encoder = _open(model, config.opening, kept, progress=progress)
            if data:
                measures_of_model = _measure(name, encode, data, config.seed)
                layers = _layers(encoder, data.task, progress=progress) if encoder and data.task else None
                pooling = None if encoder is None else encoder.pooling
                measured[name] = ModelGeometry(model=str(model), pooling=pooling, layers=layers, **measures_of_model)
            if texts:
                page_vectors[name] = np.asarray(encode(texts.texts))
        explorer: ExplorerPage | None = None
        result: GeometryResult | ExplorerPage | None = None
        if page and texts:
            device, notes = str(choose_device(config.device)), texts.notes(config.seed)
            how: dict[str, Any] = {"color_by": config.color_by, "seed": config.seed, "progress": progress}
            about: dict[str, Any] = {"spec": str(config.texts), "notes": notes, "device": device}
            result = explorer = write_page(page, texts.texts, columns, page_vectors, **about, **how)
        if file and data:
            own = {field.name: getattr(config, field.name) for field in fields(GeometrySettings)}
            result = GeometryResult(
                config=GeometrySettings(**{**own, "positive_above": data.positive_above}),
                provenance=results.provenance(),
                plots=_draw(file.parent, measured, data),
                models=measured,
                page=explorer,
                **data.described,
            )
            save_with_tables(result, file)
        assert result is not None  # the settings name an output
        remove_vectors(kept)
    return result


def _name_models(models: "str | Path | Sequence[str | Path] | Mapping[str, str | Path | Encode]") -> dict[str, Any]:
    """Models by name; by default the last parts of the path, as many as make the names distinct."""
    if isinstance(models, Mapping):
        return dict(models)
    paths = [models] if isinstance(models, str | Path) else list(models)
    if any(callable(path) for path in paths):
        raise NearfarError("a function needs a name: geometry({'name': function}, ...).")
    if len(set(map(str, paths))) < len(paths):
        raise NearfarError("the same model is named twice.")
    names = short_names([str(path) for path in paths])
    return {names[str(path)]: path for path in paths}


def _check_output(folder: Path, inputs: Sequence[object], names: Sequence[str], *, overwrite: bool) -> Path:
    """The path of the result file; refuses outputs that must not be overwritten, before a model is opened."""
    file = folder / "geometry.json"
    drawn = [folder / name for name in ("spectrum.png", "pairs.png", "labels.png", *_file_names(names).values())]
    replaces_result = results.is_result(file)
    results.check_output(file, inputs=inputs, overwrite=overwrite)
    for plot in drawn:
        refuse_overwriting_inputs(plot, inputs)
    if not replaces_result:
        refuse_existing(drawn, overwrite=overwrite, what="exists without a geometry.json of nearfar beside it")
    return file


def _check(models: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse models and settings that would fail later, before the first model is measured."""
    if not models:
        raise NearfarError("no model given; name one or more.")
    for model in models.values():
        if not callable(model):
            locate(model)
        elif given := [key for key, value in settings.items() if value is not None]:
            raise NearfarError(f"{given[0]} is a setting of a model folder or hub name; a function has its own.")


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


def _project(data: GeometryData, layout: Encode) -> Projection | None:
    """The positions of the plotted texts, by their ``layout``; None if there is nothing to plot."""
    if data.extremes is None and data.labelled is None:
        return None

    def positions(texts: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray(layout(texts), np.float64).round(3)

    similar, dissimilar, labelled = [], [], dict[str, list[Any]]()
    if data.extremes is not None:
        pairs = positions([text for pair in chain(*data.extremes) for text in pair[:2]]).reshape(-1, 4).tolist()
        most = len(data.extremes[0])
        similar, dissimilar = pairs[:most], pairs[most:]
    if data.labelled is not None:
        chosen, labels = data.labelled
        for label, point in sorted(zip(labels, positions(chosen).tolist(), strict=True), key=itemgetter(0)):
            labelled.setdefault(label, []).append(point)
    return Projection(similar=similar, dissimilar=dissimilar, labelled=labelled)


def _known_vectors(known: Mapping[str, NDArray[Any]], texts: Sequence[str]) -> NDArray[Any]:
    return np.stack([known[text] for text in texts])


def _layers(encoder: "Encoder", subsets: Subsets, *, progress: bool) -> dict[str, list[float | None]]:
    """Pooling -> Spearman x 100 over all pairs for each layer, as evaluating with ``layer:K:pooling`` gives it."""
    from nearfar.encoder.encoder import layer_embeddings

    texts = list(dict.fromkeys(text for pair in chain(*subsets.values()) for text in pair[:2]))
    scores: dict[str, list[float | None]] = {}
    for (_, pooling), vectors in layer_embeddings(encoder, texts, progress=progress).items():
        encode = dict(zip(texts, vectors, strict=True))
        scored = evaluate_sts(
            partial(_known_vectors, encode),
            {"task": subsets},
            similarity=encoder.similarity,
            resamples=0,
        )
        scores.setdefault(pooling, []).append(scored.tasks["task"].spearman.all.score)
    return scores


def _draw(folder: Path, found: Mapping[str, ModelGeometry], data: GeometryData) -> list[str]:
    """Draw all plots that there is data for, and return their file names."""
    plots.spectra({name: model.spectrum for name, model in found.items()}, folder / "spectrum.png")
    drawn = ["spectrum.png"]
    layers = {name: model.layers for name, model in found.items() if model.layers is not None}
    known = [score for by_pooling in layers.values() for score in chain(*by_pooling.values()) if score is not None]
    for name, file in _file_names(list(layers)).items():
        label = f"Spearman x 100 on {data.described['task'].spec}"
        limits = (min(known), max(known)) if known else None
        plots.save(plots.layer_map(layers[name], title=name, label=label, limits=limits), folder / file)
        drawn.append(file)
    positions = {name: model.projection for name, model in found.items() if model.projection is not None}
    for file, drawing, shown in (
        ("pairs.png", plots.connected_pairs, data.extremes),
        ("labels.png", plots.labelled_texts, data.labelled),
    ):
        if shown is not None:
            plots.save(drawing(positions), folder / file)
            drawn.append(file)
    return drawn


def _file_names(names: Sequence[str]) -> dict[str, str]:
    """Model -> file name of its heat map of layers; the names are distinct."""
    files: dict[str, str] = {}
    for name in names:
        stem = "layers-" + re.sub(r"[^\w.-]+", "-", name).strip("-")
        numbered = chain([f"{stem}.png"], (f"{stem}-{number}.png" for number in count(2)))
        files[name] = next(file for file in numbered if file not in files.values())
    return files
