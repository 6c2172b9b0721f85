"""Layouts of embeddings in the plane: principal components, then t-SNE, aligned with an earlier layout."""

import logging
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes

from nearfar.evaluation.geometry_measures import FLOAT32_RESOLUTION

COMPONENTS = 50
"""Number of principal components that t-SNE lays out."""
PERPLEXITY = 30.0
EXAGGERATED, ITERATIONS = 250, 500
"""Number of t-SNE iterations with early exaggeration, and without it."""
EXAGGERATION, EXAGGERATION_FROM_START = 12.0, 4.0
"""Early exaggeration of t-SNE: scikit-learn's default, and that for a start from an earlier layout, where 12 moves the
points more and keeps fewer neighbours, and 1 leaves groups torn apart."""
FEWEST = 8
"""t-SNE needs at least this many texts; fewer are placed by their first two principal components."""
LARGE = 5000
"""With more texts than this, openTSNE is used if it is installed, and scikit-learn uses several threads."""
_START_SPREAD = 1e-4
"""Standard deviation of the first coordinate at the start of t-SNE (the default of scikit-learn)."""


def plane_layout(
    vectors: Float32[np.ndarray, "texts dim"],
    *,
    start: Float32[np.ndarray, "texts 2"] | None = None,
    seed: int = 0,
) -> Float32[np.ndarray, "texts 2"]:
    """A layout of the vectors in the plane, in the units of t-SNE; see :func:`normalise` and :func:`align`.

    t-SNE (van der Maaten and Hinton 2008) of the first :data:`COMPONENTS` principal components, with perplexity 30, or
    a third of the texts if that is less. It is computed by scikit-learn (Barnes-Hut); above :data:`LARGE` texts by
    openTSNE (interpolation by FFT, Linderman et al. 2019) if that is installed. With unit vectors, distances are those
    of cosines: |x - y|^2 = 2 - 2 cos.

    Args:
        vectors: one vector for each text.
        start: an earlier layout of the same texts, from which t-SNE starts, so that points keep their places. By
            default t-SNE starts from the first two principal components, scaled down.
        seed: seed of t-SNE.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    largest = PCA(min(COMPONENTS, *vectors.shape), svd_solver="covariance_eigh")
    with np.errstate(invalid="ignore"):  # the shares of variance of equal vectors
        components = largest.fit_transform(np.float64(vectors)).astype(np.float32)
    plane = np.zeros((len(vectors), 2), dtype=np.float32)
    plane[:, : min(2, components.shape[1])] = components[:, :2]
    if len(vectors) < FEWEST:
        return plane
    initial: NDArray[Any] = plane * (_START_SPREAD / max(plane[:, 0].std(), _START_SPREAD)) if start is None else start
    if initial.std() < FLOAT32_RESOLUTION:  # a collapsed space has no principal components to start from
        initial = np.random.default_rng(seed).normal(scale=_START_SPREAD, size=initial.shape)
    settings: dict[str, Any] = {
        "perplexity": min(PERPLEXITY, (len(vectors) - 1) / 3),
        "early_exaggeration": EXAGGERATION if start is None else EXAGGERATION_FROM_START,
        "random_state": seed,
    }
    initial = initial.astype(np.float32)
    if len(vectors) > LARGE and find_spec("openTSNE") is not None:
        return _by_opentsne(components, initial, settings)

    # Its threads wait for each other in every iteration, which costs more than it saves for few texts.
    with threadpool_limits(1 if len(vectors) <= LARGE else None, user_api="openmp"):
        model = TSNE(init=initial, max_iter=EXAGGERATED + ITERATIONS, **settings)
        return np.asarray(model.fit_transform(components), dtype=np.float32)


def normalise(points: NDArray[np.floating]) -> Float32[np.ndarray, "texts 2"]:
    """The points, moved and scaled to mean 0 and mean squared radius 1; equal points stay at 0."""
    centred = np.asarray(points, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    radius = np.sqrt((centred**2).sum(axis=1).mean())
    return (centred / radius if radius > 0 else centred).astype(np.float32)


def align(points: NDArray[np.floating], reference: Float32[np.ndarray, "texts 2"]) -> Float32[np.ndarray, "texts 2"]:
    """The points, normalised, then rotated or reflected onto the normalised ``reference`` (orthogonal Procrustes).

    The rotation R minimises |P R - Q|^2 over all orthogonal 2 x 2 matrices: R = U V^T of the singular value
    decomposition P^T Q = U S V^T (Schoenemann 1966).
    """
    own = normalise(points)
    return (own @ orthogonal_procrustes(own, reference)[0]).astype(np.float32)


def _by_opentsne(
    components: NDArray[np.float32], initial: NDArray[np.float32], settings: dict[str, Any]
) -> Float32[np.ndarray, "texts 2"]:
    from openTSNE import TSNE

    iterations = {"early_exaggeration_iter": EXAGGERATED, "n_iter": ITERATIONS}
    logging.getLogger("openTSNE.tsne").setLevel(logging.ERROR)  # it warns of any start that is not tiny
    model = TSNE(initialization=initial.astype(np.float64), n_jobs=-1, **iterations, **settings)
    return np.asarray(model.fit(components), dtype=np.float32)
