"""Measures of an embedding space against closed forms and plain loops."""

import math
import random

import numpy as np
import pytest

from nearfar.evaluation.geometry_measures import (
    alignment,
    collapse_warning,
    effective_rank,
    geometry,
    isotropy,
    kept_neighbours,
    mean_cosine,
    spectrum,
    uniformity,
)
from nearfar.types import NearfarError


def rows(count, dim, *, seed=0, shift=0.0):
    draw = random.Random(seed)
    return [[draw.gauss(shift, 1) for _ in range(dim)] for _ in range(count)]


def cosine(x, y):
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))


def all_pairs(count):
    return [(i, j) for i in range(count) for j in range(i)]


@pytest.mark.parametrize(("count", "dim", "shift"), [(2, 3, 0.0), (7, 5, 0.0), (30, 4, 2.0)])
def test_measures_match_plain_loops(count, dim, shift):
    x, y = rows(count, dim, shift=shift), rows(count, dim, seed=1)
    cosines = [cosine(x[i], x[j]) for i, j in all_pairs(count)]
    positive = [cosine(a, b) for a, b in zip(x, y, strict=True)]
    assert alignment(x, y) == pytest.approx(sum(2 - 2 * c for c in positive) / count)
    assert mean_cosine(x) == pytest.approx(sum(cosines) / len(cosines))
    assert uniformity(x) == pytest.approx(math.log(sum(math.exp(-2 * (2 - 2 * c)) for c in cosines) / len(cosines)))


@pytest.mark.parametrize(("count", "dim"), [(3, 8), (8, 3), (40, 6)])
def test_effective_rank_from_the_eigenvalues_of_the_cosine_matrix(count, dim):
    x = rows(count, dim)
    gram = np.array([[cosine(a, b) for b in x] for a in x])
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0))
    shares = [s / singular.sum() for s in singular if s > 1e-6]
    assert effective_rank(x) == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)), rel=1e-5)
    assert 1 < effective_rank(x) < min(count, dim)


def test_all_equal_or_equal_up_to_rounding():
    x = np.tile(np.array([[0.3, -1.2, 0.7]], dtype=np.float32), (9, 1))
    assert effective_rank(x) == pytest.approx(1, abs=1e-6)
    assert mean_cosine(x) == pytest.approx(1)
    assert uniformity(x) == pytest.approx(0, abs=1e-12)
    assert alignment(x, x) == 0
    assert isotropy(x) == pytest.approx(math.exp(-2))
    assert spectrum(x).tolist() == pytest.approx([1, 0, 0], abs=1e-6)
    x = np.ones((500, 64)) + np.random.default_rng(0).normal(scale=1e-7, size=(500, 64))
    assert effective_rank(x) == pytest.approx(1, abs=1e-3)
    assert effective_rank(x - x.mean(axis=0)) > 30  # therefore rows are not centred


def test_measures_depend_only_on_directions():
    x = np.array(rows(20, 6))
    lengths = np.array([10.0**power for power in range(-200, 200, 20)])[:, None]
    rotation = np.linalg.qr(np.array(rows(6, 6, seed=3)))[0]
    y = np.array(rows(20, 6, seed=2))
    before, after = geometry(x, (x, y)), geometry(lengths * (x @ rotation), (lengths * (x @ rotation), y @ rotation))
    assert before == pytest.approx(after)
    assert isotropy(x) == pytest.approx(isotropy(lengths * (x @ rotation)))
    assert spectrum(x).tolist() == pytest.approx(spectrum(lengths * (x @ rotation)).tolist())
    assert set(before) == {"alignment", "uniformity", "mean_cosine", "effective_rank"}
    assert set(geometry(x)) == set(before) - {"alignment"}


def test_a_sample_of_pairs_is_seeded_and_close_to_the_exact_value():
    x = np.array(rows(120, 5, shift=0.5))
    exact = uniformity(x, pairs=120 * 119 // 2)
    drawn = [uniformity(x, seed=seed, pairs=7000) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn == pytest.approx([exact] * 3, abs=0.1)
    assert exact < -1
    assert geometry(x, seed=2)["uniformity"] == uniformity(x)  # 7,140 pairs are all used


def test_zero_vectors_have_cosine_zero():
    x = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    assert mean_cosine(x) == pytest.approx(1 / 3)
    assert alignment(x[:1], x[1:2]) == pytest.approx(1)
    assert effective_rank(x) == pytest.approx(1)
    zeros = np.zeros((4, 3))
    assert geometry(zeros) == {"uniformity": 0.0, "mean_cosine": 0.0, "effective_rank": 0.0}
    assert "collapsed" in collapse_warning(geometry(zeros))
    assert isotropy(zeros) == 1
    assert spectrum(zeros).tolist() == [0, 0, 0]


def test_isotropy_matches_plain_loops_over_the_right_singular_vectors():
    x = rows(30, 5, shift=0.7)
    unit = [[v / math.sqrt(sum(a * a for a in row)) for v in row] for row in x]
    directions = [sign * c for c in np.linalg.svd(np.array(unit))[2] for sign in (1, -1)]
    z = [sum(math.exp(sum(a * b for a, b in zip(c, w, strict=True))) for w in unit) for c in directions]
    assert isotropy(x) == pytest.approx(min(z) / max(z))
    assert 0.2 < isotropy(x) < 0.8


def test_the_spectrum_is_of_the_uncentred_cosine_matrix():
    x = rows(6, 9, shift=1.0)
    gram = np.array([[cosine(a, b) for b in x] for a in x])
    singular = np.sqrt(np.linalg.eigvalsh(gram))[::-1]
    assert spectrum(x).tolist() == pytest.approx((singular / singular[0]).tolist())
    assert len(spectrum(x)) == 6
    cone = np.array(rows(50, 8, shift=5.0))
    assert spectrum(cone)[1] < 0.3 < spectrum(cone - cone.mean(axis=0))[1]


@pytest.mark.parametrize("measure", [uniformity, mean_cosine, effective_rank, geometry, isotropy, spectrum])
def test_invalid_embeddings_are_refused(measure):
    with pytest.raises(NearfarError, match="1 of 3 hold NaN or infinity, the first is row 2"):
        measure([[1.0, 0.0], [0.0, 1.0], [math.nan, 1.0]])
    with pytest.raises(NearfarError, match=r"0 given"):
        measure(np.zeros((0, 4)))


def test_kept_neighbours_match_plain_loops():
    before, after = rows(20, 4), rows(20, 6, seed=1)

    def nearest(vectors, text, count):
        others = [other for other in range(len(vectors)) if other != text]
        return set(sorted(others, key=lambda other: -cosine(vectors[text], vectors[other]))[:count])

    shared = [len(nearest(before, text, 5) & nearest(after, text, 5)) for text in range(20)]
    assert kept_neighbours(before, after, count=5) == pytest.approx(sum(shared) / 100)
    assert 0 < sum(shared) < 100
    assert kept_neighbours(before, after, count=19) is None
