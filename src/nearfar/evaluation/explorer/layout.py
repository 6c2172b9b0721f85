"""Layouts of embeddings in the plane: principal components, then t-SNE, aligned with an earlier layout."""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import TextIOBase
from typing import Any

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

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
SLOW = 20_000
"""With more texts than this, scikit-learn takes minutes."""
_START_SPREAD = 1e-4
"""Standard deviation of the first coordinate at the start of t-SNE (the default of scikit-learn)."""
_ITERATION = re.compile(r"Iteration (\d+):")
_CALLBACK_EVERY = 10


def plane_layout(
    vectors: Float32[np.ndarray, "texts dim"],
    *,
    start: Float32[np.ndarray, "texts 2"] | None = None,
    seed: int = 0,
    on_steps: Callable[[int], None] = lambda _: None,
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
        on_steps: called now and then with the number of iterations since the last call.
    """
    components = principal_components(vectors, COMPONENTS)
    if len(vectors) < FEWEST:
        return _two_columns(components)
    exaggeration = EXAGGERATION
    if start is None:
        initial = _two_columns(components)
        spread = float(initial.std(axis=0)[0])
        initial = initial / spread * _START_SPREAD if spread > FLOAT32_RESOLUTION else initial * 0
    else:
        initial, exaggeration = start, EXAGGERATION_FROM_START
    if initial.std() == 0:  # a collapsed space has no principal components to start from
        initial = np.random.default_rng(seed).normal(scale=_START_SPREAD, size=initial.shape)
    settings: dict[str, Any] = {
        "perplexity": min(PERPLEXITY, (len(vectors) - 1) / 3),
        "early_exaggeration": exaggeration,
        "random_state": seed,
    }
    compute = _by_opentsne if uses_opentsne(len(vectors)) else _by_sklearn
    progress = _Progress(on_steps)
    points = compute(components, initial.astype(np.float32), settings, progress)
    progress.reach(EXAGGERATED + ITERATIONS)
    return np.asarray(points, dtype=np.float32)


def principal_components(vectors: NDArray[np.floating], count: int) -> Float32[np.ndarray, "texts components"]:
    """The coordinates of the vectors on at most ``count`` principal components, largest variance first."""
    x = np.asarray(vectors, dtype=np.float64)
    x = x - x.mean(axis=0)
    _, directions = np.linalg.eigh(x.T @ x)
    return (x @ directions[:, ::-1][:, :count]).astype(np.float32)


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
    left, _, right = np.linalg.svd(own.T.astype(np.float64) @ reference.astype(np.float64))
    return (own @ (left @ right)).astype(np.float32)


def _two_columns(points: NDArray[np.floating]) -> Float32[np.ndarray, "texts 2"]:
    """The first two columns, with zeros for a missing one."""
    padded = np.zeros((len(points), 2), dtype=np.float32)
    padded[:, : min(2, points.shape[1])] = points[:, :2]
    return padded


def uses_opentsne(texts: int) -> bool:
    """Whether the layout of this number of texts is computed by openTSNE."""
    return texts > LARGE and find_spec("openTSNE") is not None


class _Progress(TextIOBase):
    """Iterations so far. As a stream it reads them in what scikit-learn prints, and shows nothing."""

    def __init__(self, on_steps: Callable[[int], None]) -> None:
        self._on_steps, self.finished = on_steps, 0

    def reach(self, finished: int) -> None:
        """Report the iterations since the last call."""
        self._on_steps(finished - self.finished)
        self.finished = finished

    def write(self, text: str) -> int:
        """Report the last iteration that ``text`` names."""
        if numbers := _ITERATION.findall(text):
            self.reach(int(numbers[-1]))
        return len(text)


def _by_sklearn(
    components: NDArray[np.float32], initial: NDArray[np.float32], settings: Mapping[str, Any], progress: _Progress
) -> NDArray[np.floating]:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # verbose is the only way to follow its progress.
    model = TSNE(init=initial, max_iter=EXAGGERATED + ITERATIONS, verbose=2, **settings)
    # Its threads wait for each other in every iteration, which costs more than it saves for few texts.
    threads = 1 if len(components) <= LARGE else None
    with threadpool_limits(threads, user_api="openmp"), redirect_stdout(progress):
        points: NDArray[np.floating] = model.fit_transform(components)
    return points


def _by_opentsne(
    components: NDArray[np.float32], initial: NDArray[np.float32], settings: Mapping[str, Any], progress: _Progress
) -> NDArray[np.floating]:
    from openTSNE import TSNE

    model = TSNE(
        initialization=initial.astype(np.float64),
        early_exaggeration_iter=EXAGGERATED,
        n_iter=ITERATIONS,
        n_jobs=-1,
        callbacks=lambda *_: progress.reach(progress.finished + _CALLBACK_EVERY),
        callbacks_every_iters=_CALLBACK_EVERY,
        **settings,
    )
    logger = logging.getLogger("openTSNE.tsne")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of any start that is not tiny
    try:
        return np.asarray(model.fit(components))
    finally:
        logger.setLevel(level)
