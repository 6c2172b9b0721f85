"""Pictures of a run and of an embedding space, as PNG files. No pyplot: nothing global is touched."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.disk import disk_errors


def training_curves(metrics: Mapping[str, Path], file: Path) -> None:
    """Loss and dev Spearman by step, a line for each run; ``metrics`` maps a run's name to its metrics.jsonl."""
    figure = _figure(10, 4)
    losses, scores = figure.subplots(1, 2)
    for name, path in metrics.items():
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        steps = [line for line in lines if "loss" in line]
        evaluations = [line for line in lines if "spearman" in line]
        losses.plot([line["step"] for line in steps], [line["loss"] for line in steps], label=name, linewidth=1)
        points = [100 * line["spearman"] for line in evaluations]
        scores.plot([line["step"] for line in evaluations], points, label=name, marker="o", markersize=4)
    losses.set(xlabel="step", ylabel="training loss")
    scores.set(xlabel="step", ylabel="Spearman x 100 on the dev pairs")
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
        axes.legend()
    _save(figure, file)


def tsne(embeddings: Mapping[str, NDArray[np.float32]], labels: Sequence[str], file: Path, *, seed: int = 0) -> None:
    """t-SNE of the same labelled texts by several encoders, a panel for each, coloured by label."""
    from sklearn.manifold import TSNE

    figure = _figure(5 * len(embeddings), 5)
    panels = np.atleast_1d(figure.subplots(1, len(embeddings)))
    names = sorted(set(labels))
    for axes, (title, vectors) in zip(panels, embeddings.items(), strict=True):
        perplexity = min(30, (len(labels) - 1) / 3)
        points = TSNE(random_state=seed, init="pca", metric="cosine", perplexity=perplexity).fit_transform(vectors)
        for name in names:
            chosen = points[[label == name for label in labels]]
            axes.scatter(chosen[:, 0], chosen[:, 1], s=8, label=name)
        axes.set(title=title, xticks=[], yticks=[])
    panels[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), markerscale=2)
    _save(figure, file)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, file: Path) -> None:
    with disk_errors(file):
        figure.savefig(file, dpi=120)
