"""BERT-flow (Li et al. 2020): a Glow maps embeddings to a standard normal distribution; its output z is the embedding.

The flow is fitted by maximum likelihood to the embeddings of unlabelled texts; the encoder is frozen. The loss is
-log p(x) / (dim log 2), bits per dimension. In the paper, "target" fits on the texts of the task itself (train, dev and
test), "NLI" on those of SNLI and MNLI; here the caller chooses the texts.

Training follows the authors' code (bohanli/BERT-flow, ``run_siamese.py``, ``optimization_bert_flow.py``, at commit
9f79ed1): one epoch over shuffled pairs; 32 pairs, that is 64 texts, per step, an incomplete last step dropped; the loss
is the *sum* of the means over first and over second texts, twice the mean over both, which affects only clipping and
Adam's epsilon; gradients clipped at norm 1; BERT's Adam, with weight decay 0.01 on *every* weight (none of the flow's
parameter names matches their exceptions), epsilon 1e-6 and no bias correction, so that steps are 3 to 6.6 times larger
at first and still 2 times larger after 300 steps; a constant learning rate of 1e-3, without warm-up or decay;
embeddings are not normalised before the flow.

Differences: ``encode`` is called once; their encoder runs again in each epoch and with dropout (an ``encode`` with
dropout is equivalent for one epoch). Texts are sampled singly, not in pairs. The embedding and the maximum length, 64,
are settings of the encoder here. The paper averages the last two layers over all tokens (pooling ``last_two``); the
``avg-last-2`` of the code averages the first and the last transformer layer (``first_last``), by an error in an index.
Actnorm is initialised from data, see :func:`fit_glow`. Not verified: their TensorFlow code was read, not run; their
released models were not compared; settings are from the code, not from the paper.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from nearfar.baselines.glow import SIDES, Glow
from nearfar.disk import create_folder, disk_errors, new_file
from nearfar.types import Encode, NearfarError

FILE = "flow.safetensors"
BETAS, EPSILON = (0.9, 0.999), 1e-6
CHUNK = 4096


@dataclass(frozen=True)
class Flow:
    """Maps texts to the z of their embeddings; an :data:`nearfar.types.Encode`. Compare z by cosine."""

    encode: Encode
    glow: Glow
    losses: tuple[float, ...]
    """Mean bits per dimension over the steps of each epoch; often negative, because densities may exceed 1."""

    @classmethod
    def fit(cls, encode: Encode, texts: Sequence[str], **settings: Any) -> "Flow":
        """Fit a flow to the embeddings of ``texts``; repeated texts count repeatedly.

        ``settings`` are those of :func:`fit_glow`. All embeddings are in memory: 4 dim bytes per text, 3.4 GB for both
        sides of NLI at 768 dimensions.

        Raises:
            NearfarError: ``encode`` does not return one finite vector per text, or as :func:`fit_glow`.
        """
        return cls(encode, *fit_glow(_embed(encode, texts), **settings))

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """Return the embeddings as float32 [texts, dim], not normalised.

        Raises:
            NearfarError: ``encode`` does not return one finite vector of the flow's dimension per text.
        """
        embeddings = _embed(self.encode, texts)
        if embeddings.shape[1] != self.glow.dim:
            raise NearfarError(
                f"the encoder has {embeddings.shape[1]} dimensions, but the flow was fitted on {self.glow.dim}; use "
                "the encoder that it was fitted with."
            )
        chunks = torch.from_numpy(embeddings).split(CHUNK)
        return torch.cat([self.glow(chunk)[0] for chunk in chunks]).numpy()

    def save(self, folder: str | Path) -> None:
        """Write ``flow.safetensors`` to ``folder``, with the flow's sizes as JSON in its header; without the encoder.

        The file is replaced atomically: an interrupted save leaves the previous flow intact.

        Raises:
            NearfarError: the disk is full or cannot be written.
        """
        file = Path(folder) / FILE
        glow = self.glow
        sizes = {"dim": glow.dim, "levels": len(glow.levels), "depth": glow.depth, "width": glow.width}
        header = json.dumps({"sizes": sizes, "losses": self.losses})
        with disk_errors(file):
            create_folder(file.parent)
        with new_file(file) as temporary:
            save_file(glow.state_dict(), temporary, metadata={"flow": header})

    @classmethod
    def load(cls, folder: str | Path, encode: Encode) -> "Flow":
        """Load a flow written by :meth:`save`; ``encode`` is the encoder that the flow was fitted with.

        Raises:
            NearfarError: no such file, or one that is damaged or not a flow.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise NearfarError(f"{folder}: has no {FILE}, so no flow was saved there.")
        try:
            with safe_open(path, framework="pt") as file:
                header: dict[str, Any] = json.loads((file.metadata() or {})["flow"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
            glow = Glow(**header["sizes"])
            glow.load_state_dict(tensors)
            return cls(encode, glow.eval(), tuple(header["losses"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise NearfarError(f"{path}: is damaged or not a saved flow ({error}). Fit and save it again.") from error


def fit_glow(
    embeddings: NDArray[np.floating],
    *,
    epochs: int = 1,
    batch_size: int = 64,  # texts: the authors' 32 pairs
    learning_rate: float = 1e-3,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    data_init: bool = True,
    seed: int = 0,
    progress: bool = False,
) -> tuple[Glow, tuple[float, ...]]:
    """Fit a Glow to embeddings [texts, dim] (see the module docstring); return it and the mean loss of each epoch.

    Rows are shuffled in each epoch; an incomplete last batch is dropped. A seed gives the same weights on the same
    machine, independent of torch's global generator, whose state is restored.

    ``data_init``: before the first step, actnorm is fitted to the first batch, as in Kingma & Dhariwal 2018 (section
    3.1). The authors' code intends this too, but leaves it to a session hook (``GlowInitHook``) that ``run_siamese.py``
    imports and never passes to its estimator. ``False`` reproduces what it actually runs: actnorm starts from
    TensorFlow's default, Glorot-uniform, and learns the embeddings' mean and scale by gradient. The re-implementation
    UKPLab/pytorch-bertflow initialises from data, and was reported to reproduce the results.

    Raises:
        NearfarError: embeddings that are not a matrix, contain a NaN or infinity, are all equal, or have fewer
            dimensions than the levels need; a batch larger than the number of texts; a setting out of its range; a
            loss that is not finite.
    """
    matrix = _matrix(embeddings)
    rows, dim = matrix.shape
    if rows < 2:
        raise NearfarError(f"a flow needs at least 2 texts to fit on, not {rows}.")
    if not 2 <= batch_size <= rows:
        raise NearfarError(f"batch_size is {batch_size}, but must be from 2 to the number of texts, {rows}.")
    if not (epochs >= 1 and 0 < learning_rate < math.inf and clip > 0 and 0 <= weight_decay < math.inf):
        raise NearfarError(
            f"epochs {epochs} must be at least 1, learning_rate {learning_rate} and clip {clip} above 0, "
            f"weight_decay {weight_decay} at least 0."
        )
    if not np.ptp(matrix, axis=0).any():
        raise NearfarError(f"all {rows} embeddings are equal, so there is no distribution to fit a flow to.")

    console, x = Console(stderr=True), torch.from_numpy(matrix)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        glow = Glow(dim)
        optimiser = torch.optim.AdamW(glow.parameters(), betas=BETAS, fused=True)
        losses: list[float] = []
        for epoch in range(epochs):
            batches = torch.randperm(rows)[: rows // batch_size * batch_size].split(batch_size)
            steps = track(batches, f"flow, epoch {epoch + 1}", console=console, transient=True, disable=not progress)
            total = 0.0
            for step, batch in enumerate(steps, start=epoch * len(batches) + 1):
                if step == 1 and data_init:
                    glow.initialise(x[batch])
                _, log_density = glow(x[batch])
                bits = -log_density.mean() / (dim * math.log(2))
                optimiser.zero_grad()
                (SIDES * bits).backward()
                norm = torch.nn.utils.clip_grad_norm_(glow.parameters(), clip)
                if not (math.isfinite(bits.item()) and math.isfinite(norm.item())):
                    raise NearfarError(
                        f"the flow's loss is {bits.item()} at step {step}, with a gradient of norm {norm.item()}; "
                        f"lower learning_rate, which is {learning_rate}."
                    )
                _without_bias_correction(optimiser, step, learning_rate=learning_rate, weight_decay=weight_decay)
                optimiser.step()
                total += bits.item()
            losses.append(total / len(batches))
            if progress:
                console.print(f"flow, epoch {epoch + 1}: {losses[-1]:.4f} bits per dimension", highlight=False)
    return glow.eval().requires_grad_(False), tuple(losses)


def _without_bias_correction(
    optimiser: torch.optim.Optimizer, step: int, *, learning_rate: float, weight_decay: float
) -> None:
    """Set the parameter groups so that torch's next step is that of BERT's Adam, without bias correction.

    BERT: w -= learning_rate (m / (sqrt(v) + 1e-6) + weight_decay w). torch: w -= rate m / (1 - beta1^t) /
    (sqrt(v) / c + eps) + rate decay w, with c = sqrt(1 - beta2^t).
    """
    correction = math.sqrt(1 - BETAS[1] ** step)
    factor = (1 - BETAS[0] ** step) / correction
    for group in optimiser.param_groups:
        group["lr"], group["weight_decay"] = learning_rate * factor, weight_decay / factor
        group["eps"] = EPSILON / correction


def _embed(encode: Encode, texts: Sequence[str]) -> NDArray[np.float32]:
    embeddings = _matrix(encode(list(texts)))
    if len(embeddings) != len(texts):
        raise NearfarError(f"the encoder returned {len(embeddings)} vectors for {len(texts)} texts.")
    return embeddings


def _matrix(embeddings: NDArray[np.floating]) -> NDArray[np.float32]:
    matrix = np.ascontiguousarray(embeddings, dtype=np.float32)
    if matrix.ndim != 2:
        raise NearfarError(f"embeddings must be of shape [texts, dim], not {list(matrix.shape)}.")
    if not (finite := np.isfinite(matrix).all(axis=1)).all():
        raise NearfarError(f"the embedding of text {int(finite.argmin())} (counted from 0) holds a NaN or infinity.")
    return matrix
