"""What chooses the best step of a run: held-out rows, scored pairs, a teacher's vectors, or nothing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines.whitening import CachedEncode
from nearfar.data import hold_out
from nearfar.data.fingerprints import text_hashes, units_of_rows
from nearfar.data.hold_out import DEV, TEST, HeldOut, VoteTask
from nearfar.data.retrieval import RetrievalTask
from nearfar.data.rows import TextData
from nearfar.evaluation import statistics
from nearfar.runs.held_out import DOCUMENTS, TASK
from nearfar.types import NearfarError, Precision, ScoredPair

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


FEWEST_DOCUMENTS = 200
"""Small files have a quarter of their training rows as such documents, so that evaluations are no longer than training,
but no fewer than this."""

GEOMETRY_TEXTS = 1000
MOST_TEXTS = 200_000
"""Number of training texts whose geometry is measured where nothing is scored."""

SENTENCES = "the held-out sentences"


class Measured(NamedTuple):
    """Embeddings, and their score."""

    vectors: NDArray[np.float32]
    """Embeddings of distinct texts [texts, dim]."""
    score: float | None = None
    """In [-1, 1], higher is better; None where there is nothing to score."""
    spread: float | None = None
    """The standard deviation of the score of a held-out row, as :func:`smallest_difference` takes it."""
    positives: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    """Embeddings of the two sides of positive pairs, each [pairs, dim]."""


def _encode_once(
    encode: Callable[..., NDArray[np.float32]], texts: Sequence[str], precision: Precision
) -> tuple[CachedEncode, NDArray[np.float32]]:
    """A function that has encoded each of the texts, and the embeddings of the distinct ones."""
    cached = CachedEncode(partial(encode, precision=precision, check_finite=False))
    return cached, cached(list(dict.fromkeys(texts)))


@dataclass(frozen=True, kw_only=True)
class DevSet:
    """What chooses the best step."""

    name: str
    """In messages and in the progress display: stsb:dev, or the held-out dev rows."""
    metric: str | None
    """The name of the score; None where nothing is scored, so that the last weights are kept."""
    measure: "Callable[[Encoder, Precision], Measured]"
    rows: Sequence[Sequence[object]] = ()
    """Its texts, row by row, with scores if there are any: for fingerprints."""
    facts: list[str] = field(default_factory=list)
    """Sentences to print before training."""
    count: str = ""
    """Its size, for a dry run."""
    held_out: HeldOut | None = None
    """The rows that are held out, of which some test the result; None if none do."""


def held_out_dev(held_out: HeldOut, facts: list[str]) -> DevSet:
    """The dev part of held-out rows, with the measure that fits them; ``facts`` say how they were held out.

    Pairs, triplets and NLI rows: mean reciprocal rank of the positive among at most :data:`DOCUMENTS` documents.
    Labelled texts: accuracy of a vote of the nearest of as many training rows. Scored pairs: Spearman's correlation.

    Raises:
        NearfarError: scored pairs on which no correlation is defined.
    """
    name = "the held-out dev rows"
    documents = min(DOCUMENTS, max(FEWEST_DOCUMENTS, held_out.training_rows // 4))
    about: dict[str, Any] = {"rows": held_out.text_rows(DEV), "facts": facts, "held_out": held_out}
    if held_out.kind == "scored":
        return replace(scored_dev(held_out.pairs(DEV), name), **about)
    if held_out.kind == "labelled":
        labelled = held_out.vote(DEV, training=documents)
        about |= {"metric": "accuracy", "measure": partial(_vote, task=labelled)}
        about["count"] = f"accuracy of a vote among {len(labelled.training_texts):,} training rows"
    else:
        retrieval = held_out.retrieval(DEV, documents=documents)
        about |= {"metric": "mrr@10", "measure": partial(_rank, task=retrieval)}
        about["count"] = f"MRR@10 among {len(retrieval.documents):,} documents"
    return DevSet(name=name, **about)


def _vote(encoder: "Encoder", precision: Precision, task: VoteTask) -> Measured:
    from nearfar.evaluation.transfer import neighbour_vote

    encode, vectors = _encode_once(encoder.encode, [*task.texts, *task.training_texts], precision)
    sides, device = (encode(task.texts), encode(task.training_texts)), str(encoder.device)
    predicted = neighbour_vote(*sides, task.training_labels, similarity=encoder.similarity, device=device)
    share = float(np.mean(np.array(predicted) == task.labels))
    return Measured(vectors, share, (share * (1 - share)) ** 0.5)


def hold_out_sentences(rows: TextData, size: float | None, *, source: str) -> tuple[TextData, list[str]]:
    """Hold out a share (0 to 0.5) or a number of sentences, None for the default; gives the others, and these.

    Which ones depends on the texts alone, as in :mod:`nearfar.data.hold_out`.

    Raises:
        NearfarError: there are too few sentences.
    """
    hashes = text_hashes(text for (text,) in rows.rows)
    wanted = hold_out.number_to_hold_out(len(rows.rows), size, source=source)
    chosen = hashes <= np.sort(hashes)[wanted - 1]  # texts that differ only in case or white space share a hash
    kept = hold_out.take_rows(rows, np.flatnonzero(~chosen))
    texts = [rows.rows[place][0] for place in np.flatnonzero(chosen).tolist()]
    return replace(kept, held_out=len(texts)), texts


def agreement_dev(texts: Sequence[str], teacher: str) -> DevSet:
    """Held-out sentences as a dev set, scored by how well the student agrees with its ``teacher``.

    The measure is Spearman's correlation between the student's and the teacher's cosines of all pairs of sentences.
    """
    upper = np.triu_indices(len(texts), 1)

    @cache
    def targets(device: str, precision: Precision) -> NDArray[np.float32]:
        from nearfar.encoder.encoder import Encoder

        vectors = Encoder.from_pretrained(teacher, device=device).encode(texts, normalize=True, precision=precision)
        return np.asarray((vectors @ vectors.T)[upper])

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        from nearfar.evaluation.correlation import spearman, undefined_reason

        vectors = encoder.encode(texts, normalize=True, precision=precision, check_finite=False)
        cosines = targets(str(encoder.device), precision), (vectors @ vectors.T)[upper]
        if (reason := undefined_reason(*cosines)) is not None:
            raise NearfarError(f"{SENTENCES}: no correlation to choose the best step by: {reason}.")
        return Measured(vectors, spearman(*cosines))

    count = f"{len(texts):,} sentences, Spearman of the student's cosines with the teacher's"
    facts = [f"dev set: {count}; these sentences are not trained on"]
    about: dict[str, Any] = {"rows": [(text,) for text in texts], "facts": facts, "count": count}
    return DevSet(name=SENTENCES, metric="spearman", measure=measure, **about)


def no_dev(
    texts: Iterable[str], *, why: str, folds: hold_out.Split | None = None, patience: int | None = None
) -> DevSet:
    """No dev set: the last weights are kept, and only the geometry of training texts is measured.

    ``folds`` test the result after training. ``patience`` is that of the user, None for a method's default.

    Raises:
        NearfarError: the run is to stop early, and nothing says when.
    """
    if patience is not None:
        raise NearfarError(
            f"--patience {patience}: no score says when to stop, because {why}. Name a dev set by --evaluate-on, hold "
            "out rows with positives, labels or scores, as by --hold-out 0.2, or leave --patience out."
        )
    distinct = list(dict.fromkeys(islice(texts, MOST_TEXTS)))
    chosen = distinct[:: -(-len(distinct) // GEOMETRY_TEXTS)]

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        return Measured(encoder.encode(chosen, precision=precision, check_finite=False))

    facts = [f"no dev set, because {why}: no step is chosen, and the weights of the last step are kept"]
    about: dict[str, Any] = {"metric": None, "measure": measure, "count": "geometry alone"}
    if folds is not None:
        about["held_out"] = folds.held_out
        facts += folds.facts
    return DevSet(name=f"{len(chosen):,} training texts", facts=facts, **about)


def finds(held_out: HeldOut, spread: float | None = None) -> str:
    """The smallest difference that the test rows find, in words, from the ``spread`` of the start's dev scores.

    Without one, as before anything is encoded, from a typical one.
    """
    kind, count = held_out.kind, held_out.anchors(TEST)
    shared = units_of_rows(held_out.text_rows(TEST)) if kind == "scored" else None  # pairs that share a text are a unit
    units = count if shared is None else max(shared) + 1
    similarity, bound = statistics.SIMILARITY_TO_START[held_out.metric], float(kind != "scored")
    smallest = statistics.smallest_difference(units, similarity, spread or statistics.TYPICAL_SPREAD, bound=bound)
    said, typical = "no difference", ""
    if units > 1 and smallest < 1:
        said = f"a difference of {100 * smallest:.1f} points or more in 8 of 10 cases"
        typical = "" if spread else ", if scores vary as they typically do"
    more = "" if held_out.folds else "; --hold-out NUMBER holds out more"
    return f"the {count:,} test {hold_out.WHAT[kind]} find {said}{typical}{more}"


def scored_dev(pairs: Sequence[ScoredPair], source: str) -> DevSet:
    """Scored pairs as a dev set, such as those of ``--evaluate-on``: scored by Spearman's correlation.

    Positive pairs are those with a score of at least 0.8 of the highest.

    Raises:
        NearfarError: no correlation is defined on them.
    """
    from nearfar.evaluation.correlation import undefined_reason

    undefined = f"{source}: no correlation to choose the best step by"
    gold, texts = [pair.score for pair in pairs], [text for pair in pairs for text in pair[:2]]
    if (reason := undefined_reason(gold, gold)) is not None:
        raise NearfarError(f"{undefined}: {reason}. Name other pairs by --evaluate-on, or hold out more rows.")
    near = [pair for pair in pairs if pair.score >= 0.8 * max(gold)]

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        from nearfar.evaluation.sts import evaluate_sts

        encode, vectors = _encode_once(encoder.encode, texts, precision)
        scored = evaluate_sts(encode, {source: {source: pairs}}, similarity=encoder.similarity, resamples=0)
        estimate = scored.tasks[source].spearman.all if source in scored.tasks else None
        if estimate is None or estimate.score is None:
            why = scored.unavailable[source] if estimate is None else estimate.reason
            raise NearfarError(f"{undefined}: {why}.")
        score, sides = estimate.score / 100, (encode([pair[0] for pair in near]), encode([pair[1] for pair in near]))
        return Measured(vectors, score, statistics.correlation_spread(score), sides if near else None)

    return DevSet(name=source, metric="spearman", measure=measure, rows=pairs, count=f"{len(pairs):,} pairs")


def _rank(encoder: "Encoder", precision: Precision, task: RetrievalTask) -> Measured:
    from nearfar.evaluation.retrieval import evaluate_retrieval

    queries, _ = _encode_once(encoder.encode_query, task.queries, precision)
    documents, vectors = _encode_once(encoder.encode_document, task.documents, precision)
    how: dict[str, Any] = {"similarity": encoder.similarity, "device": str(encoder.device)}
    scored = evaluate_retrieval(queries, documents, {TASK: task}, **how, resamples=0)
    if TASK in scored.unavailable:
        raise NearfarError(f"the held-out rows cannot be scored: {scored.unavailable[TASK]}.")
    ranks, score = scored.tasks[TASK].per_query["mrr@10"], scored.tasks[TASK].measures["mrr@10"].score
    assert score is not None
    positives = (queries(task.queries), documents([task.documents[next(iter(grades))] for grades in task.relevant]))
    others = dict.fromkeys(task.queries).keys() - set(task.documents)
    vectors = np.concatenate([vectors, queries([text for text in task.queries if text in others])])
    return Measured(vectors, score / 100, float(np.std(ranks)), positives)
