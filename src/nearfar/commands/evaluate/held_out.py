"""Held-out rows of a run as a task: which run's, for which models, and labels by a vote of neighbours."""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.config.verbs import EvaluateConfig
from nearfar.data.held_out import HeldOut, VoteTask
from nearfar.disk import model_of_run
from nearfar.runs.folder import CONFIG, RUN_INFO, read_run_info
from nearfar.runs.held_out import has_held_out, load_held_out
from nearfar.types import Encode, NearfarError

if TYPE_CHECKING:
    from nearfar.evaluation.results import ClassificationScores


def run_of(model: "str | Path | Encode") -> Path | None:
    """The run folder that a model is in, itself or its folder ``model``; None if it is not in one."""
    if callable(model):
        return None
    for folder in (Path(model), Path(model).parent):
        if (folder / CONFIG).is_file() and (folder / RUN_INFO).is_file():
            return folder
    return None


def find_held_out(model: "str | Path | Encode", config: EvaluateConfig) -> HeldOut | None:
    """The held-out rows to evaluate a model on, or None if they are not asked for.

    Raises:
        NearfarError: there are none; the model is of a run that holds out other rows, and so may have been trained on
            these.
    """
    own = run_of(model)
    if config.held_out_of is not None:
        source = run_of(config.held_out_of) or Path(config.held_out_of)
        if not has_held_out(source):
            model_of_run(source)  # raises for an unfinished run, and for a folder that has runs inside
    elif config.held_out:
        if own is None:
            if not callable(model):
                model_of_run(Path(model))  # raises, as below
            raise NearfarError(
                f"--held-out: {model} is not a run of nearfar train, so it holds out no rows. Name a run whose rows to "
                "use by --held-out-of RUN."
            )
        source = own
    else:
        return None
    held_out = load_held_out(source)
    if own is None or own.resolve() == source.resolve():
        return held_out
    if not has_held_out(own):
        warnings.warn(
            f"{own}: holds out no rows, so it may have been trained on the rows that {source} holds out.", stacklevel=2
        )
    elif load_held_out(own).digest != held_out.digest:
        raise NearfarError(
            f"{own} and {source} hold out different rows, so {own} may have been trained on the rows that {source} "
            "holds out. Train both with the same --data and --hold-out, or compare them on other tasks."
        )
    return held_out


def score_votes(
    encode: Encode, votes: Mapping[str, VoteTask], *, resamples: int, seed: int, device: str
) -> "dict[str, ClassificationScores]":
    """The accuracy of labels that are voted for by the nearest training texts.

    Raises:
        NearfarError: a vector is not finite.
    """
    import numpy as np

    from nearfar.evaluation.neighbour_vote import neighbour_vote, vote_scores

    scored = {}
    for name, task in votes.items():
        distinct = {text: row for row, text in enumerate(dict.fromkeys([*task.texts, *task.training_texts]))}
        vectors = np.asarray(encode(list(distinct)), dtype=np.float32)
        texts, training = (vectors[[distinct[text] for text in side]] for side in (task.texts, task.training_texts))
        predicted = neighbour_vote(texts, training, task.training_labels, device=device)
        scored[name] = vote_scores(
            task.labels, predicted, resamples=resamples, seed=[seed, *name.encode()], digest=_digest(task)
        )
    return scored


def warn_if_chosen_by(model: "str | Path | Encode", tasks: Sequence[str]) -> None:
    """Warn about a task that is the dev set which chose the step of the model's run.

    For models without hashes of what they have seen; others have a note below the scores
    (:func:`nearfar.evaluation.tables.seen.seen_notes`).
    """
    run = run_of(model)
    if run is None:
        return
    settings = read_run_info(run)["config"]
    dev = settings.get("evaluate_on")
    if dev is None or settings.get("keep") != "best":
        return
    for task in tasks:
        if task == dev or (os.path.isfile(task) and os.path.isfile(dev) and os.path.samefile(task, dev)):
            warnings.warn(
                f"{task}: this dev set chose the best step of {run} (--evaluate-on), so its score is too high; "
                "evaluate on rows that chose nothing.",
                stacklevel=2,
            )


def _digest(task: VoteTask) -> str:
    return hashlib.sha256(json.dumps(task).encode()).hexdigest()[:16]
