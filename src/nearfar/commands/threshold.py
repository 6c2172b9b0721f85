"""``nearfar threshold``: the score from which on few of the shown hits are wrong, in a file for search and dedup."""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from nearfar.commands.encode.vectors import OpenEncoder, open_encoder
from nearfar.config.calls import accepts_settings
from nearfar.config.encoding import ThresholdConfig
from nearfar.data.catalog import find
from nearfar.data.cells import Location, bad_cell, find_columns, score_check
from nearfar.data.labelled import PAIR
from nearfar.data.memory import takes_rows
from nearfar.data.retrieval import load_retrieval
from nearfar.data.sources import column_names
from nearfar.data.triplets import pair_columns
from nearfar.disk.checks import check_output_file, path_errors
from nearfar.disk.work import join_changes, list_changes
from nearfar.encoder.precision import check_computing
from nearfar.encoder.prompts import Role
from nearfar.evaluation.results import ThresholdResult, provenance
from nearfar.evaluation.retrieval import best_hits
from nearfar.evaluation.thresholds import Candidates, ThresholdSearch, calibrate
from nearfar.neighbours import pair_similarities
from nearfar.types import Encode, NearfarError, VectorSimilarity


@takes_rows
@accepts_settings(ThresholdConfig)
@path_errors()
def threshold(config: ThresholdConfig, *, progress: bool = True) -> ThresholdResult:
    """The lowest score from which on the share of wrong hits is at most ``config.error``; written to ``config.output``.

    Settings can be given by name: ``threshold(model="runs/first", pairs="judged.tsv", output="threshold.json")``; see
    :class:`nearfar.ThresholdConfig`. Scores are those of :func:`nearfar.search`: cosines, or what the model's folder
    names. With probability ``config.confidence`` over the choice of the queries, the expected share of wrong ones among
    the hits that a query shows is at most ``config.error``, for queries that show any (Learn then Test:
    :mod:`nearfar.evaluation.thresholds` has test and proof). It holds for queries drawn like those of the data, and for
    hits chosen like those that were judged; not for other queries, and not for texts of another kind.

    With ``retrieval`` the collection is that of the task, and every hit that is not known to be relevant is wrong; so
    relevant documents that nobody judged make the threshold higher than it need be.

    Args:
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: an input, a column or the model is missing or unusable; a judgement is no number, or is neither 0
            nor 1 without ``right_from``; the output exists, is an input or cannot be written; there are too few
            queries, or no threshold reaches the error: the message says how many queries may, and which error is
            reached.
    """
    data, output = str(config.pairs or config.retrieval), Path(config.output)
    check_output_file(output, [data, config.corpus], overwrite=config.overwrite, suffixes=(".json",))
    check_computing(config.device, config.precision)
    judged = [] if config.pairs is None else list(read_judged(config.pairs, config))
    task = None if config.retrieval is None else load_retrieval(config.retrieval, corpus=config.corpus)
    opened = open_encoder(config.model, config.opening, config.precision)
    encoder, similarity = opened.encoder, opened.encoder.similarity
    settings = _settings(opened, similarity, ("query", "document"))
    how: dict[str, Any] = {"normalize": similarity == "cosine", "precision": settings["precision"]}
    as_query: Encode = partial(encoder.encode_query, progress=progress, **how)
    as_document: Encode = partial(encoder.encode_document, progress=progress, **how)
    if task is None:
        queries, texts, right = map(np.array, zip(*judged, strict=True))
        scores = pair_similarities(as_query(queries.tolist()), as_document(texts.tolist()), similarity)
    else:
        settings["top"], how = config.top, {"similarity": similarity, "device": str(encoder.device)}
        every = best_hits(as_query, as_document, task, depth=config.top, **how)
        relevant = [{task.documents[document] for document in grades} for grades in task.relevant]
        hits = [(query, score, text in relevant[query]) for query, own in enumerate(every) for text, score in own]
        queries, scores, right = map(np.array, zip(*hits, strict=True))
    candidates = Candidates(pandas.factorize(queries)[0], scores.astype(np.float64), right)
    search = ThresholdSearch(candidates, config.confidence, config.seed)
    chosen = search.choose(config.error)
    if chosen is None:
        raise NearfarError(f"{data}: {_why_none(search, config.error)}")
    found: dict[str, Any] = {name: getattr(config, name) for name in ("model", "error", "confidence")}
    found |= {"data": data, "settings": settings, "provenance": provenance(), "threshold": chosen[0]}
    found |= {"tested": len(np.unique(search.tested.queries)), **chosen[1]._asdict()}
    found |= {"low": search.lower_limit(chosen[1]), **calibrate(search.tested, search.pilot)}
    result = ThresholdResult(**found)
    result.save(output)
    return result


