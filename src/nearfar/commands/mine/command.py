"""``nearfar mine``: hard negatives for pairs of texts, by exact search among the positives and a corpus."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from nearfar.commands.encode.output import output_lock
from nearfar.commands.encode.work_folder import WorkFolder, check_new
from nearfar.commands.mine.candidates import Candidates, gather
from nearfar.commands.mine.search import Mined, search
from nearfar.commands.mine.summary import MiningResult, Triplet, quantile_rows
from nearfar.commands.mine.table import check_table_suffix, write_table
from nearfar.config import flag
from nearfar.config.calls import accepts_settings
from nearfar.config.mining import MineConfig
from nearfar.data.rows import load_documents
from nearfar.data.triplets import load_tuples
from nearfar.disk import check_output_path, path_errors, refuse_overwriting_inputs, write_text
from nearfar.encoder.precision import check_computing, resolve
from nearfar.runs.fingerprints import fingerprint_model, fingerprint_rows
from nearfar.runtime.versions import __version__
from nearfar.types import NearfarError

COLUMNS, SCORE_COLUMNS = ("anchor", "positive", "negative"), ("positive_score", "negative_score")
_ROWS = 2**14
"""Number of pairs whose triplets are in memory at once."""
_WORDS = {
    "model_files": "the model's weights or settings",
    "pairs": "the pairs of --data",
    "documents": "the documents of --data and --corpus",
}


@accepts_settings(MineConfig)
@path_errors()
def mine(config: MineConfig, *, progress: bool = True) -> MiningResult:
    """Write triplets with hard negatives for the pairs in ``config.data`` to ``config.output``.

    Settings can be given by name: ``mine(model="runs/first", data="pairs.tsv", output="triplets.tsv")``; see
    :class:`nearfar.MineConfig`. Candidates are all distinct positives and the texts of ``config.corpus``, scored by the
    cosine of ``encode_query(anchor)`` and ``encode_document(text)``. For an anchor with positives of scores p₁ ... pₙ
    and p = min pᵢ, a negative's score s satisfies s <= p - \\|p\\| * relative_margin, and s <= p - absolute_margin,
    s <= max_score and s >= min_score where these are set (Moreira et al. 2024, arXiv:2407.15831). The positives of an
    anchor, and texts with the same letters and digits as the anchor or one of its positives, are never negatives.

    The output has one row for each pair and negative, in the order of the pairs, with the columns anchor, positive and
    negative; ``info-nce`` trains on it with ``negative_column="negative"``. The summary is written to
    ``OUTPUT.summary.json``. Vectors and search results are kept in ``OUTPUT.partial`` until the output is complete, and
    ``resume`` continues there. Search is exact and blocked: in memory are the texts and a few blocks.

    Args:
        config: the settings.
        progress: show progress bars.

    Raises:
        NearfarError: an input, a column or the model is missing or unusable; the output has another suffix, exists, is
            an input or cannot be written; an interrupted run exists and ``resume`` is not set, or it had other inputs;
            no pair has a negative within the limits.
    """
    output, summary = Path(config.output), summary_file(config.output)
    check_table_suffix(output, "--output")
    check_output_path(output)
    check_computing(config.device, config.precision)
    refuse_overwriting_inputs(output, [*config.data, *config.corpus])
    check_new({"--output": output, "--output (its summary)": summary}, resume=config.resume, overwrite=config.overwrite)
    columns = (config.anchor_column, config.positive_column)
    pairs = load_tuples(config.data, columns=columns, limit=config.limit).rows
    candidates = gather(pairs, load_documents(config.corpus, column=config.corpus_column))

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.weights import locate

    folder = locate(config.model)
    encoder = Encoder.from_pretrained(folder, **config.opening)
    settings = {
        "model_files": fingerprint_model(folder),
        "pairs": fingerprint_rows(pairs),
        "documents": fingerprint_rows(candidates.documents),
        "pooling": encoder.pooling,
        "max_length": encoder.max_length,
        "query_prompt": encoder.query_prompt,
        "document_prompt": encoder.document_prompt,
        "precision": resolve(config.precision, config.device),
    }
    with output_lock(output):
        work = WorkFolder(output, settings, _WORDS, resume=config.resume)
        mined = search(work, encoder, candidates, config, progress=progress)
        result = _summarise(candidates, mined, config)
        names = (*COLUMNS, *(SCORE_COLUMNS if config.with_scores else ()))
        rows = (row[: len(names)] for row in list_triplets(candidates, mined))
        write_table(work.path / "triplets", output.suffix, names, rows)
        content = {"nearfar": __version__, "settings": asdict(config), **result.to_dict()}
        write_text(work.path / "summary", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        work.finish({work.path / "summary": summary, work.path / "triplets": output})
    return result


def summary_file(output: str | Path) -> Path:
    """The path of the summary that belongs to an output file."""
    return Path(f"{output}.summary.json")


def list_triplets(candidates: Candidates, mined: Mined) -> Iterator[Triplet]:
    """The rows of the output, in the order of the pairs, nearest negative first."""
    anchors, documents = candidates.anchors, candidates.documents
    for start in range(0, len(mined.positive_scores), _ROWS):
        part = slice(start, start + _ROWS)
        own = candidates.anchor_of[part]
        for anchor, positive, score, ids, scores in zip(
            own.tolist(),
            candidates.positive_of[part].tolist(),
            mined.positive_scores[part].tolist(),
            mined.ids[own].tolist(),
            mined.scores[own].tolist(),
            strict=True,
        ):
            for negative, negative_score in zip(ids, scores, strict=True):
                if negative >= 0:
                    texts = (anchors[anchor], documents[positive], documents[negative])
                    yield Triplet(*texts, round(score, 6), round(negative_score, 6))


def _summarise(candidates: Candidates, mined: Mined, config: MineConfig) -> MiningResult:
    """The counts and examples of what was mined.

    Raises:
        NearfarError: no pair has a negative.
    """
    found = (mined.ids >= 0).sum(axis=1)[candidates.anchor_of]
    triplets = int(found.sum())
    dropped = {name: count for name, count in mined.dropped.items() if count}
    if not triplets:
        start = "lower --range-min, " if config.range_min else ""
        causes = ", ".join(f"{flag(name)} dropped {count:,}" for name, count in dropped.items())
        raise NearfarError(
            f"No pair has a negative: of {mined.candidates:,} candidates {causes or 'none is in the range of ranks'}. "
            f"Relax the limits, {start}increase --range-max or add a --corpus; {config.output}.partial keeps the "
            "embeddings for --resume."
        )
    scores = mined.scores[candidates.anchor_of]
    chosen = quantile_rows(scores[np.isfinite(scores)])
    wanted = set(chosen)
    shown = {number: row for number, row in enumerate(list_triplets(candidates, mined)) if number in wanted}
    return MiningResult(
        pairs=len(found),
        anchors=len(candidates.anchors),
        documents=len(candidates.documents),
        triplets=triplets,
        without_negative=int((found == 0).sum()),
        filled=int(mined.filled[candidates.anchor_of].sum()),
        searched=mined.depth,
        candidates=mined.candidates,
        dropped=mined.dropped,
        positive_score=float(np.average(mined.positive_scores, weights=found)),
        negative_score=float(scores[np.isfinite(scores)].mean(dtype=np.float64)),
        examples=tuple(shown[number] for number in chosen),
    )
