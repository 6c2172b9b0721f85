"""What scores a pair of anchor and document: an encoder's vectors of them, or a reranker's or a table's scores."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float32, Int64

from nearfar.commands.encode.vectors import read_vectors_file
from nearfar.data.files import is_known
from nearfar.data.triplets import load_tuples
from nearfar.disk import new_file, write_npy
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.weights import locate
from nearfar.neighbours import pair_similarities
from nearfar.neighbours.exact import Neighbours, nearest, nearest_owners
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.types import NearfarError, Precision, VectorSimilarity

CHUNK = 2**9
"""Number of anchors whose nearest documents are searched together, and of pairs that are scored together."""
Rescore: TypeAlias = Callable[[Sequence[tuple[str, str]], Path], Float32[np.ndarray, " pairs"]] | None
"""The scores of pairs of query and document, NaN for one without; the folder keeps what was computed. None for those of
the encoder."""


def open_scores(name: str, *, device: str | None, precision: Precision) -> Rescore:
    """The scores in the table ``name``, else those that the cross-encoder of this name gives.

    A table has pairs with scores, such as query, document, score, or triplets with the scores of both
    (:func:`nearfar.data.triplets.score_columns`). A cross-encoder reads both texts in one sequence; its score is its
    logit. Its scores are kept in the folder of the vectors, so that another call does not compute them again.

    Raises:
        NearfarError: a table that cannot be read or has no scores; a model that cannot be opened, or has labels.
    """
    if is_known(Path(name)):
        known: dict[tuple[str, ...], float] = {}
        loaded = load_tuples(name, find_negatives=True, scores=True)
        for (query, *documents), scores in zip(loaded.rows, loaded.targets or (), strict=True):
            known |= {(query, document): score for document, score in zip(documents, scores, strict=True)}
        return lambda pairs, _: np.array([known.get(pair, np.nan) for pair in pairs], dtype=np.float32)
    try:
        folder = locate(name)
        classifier, fingerprint = Classifier.from_pretrained(folder, device=device), fingerprint_model(folder)
    except NearfarError as error:
        raise NearfarError(f"--rescore {name}: {error} Scores of other models can be given in a table.") from error
    if labels := classifier.label_names:
        raise NearfarError(f"--rescore {name}: classifies into {len(labels)} labels, and should give one score.")
    truncated: list[object] = []

    def score(pairs: Sequence[tuple[str, str]], kept: Path) -> Float32[np.ndarray, " pairs"]:
        content = "\n".join([f"{fingerprint} {precision}", *map("\t".join, pairs)])
        file = kept / f"{hashlib.sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.npy"
        logits = read_vectors_file(file, (len(pairs), 1))
        if logits is None:
            with warnings.catch_warnings(record=True) as given:
                logits = classifier.predict(pairs, precision=precision)
            for warning in given if not truncated else ():
                warnings.warn(f"--rescore {name}: {warning.message}", stacklevel=2)
            truncated.extend(given)
            with new_file(file) as temporary:
                write_npy(temporary, logits.dtype, logits.shape, [logits])
        return logits[:, 0]

    return score


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """The vectors of anchors and documents, and what scores a pair of them.

    A document is one passage, or with ``chunk`` several, and has the score of the one that is nearest to the anchor.
    """

    anchors: list[str]
    passages: list[str]
    owners: Int64[np.ndarray, " passages"]
    """The document of each passage, in ascending order."""
    queries: Float32[np.ndarray, "anchors dim"]
    vectors: Float32[np.ndarray, "passages dim"]
    similarity: VectorSimilarity
    device: str
    rescore: Rescore
    folder: Path
    """What ``rescore`` keeps its scores in."""

    @property
    def is_whole(self) -> bool:
        """Whether each document is one passage, so that its number is that of its passage."""
        return len(self.passages) == self.owners[-1] + 1

    def nearest(self, anchors: slice, depth: int) -> Neighbours:
        """The ``depth`` nearest documents of some anchors, with their similarities."""
        how: dict[str, Any] = {"similarity": self.similarity, "device": self.device}
        if self.is_whole:
            return nearest(self.queries[anchors], self.vectors, depth, **how)
        return nearest_owners(self.queries[anchors], self.vectors, self.owners, depth, **how)

    def passages_of(
        self, anchors: Int64[np.ndarray, " pairs"], documents: Int64[np.ndarray, " pairs"]
    ) -> tuple[Int64[np.ndarray, " pairs"], Float32[np.ndarray, " pairs"]]:
        """The passage of each document that is nearest to its anchor, of equal ones the first; its similarity."""
        passages, similarities = np.array(documents), np.empty(len(anchors), dtype=np.float32)
        for start in range(0, len(anchors), CHUNK):
            block = slice(start, start + CHUNK)
            first, end = (np.searchsorted(self.owners, documents[block], side) for side in ("left", "right"))
            pairs = np.repeat(np.arange(len(first)), end - first)
            starts = np.cumsum(end - first) - (end - first)
            numbers = np.arange(len(pairs)) + (first - starts)[pairs]
            own = pair_similarities(self.queries[anchors[block]][pairs], self.vectors[numbers], self.similarity)
            best = np.lexsort((-own, pairs))[starts]
            passages[block], similarities[block] = numbers[best], own[best]
        return passages, similarities

    def shown(
        self, anchors: Int64[np.ndarray, " pairs"], documents: Int64[np.ndarray, " pairs"]
    ) -> Int64[np.ndarray, " pairs"]:
        """The passage that stands for each document in the output."""
        return documents if self.is_whole else self.passages_of(anchors, documents)[0]

    def scores(
        self, anchors: Int64[np.ndarray, " pairs"], documents: Int64[np.ndarray, " pairs"]
    ) -> Float32[np.ndarray, " pairs"]:
        """The scores of pairs of an anchor and a document."""
        passages, scores = self.passages_of(anchors, documents)
        for start in range(0, len(scores) if self.rescore else 0, CHUNK):
            block = slice(start, start + CHUNK)
            both = zip(anchors[block], passages[block], strict=True)
            assert self.rescore is not None
            scores[block] = self.rescore([(self.anchors[a], self.passages[b]) for a, b in both], self.folder)
        return scores