def _why_none(search: ThresholdSearch, error: float) -> str:
    """That no threshold was found, and what to do."""
    needed = search.queries_for(error)
    more = f"About {needed:,.0f} queries in place of {search.count:,} may find one."
    more = "None shows so small a share, so more queries do not help." if needed == math.inf else more
    larger = (percent / 100 for percent in range(1, 100) if percent / 100 > error)
    reached = next((f" These queries reach --error {one:g}." for one in larger if search.choose(one)), "")
    bound = f"the share of wrong hits at or below {error:g} with the confidence {search.confidence:g}"
    return f"no threshold keeps {bound}. {more}{reached}"


def read_judged(spec: str, config: ThresholdConfig) -> Iterator[tuple[Any, ...]]:
    """The judged pairs of a file or a named set: query, hit, and whether it is right.

    Raises:
        NearfarError: it cannot be found or read, a column is missing, a text is empty, or a judgement is no number, or
            neither 0 nor 1 without ``right_from``; the message names file, line and column.
    """
    limit, number = config.right_from, score_check()

    def judgement(value: object, column: str, where: Location) -> float:
        score = number({"true": 1, "false": 0}.get(str(value).lower(), value), column, where)
        if limit is None and score not in (0, 1):
            raise bad_cell(value, column, where, ", not 0 or 1. Say by --right-from N that N and more is right.")
        return score

    for table in find(spec, "scored"):
        names = column_names(table)
        texts = find_columns(names, ("query", "text")) or pair_columns(names) or PAIR
        label = config.label_column or ("label" if find_columns(names, ("label",)) else "score")
        entries = list(table.entries(texts, label, judgement))
        if not entries:
            raise NearfarError(f"{table.title}: holds no pairs.")
        yield from ((*entry.texts, entry.target >= (1 if limit is None else limit)) for entry in entries)


def _settings(
    opened: OpenEncoder, similarity: VectorSimilarity, roles: tuple[Role | None, Role | None], **more: object
) -> dict[str, Any]:
    """All that determines the similarity of two texts, encoded in these roles."""
    encoder = opened.encoder
    return {
        "model": opened.model,
        "similarity": similarity,
        "pooling": encoder.pooling,
        "precision": "bf16" if opened.bf16 else "fp32",
        "query_prompt": encoder.prompt_of(roles[0]),
        "document_prompt": encoder.prompt_of(roles[1]),
        "max_length": list(map(encoder.length_of, roles)),
        **{name: value for name, value in more.items() if value is not None},
    }


def apply_threshold(
    given: float | str | None, opened: OpenEncoder, similarity: VectorSimilarity, *, top: int | None, **settings: object
) -> tuple[float | None, ThresholdResult | None]:
    """A threshold that a command was given as a number or as a file, and the file's content.

    Args:
        given: the number or file.
        opened: the encoder.
        similarity: how vectors are compared.
        top: number of hits that a query shows; None where texts are compared that are no queries and documents.
        settings: others that determine scores, where they are given.

    Raises:
        NearfarError: the file is missing or damaged, or of another model, other settings or other hits.
    """
    if not isinstance(given, str):
        return given, None
    result = ThresholdResult.load(given)
    now = _settings(opened, similarity, ("query", "document") if top else (None, None), **settings)
    if "top" in result.settings:  # else it is of judged pairs, of which all are shown
        now["top"] = top
    words = {"model": "the model's weights or settings", "similarity": "the similarity"}
    if changes := list_changes(result.settings, now, words):
        raise NearfarError(
            f"--threshold {given}: is of another model or other settings: {join_changes(changes)}. Give the same ones, "
            "or make it again by nearfar threshold; dedup needs one of --pairs."
        )
    return result.threshold, result
