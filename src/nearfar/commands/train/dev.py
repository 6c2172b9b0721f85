"""The dev set of a run, and the evaluation that chooses the best step."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nearfar.config import TrainConfig
from nearfar.data.paths import as_path, is_file
from nearfar.types import NearfarError, ScoredPair

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.encoder.encoder import Encoder
    from nearfar.training.loop import Evaluation


_DEV_PAIRS_HINT = (
    "\n  The dev set chooses the best step. Give a file with the columns score, sentence1 and sentence2 by "
    "--evaluate-on FILE, use generated pairs by --evaluate-on microworld:dev, or set NEARFAR_DATA to a folder that "
    "holds STS-B."
)


def load_dev_pairs(config: TrainConfig) -> list[ScoredPair]:
    """The pairs of the dev set.

    Raises:
        NearfarError: they are missing or malformed, or no correlation is defined on them; it says how to name others.
    """
    from nearfar.data.sts import load_pairs
    from nearfar.evaluation.correlation import undefined_reason

    spec = config.evaluate_on
    try:
        pairs = load_pairs(spec)
    except NearfarError as error:
        raise NearfarError(f"--evaluate-on: {error}{'' if _is_file(spec) else _DEV_PAIRS_HINT}") from error
    gold = [pair.score for pair in pairs]
    texts = {text for pair in pairs for text in pair[:2]}
    reason = undefined_reason(gold, gold) or ("all texts are equal" if len(texts) < 2 else None)
    if reason is not None:
        raise NearfarError(
            f"{spec}: no correlation to choose the best step by: {reason}. Name other pairs by --evaluate-on."
        )
    return pairs


def dev_evaluation(
    encoder: "Encoder", pairs: Sequence[ScoredPair], config: TrainConfig, console: "Console"
) -> Callable[[], "Evaluation"]:
    """A function that scores the encoder's current weights: Spearman in [-1, 1], and geometry.

    It warns once if the embeddings have collapsed.
    """
    from nearfar.evaluation.geometry_measures import collapse_warning, geometry
    from nearfar.evaluation.sts import evaluate_sts
    from nearfar.training.loop import Evaluation

    source = config.evaluate_on
    places = {text: place for place, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair[:2]))}
    near = 0.8 * max(pair.score for pair in pairs)
    positives = [(places[first], places[second]) for first, second, score in pairs if score >= near]
    warned: list[str] = []
    scored_before: list[bool] = []

    def evaluate() -> Evaluation:
        vectors = encoder.encode(list(places), precision=config.precision, check_finite=False)
        scored = evaluate_sts(
            lambda texts: vectors[[places[text] for text in texts]], {source: {source: pairs}}, resamples=0
        )
        if source in scored.unavailable:
            raise NearfarError(f"{source}: cannot be scored: {scored.unavailable[source]}.")
        first, second = (vectors[[pair[side] for pair in positives]] for side in (0, 1))
        measures = geometry(vectors, (first, second) if positives else None)
        warning = collapse_warning(measures)
        if warning and not warned:
            warned.append(warning)
            console.print(f"warning: {warning}", highlight=False, style="yellow")
        estimate = scored.tasks[source].spearman.all
        if estimate.score is None:
            raise NearfarError(f"{source}: no correlation to choose the best step by: {estimate.reason}.")
        return Evaluation(float(estimate.score) / 100, measures)

    def evaluate_and_explain() -> Evaluation:
        try:
            found = evaluate()
        except NearfarError as error:
            if not scored_before:
                raise
            raise NearfarError(f"training diverged or collapsed; choose a lower --learning-rate. {error}") from error
        scored_before.append(True)
        return found

    return evaluate_and_explain


def _is_file(spec: str) -> bool:
    try:
        return is_file(as_path(spec))
    except NearfarError:
        return False
