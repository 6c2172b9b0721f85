"""Bring the index of a file up to date: encode the texts that are new, keep the vectors of all others."""

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nearfar.commands.search.checks import (
    check_folder,
    check_settings,
    check_source,
    describe_source,
    open_partial,
    open_unchanged,
)
from nearfar.commands.search.corpus import Corpus
from nearfar.commands.search.extend import extend_index, survey_rows
from nearfar.disk import folder_lock
from nearfar.neighbours.index import (
    REBUILD,
    IndexReader,
    SearchIndex,
    is_promotable,
    promote_rebuild,
    remove_index,
)
from nearfar.neighbours.manifest import MANIFEST
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

BLOCK = 2**14
"""Number of rows in a block, which is encoded and saved as a whole."""


@dataclass(frozen=True)
class IndexUpdate:
    """What bringing an index up to date did."""

    state: Literal["unchanged", "new", "extended", "changed"]
    rows: int
    texts: int
    """Number of distinct texts."""
    encoded: int
    """Number of distinct texts that were encoded now."""
    truncated: int
    """Number of distinct texts in the index that are longer than the encoder reads."""


def update_index(
    folder: Path,
    corpus: Corpus,
    encoder: "Encoder",
    settings: dict[str, Any],
    *,
    bf16: bool = False,
    rebuild: bool = False,
    shared: bool = False,
    block: int = BLOCK,
    progress: bool = False,
) -> tuple[IndexReader, IndexUpdate]:
    """Make the index in ``folder`` that of ``corpus``, and open it.

    Rows that were added at the end are appended. If other rows changed, the index is written again in its subfolder
    ``rebuild``, with the vectors of all texts that it has already, and then replaced. Finished blocks are never lost:
    the next call continues after the last one. A file whose size, time and inode are those of the last call is not
    read.

    Args:
        folder: the index.
        corpus: the rows.
        encoder: encodes the texts.
        settings: what determines the vectors and columns; an index with other settings is refused.
        bf16: encode in bfloat16.
        rebuild: remove an existing index first.
        shared: whether ``folder`` was named by the user, so that it may be the index of another file.
        block: number of rows in a block.
        progress: show a progress bar.

    Raises:
        NearfarError: the folder is no index, or is damaged, of other settings, in use or not writable; a row of the
            corpus is malformed, or there is none; the corpus changes while it is read.
    """
    check_folder(folder)
    dim: int = settings.get("dimensions") or encoder.dim
    if not rebuild and (found := open_unchanged(folder, corpus, settings)) is not None:
        return found.reader(), _outcome(found, "unchanged", 0)
    with folder_lock(folder, what=folder, remove_if_empty=True, flag="--index"):
        if rebuild:
            remove_index(folder)
        elif is_promotable(folder):
            promote_rebuild(folder)
        index = SearchIndex.open(folder) if (folder / MANIFEST).exists() else None
        if index is not None:
            check_settings(index, settings)
        partial = open_partial(folder, settings)
        source = describe_source(corpus.path)
        stored = [one.row_hashes for one in (index, partial) if one is not None]
        survey = survey_rows(corpus, stored)
        if index is None:
            state: Literal["unchanged", "new", "extended", "changed"] = "new"
            target, start, cache = SearchIndex.create(folder, settings, dim), 0, None
        elif survey.equal[0] == index.manifest.rows:
            unchanged = index.manifest.complete and survey.rows == index.manifest.rows
            state = "unchanged" if unchanged else "extended" if index.manifest.complete else "new"
            target, start, cache = index, survey.equal[0], None
        else:
            if shared:
                check_source(index, corpus)
            (folder / REBUILD).mkdir(exist_ok=True)
            state, cache = "changed", index.reader()
            target = partial or SearchIndex.create(folder / REBUILD, settings, dim)
            start = survey.equal[-1] if partial else 0
            target.truncate(start)
        encoded = 0
        if start < survey.rows:
            encoded = extend_index(
                target, corpus, survey, encoder, cache=cache, start=start, bf16=bf16, block=block, progress=progress
            )
        now = describe_source(corpus.path)
        with suppress(NearfarError) if state == "unchanged" else nullcontext():
            target.finish(now if now == source else {"path": now["path"]})
        if target is not index and index is not None:
            promote_rebuild(folder)
        elif (folder / REBUILD).exists():
            remove_index(folder / REBUILD)
            (folder / REBUILD).rmdir()
        final = SearchIndex.open(folder)
        return final.reader(), _outcome(final, state, encoded)


def _outcome(
    index: SearchIndex, state: Literal["unchanged", "new", "extended", "changed"], encoded: int
) -> IndexUpdate:
    found = index.manifest
    return IndexUpdate(state, found.rows, found.texts, encoded, found.truncated)
