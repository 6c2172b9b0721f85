"""Layouts: groups stay groups, the second layout follows the first, and alignment undoes rotations."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nearfar.evaluation.explorer import layout as module
from nearfar.evaluation.explorer.layout import align, normalise, plane_layout


def groups(count: int = 40, *, seed: int = 0, dim: int = 20) -> np.ndarray:
    """Four groups of points, far from each other, in order."""
    draw = np.random.default_rng(seed)
    centres = 4 * np.eye(4, dim)
    return np.concatenate([centre + 0.2 * draw.normal(size=(count // 4, dim)) for centre in centres]).astype(np.float32)


def test_normalised_points_have_mean_zero_and_mean_squared_radius_one() -> None:
    points = normalise(np.random.default_rng(1).normal(size=(20, 2)) * 30 + 5)
    assert points.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert (points**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-6)
    assert normalise(np.full((3, 2), 4.0)).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("mirror", [1, -1])
def test_alignment_undoes_rotation_reflection_scale_and_shift(mirror: int) -> None:
    reference = normalise(np.random.default_rng(2).normal(size=(50, 2)))
    turn = np.array([[np.cos(2), -np.sin(2)], [np.sin(2), np.cos(2)]])
    assert align((reference * [1, mirror]) @ turn * 9 - 3, reference) == pytest.approx(reference, abs=1e-5)


@pytest.mark.long
def test_groups_stay_together_and_the_second_layout_keeps_their_places() -> None:
    first = plane_layout(groups())
    second = plane_layout(groups(seed=1), start=first)
    reference = normalise(first)
    for points in (first, second):
        centres = points.reshape(4, 10, 2).mean(axis=1)
        spread = np.linalg.norm(points.reshape(4, 10, 2) - centres[:, None], axis=2).max()
        assert spread < min(np.linalg.norm(a - b) for n, a in enumerate(centres) for b in centres[:n])
    # Without the start, groups may trade places.
    assert np.linalg.norm(align(second, reference) - reference, axis=1).max() < 0.7
    assert plane_layout(groups()) == pytest.approx(first)  # the same seed, the same layout


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 8])
def test_few_texts(count: int) -> None:
    vectors = np.random.default_rng(count).normal(size=(count, 5)).astype(np.float32)
    points = plane_layout(vectors)
    assert points.shape == (count, 2)
    assert np.isfinite(points).all()
    assert len(np.unique(points.round(4), axis=0)) == count
    assert plane_layout(vectors[::-1], start=points).shape == (count, 2)


@pytest.mark.parametrize(("count", "dim"), [(3, 4), (12, 4), (12, 1)])
def test_equal_vectors_have_a_layout_too(count: int, dim: int) -> None:
    points = plane_layout(np.ones((count, dim), dtype=np.float32))
    assert np.isfinite(points).all()
    assert np.isfinite(plane_layout(np.eye(count, 30, dtype=np.float32), start=points)).all()


@pytest.mark.long
def test_opentsne_is_used_for_many_texts_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    class TSNE:
        def __init__(self, **settings: object) -> None:
            seen.update(settings)

        def fit(self, components: np.ndarray) -> np.ndarray:
            seen["shape"] = components.shape
            return components[:, :2] * 5

    monkeypatch.setitem(sys.modules, "openTSNE", SimpleNamespace(TSNE=TSNE))
    monkeypatch.setattr(module, "find_spec", lambda name: name == "openTSNE")
    monkeypatch.setattr(module, "LARGE", 30)
    points = plane_layout(groups(), seed=5)
    largest = np.linalg.svd(groups() - groups().mean(axis=0))[1][:2]
    assert points.var(axis=0) == pytest.approx(25 * largest**2 / 40, rel=1e-4)  # of the principal components
    assert seen["shape"] == (40, 20)
    assert (seen["random_state"], seen["perplexity"], seen["early_exaggeration"]) == (5, 13, 12)
    assert seen["initialization"].std(axis=0)[0] == pytest.approx(1e-4)
    plane_layout(groups(), start=points)
    assert seen["early_exaggeration"] == 4
    assert seen["initialization"] == pytest.approx(points)


@pytest.mark.nightly
def test_opentsne_itself(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("openTSNE", reason="openTSNE is not installed: pip install nearfar[explorer]")
    components = groups(400)
    start = components[:, :2] / components[:, 0].std()
    points = normalise(module._by_opentsne(components, start, {"random_state": 0}))
    assert not caplog.records
    centres = points.reshape(4, 100, 2).mean(axis=1)
    spread = np.linalg.norm(points.reshape(4, 100, 2) - centres[:, None], axis=2).mean()
    assert spread < min(np.linalg.norm(a - b) for n, a in enumerate(centres) for b in centres[:n])
