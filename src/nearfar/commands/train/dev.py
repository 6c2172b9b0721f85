"""What chooses the best step of a run: scored pairs, held-out rows, agreement with a teacher, or nothing."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from nearfar.data.hold_out import DEV, TEST, WHAT, HeldOut
from nearfar.data.paths import as_path, is_file
from nearfar.runs.held_out import DOCUMENTS, TASK
from nearfar.types import NearfarError, Precision, ScoredPair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nearfar.data.hold_out import VoteTask
    from nearfar.data.retrieval import RetrievalTask
    from nearfar.data.rows import TextData
    from nearfar.encoder.encoder import Encoder

FEWEST_DOCUMENTS = 200
"""Small files have a quarter of their training rows as such documents, so that evaluations are no longer than training,
but no fewer than this."""
GEOMETRY_TEXTS = 1000
"""Number of training texts whose geometry is measured where nothing is scored."""
SENTENCES = "the held-out sentences"
_DEV_PAIRS_HINT = (
    "\n  Give a file with the columns score, sentence1 and sentence2 by "
    "--evaluate-on FILE, use generated pairs by --evaluate-on microworld:dev, or set NEARFAR_DATA to a folder that "
    "holds STS-B."
)


class DevScore(NamedTuple):
    """A score on the dev set, in [-1, 1]; higher is better."""

    value: float
    spread: float | None = None
    """The standard deviation of the score of a held-out row, as :func:`smallest_difference` takes it."""


class Measured(NamedTuple):
    """Embeddings, and a function that scores them, which is called after geometry has been measured."""

    score: Callable[[], DevScore | None]
    """None where there is nothing to score."""
    vectors: "NDArray[np.float32]"
    """Embeddings of distinct texts [texts, dim]."""
    positives: "tuple[NDArray[np.float32], NDArray[np.float32]] | None" = None
    """Embeddings of the two sides of positive pairs, each [pairs, dim]."""


class Encoded:
    """The embeddings of texts, each of which is encoded once."""

    def __init__(
        self, encode: "Callable[..., NDArray[np.float32]]", texts: Sequence[str], precision: Precision
    ) -> None:
        self.places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        self.vectors = encode(list(self.places), precision=precision, check_finite=False)

    def __call__(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """The embeddings of some of the texts [texts, dim]."""
        return self.vectors[[self.places[text] for text in texts]]


@dataclass(frozen=True, kw_only=True)
class DevSet:
    """What chooses the best step."""

    name: str
    """In messages: stsb:dev, or the held-out dev rows."""
    shown: str
    """In the lines of the progress display: "the dev pairs"."""
    metric: str | None
    """The name of the score; None where nothing is scored, so that the last weights are kept."""
    measure: "Callable[[Encoder, Precision], Measured]"
    rows: Sequence[Sequence[object]] = ()
    """Its texts, row by row, with scores if there are any: for fingerprints."""
    facts: list[str] = field(default_factory=list)
    """Sentences to print before training."""
    count: str = ""
    """Its size, for a dry run."""


def load_dev_pairs(spec: str, *, otherwise: str = "Without --evaluate-on, rows of --data are held out.") -> DevSet:
    """The dev set of ``--evaluate-on``: scored pairs, scored by Spearman's correlation.

    ``otherwise`` ends the message about a named set that is missing.

    Raises:
        NearfarError: they are missing or malformed, or no correlation is defined on them; it says how to name others.
    """
    from nearfar.data.rows import load_pairs

    try:
        pairs = load_pairs(spec)
    except NearfarError as error:
        known = False
        with suppress(NearfarError):
            known = is_file(as_path(spec))
        raise NearfarError(f"--evaluate-on: {error}{'' if known else f'{_DEV_PAIRS_HINT} {otherwise}'}") from error
    return _scored(pairs, spec, shown="the dev pairs", advice="Name other pairs by --evaluate-on.")


def held_out_dev(held_out: HeldOut) -> DevSet:
    """The dev part of held-out rows, with the measure that fits them.

    Pairs, triplets and NLI rows: mean reciprocal rank of the positive among at most :data:`DOCUMENTS` documents.
    Labelled texts: accuracy of a vote of the nearest of as many training rows. Scored pairs: Spearman's correlation.

    Raises:
        NearfarError: scored pairs on which no correlation is defined.
    """
    name, shown = "the held-out dev rows", "the held-out rows"
    documents = min(DOCUMENTS, max(FEWEST_DOCUMENTS, held_out.training_rows // 4))
    if held_out.kind == "scored":
        pairs = held_out.pairs(DEV)
        return _scored(pairs, name, shown=shown, advice="Hold out more rows by --hold-out NUMBER.")
    if held_out.kind == "labelled":
        labelled = held_out.vote(DEV, training=documents)
        measure = partial(_vote, task=labelled)
        count = f"accuracy of a vote among {len(labelled.training_texts):,} training rows"
        return DevSet(name=name, shown=shown, metric="accuracy", measure=measure, count=count)
    retrieval = held_out.retrieval(DEV, documents=documents)
    count = f"MRR@10 among {len(retrieval.documents):,} documents"
    return DevSet(name=name, shown=shown, metric="mrr@10", measure=partial(_rank, task=retrieval), count=count)


def _vote(encoder: "Encoder", precision: Precision, task: "VoteTask") -> Measured:
    from nearfar.evaluation.transfer import neighbour_vote

    encoded = Encoded(encoder.encode, [*task.texts, *task.training_texts], precision)

    def score() -> DevScore:
        sides, device = (encoded(task.texts), encoded(task.training_texts)), str(encoder.device)
        predicted = neighbour_vote(*sides, task.training_labels, similarity=encoder.similarity, device=device)
        share = sum(one == other for one, other in zip(predicted, task.labels, strict=True)) / len(predicted)
        return DevScore(share, (share * (1 - share)) ** 0.5)

    return Measured(score, encoded.vectors)


def hold_out_sentences(rows: "TextData", size: float | None, *, source: str) -> "tuple[TextData, list[str]]":
    """Hold out a share (0 to 0.5) or a number of sentences, None for the default; gives the others, and these.

    Which ones depends on the texts alone, as in :mod:`nearfar.data.hold_out`.

    Raises:
        NearfarError: there are too few sentences.
    """
    import numpy as np

    from nearfar.data.fingerprints import text_hashes
    from nearfar.data.hold_out import number_to_hold_out, take_rows

    hashes = text_hashes(text for (text,) in rows.rows)
    wanted = number_to_hold_out(len(rows.rows), size, source=source)
    chosen = hashes <= np.sort(hashes)[wanted - 1]  # texts that differ only in case or white space share a hash
    kept = take_rows(rows, np.flatnonzero(~chosen).tolist())
    texts = [rows.rows[place][0] for place in np.flatnonzero(chosen)]
    return replace(kept, held_out=len(texts)), texts


def agreement_dev(texts: Sequence[str], teacher: str) -> DevSet:
    """Held-out sentences as a dev set, scored by how well the student agrees with its ``teacher``.

    The measure is Spearman's correlation between the student's and the teacher's cosines of all pairs of sentences.
    """
    import numpy as np

    upper = np.triu_indices(len(texts), 1)

    def cosines(vectors: "NDArray[np.float32]") -> "NDArray[np.float32]":
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        found: NDArray[np.float32] = (unit @ unit.T)[upper]
        return found

    @cache
    def targets(device: str, precision: Precision) -> "NDArray[np.float32]":
        from nearfar.encoder.encoder import Encoder

        return cosines(Encoder.from_pretrained(teacher, device=device).encode(texts, precision=precision))

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        from nearfar.evaluation.correlation import spearman, undefined_reason

        vectors = encoder.encode(texts, precision=precision, check_finite=False)

        def score() -> DevScore:
            expected, found = targets(str(encoder.device), precision), cosines(vectors)
            if (reason := undefined_reason(expected, found)) is not None:
                raise NearfarError(f"{SENTENCES}: no correlation to choose the best step by: {reason}.")
            return DevScore(spearman(expected, found))

        return Measured(score, vectors)

    count = f"{len(texts):,} sentences, Spearman of the student's cosines with the teacher's"
    facts = [f"dev set: {count}; these sentences are not trained on"]
    about: dict[str, Any] = {"rows": [(text,) for text in texts], "facts": facts, "count": count}
    return DevSet(name=SENTENCES, shown=SENTENCES, metric="spearman", measure=measure, **about)


def no_dev(texts: Sequence[str], *, why: str) -> DevSet:
    """No dev set: the last weights are kept, and only the geometry of training texts is measured."""
    distinct = list(dict.fromkeys(texts))
    chosen = distinct[:: -(-len(distinct) // GEOMETRY_TEXTS)]

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        return Measured(lambda: None, encoder.encode(chosen, precision=precision, check_finite=False))

    fact = f"no dev set, because {why}: no step is chosen, and the weights of the last step are kept"
    shown = f"{len(chosen):,} training texts"
    return DevSet(name="no dev set", shown=shown, metric=None, measure=measure, facts=[fact], count="none")


def finds(held_out: HeldOut, spread: float | None = None) -> str:
    """The smallest difference that the test rows find, in words, from the ``spread`` of the start's dev scores.

    Without one, as before anything is encoded, from a typical one.
    """
    from nearfar.data.fingerprints import units_of_rows
    from nearfar.evaluation.statistics import SIMILARITY_TO_START, TYPICAL_SPREAD, smallest_difference

    tested, units = held_out.anchors(TEST), None
    if held_out.kind == "scored":  # pairs that share a text are one unit
        units = units_of_rows(held_out.text_rows(TEST))
    count = tested if units is None else max(units) + 1
    similarity, bound = SIMILARITY_TO_START[held_out.metric], float(held_out.kind != "scored")
    smallest = smallest_difference(count, similarity, spread or TYPICAL_SPREAD, bound=bound) if count > 1 else 1
    points = 100 * smallest
    said = f"a difference of {points:.1f} points or more in 8 of 10 cases" if points < 100 else "no difference"
    typical = "" if spread or points >= 100 else ", if scores vary as they typically do"
    more = "" if held_out.folds else "; --hold-out NUMBER holds out more"
    return f"the {tested:,} test {WHAT[held_out.kind]} find {said}{typical}{more}"


def _scored(pairs: Sequence[ScoredPair], source: str, *, shown: str, advice: str) -> DevSet:
    """Scored pairs as a dev set. Positive pairs are those with a score of at least 0.8 of the highest."""
    from nearfar.evaluation.correlation import undefined_reason

    gold, texts = [pair.score for pair in pairs], [text for pair in pairs for text in pair[:2]]
    reason = undefined_reason(gold, gold) or ("all texts are equal" if len(set(texts)) < 2 else None)
    if reason is not None:
        raise NearfarError(f"{source}: no correlation to choose the best step by: {reason}. {advice}")
    near = [pair for pair in pairs if pair.score >= 0.8 * max(gold)]

    def measure(encoder: "Encoder", precision: Precision) -> Measured:
        from nearfar.evaluation.statistics import correlation_spread
        from nearfar.evaluation.sts import evaluate_sts

        encoded = Encoded(encoder.encode, texts, precision)

        def score() -> DevScore:
            scored = evaluate_sts(encoded, {source: {source: pairs}}, similarity=encoder.similarity, resamples=0)
            if source in scored.unavailable:
                raise NearfarError(f"{source}: cannot be scored: {scored.unavailable[source]}.")
            estimate = scored.tasks[source].spearman.all
            if estimate.score is None:
                raise NearfarError(f"{source}: no correlation to choose the best step by: {estimate.reason}.")
            return DevScore(estimate.score / 100, correlation_spread(estimate.score / 100))

        first, second = encoded([pair[0] for pair in near]), encoded([pair[1] for pair in near])
        return Measured(score, encoded.vectors, (first, second) if near else None)

    return DevSet(
        name=source, shown=shown, metric="spearman", measure=measure, rows=pairs, count=f"{len(pairs):,} pairs"
    )


def _rank(encoder: "Encoder", precision: Precision, task: "RetrievalTask") -> Measured:
    import numpy as np

    from nearfar.evaluation.retrieval import evaluate_retrieval

    queries = Encoded(encoder.encode_query, task.queries, precision)
    documents = Encoded(encoder.encode_document, task.documents, precision)

    def score() -> DevScore:
        how: dict[str, Any] = {"similarity": encoder.similarity, "device": str(encoder.device)}
        scored = evaluate_retrieval(queries, documents, {TASK: task}, **how, resamples=0)
        if TASK in scored.unavailable:
            raise NearfarError(f"the held-out rows cannot be scored: {scored.unavailable[TASK]}.")
        found = scored.tasks[TASK].measures["mrr@10"].score
        assert found is not None
        return DevScore(found / 100, float(np.std(scored.tasks[TASK].per_query["mrr@10"])))

    positives = (queries(task.queries), documents([task.documents[next(iter(grades))] for grades in task.relevant]))
    others = [text for text in queries.places if text not in documents.places]
    return Measured(score, np.concatenate([documents.vectors, queries(others)]), positives)
