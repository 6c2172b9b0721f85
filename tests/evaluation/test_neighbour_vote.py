"""Labels by a vote of the nearest labelled texts."""

from collections import Counter

import numpy as np
import pytest

from nearfar.evaluation.transfer import neighbour_vote, vote_scores
from nearfar.types import NearfarError


def test_the_vote_equals_a_loop() -> None:
    draw = np.random.default_rng(0)
    texts, training = draw.normal(size=(40, 8)).astype(np.float32), draw.normal(size=(90, 8)).astype(np.float32)
    labels = draw.choice(["a", "b", "c"], size=90).tolist()
    expected = []
    for text in texts:
        cosines = training @ text / np.linalg.norm(training, axis=1) / np.linalg.norm(text)
        nearest = np.argsort(-cosines)[:10]
        votes = Counter(labels[place] for place in nearest)
        weights = {label: sum(cosines[place] for place in nearest if labels[place] == label) for label in votes}
        expected.append(max(votes, key=lambda label: (votes[label], weights[label])))
    assert neighbour_vote(texts, training, labels) == expected
    assert neighbour_vote(3 * texts, training / 7, labels) == expected  # cosines: lengths do not matter


def test_ties_go_to_the_higher_cosines_then_to_the_first_label() -> None:
    text = np.array([[1, 0]], dtype=np.float32)
    training = np.array([[1, 0], [0, 1]], dtype=np.float32)
    assert neighbour_vote(text, training, ["z", "a"]) == ["z"]
    assert neighbour_vote(text, training[[0, 0]], ["z", "a"]) == ["a"]


def test_scores_have_an_interval_and_what_a_paired_test_needs() -> None:
    scored = vote_scores(["x", "y", "y", "x"], ["x", "y", "x", "x"], resamples=500, seed=[1], digest="d")
    assert scored.accuracy.score == 75
    assert scored.accuracy.low < 75 < scored.accuracy.high
    assert (scored.gold, scored.predicted, scored.classes) == ([0, 1, 1, 0], [0, 1, 0, 0], ["x", "y"])
    assert vote_scores(["x"], ["x"], resamples=0, seed=[1], digest="d").accuracy.low is None


def test_nobody_votes() -> None:
    with pytest.raises(NearfarError, match="no labelled text"):
        neighbour_vote(np.ones((1, 2), np.float32), np.ones((0, 2), np.float32), [])
