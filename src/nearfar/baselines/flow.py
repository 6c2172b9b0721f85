"""BERT-flow (Li et al. 2020): a Glow between an encoder and the normal distribution; z is the new embedding.

The flow is fitted by maximum likelihood to the embeddings of unlabelled texts, the encoder stays as it is:
minimise -log p(x) / (dim log 2), bits per dimension. "Target" in the paper is to fit on the texts of the task itself,
train, dev and test, "NLI" on those of SNLI and MNLI; which it was is for the caller to say.

As the authors ran it (bohanli/BERT-flow, ``run_siamese.py``, ``optimization_bert_flow.py``, read at commit 9f79ed1):
one epoch over shuffled pairs; 32 pairs, so 64 texts, a step, an incomplete last step dropped; the loss is the *sum* of
the means over first and over second texts, twice the mean over both, which only clipping and Adam's epsilon notice;
gradients clipped at norm 1; BERT's Adam, with weight decay 0.01 on *every* weight (none of the flow's names matches
their exceptions), epsilon 1e-6 and no bias correction, so that steps are 3 to 6.6 times larger at first and still 2
times after 300; the rate stays at 1e-3, without warm-up or decay; embeddings are not normalised before the flow.

What differs here: ``encode`` is called once, where their encoder ran anew each epoch and with dropout (an ``encode``
that drops out gives their way for one epoch), and texts are dealt singly, not in pairs. What their commands embed,
the mean of the first and the last transformer layer over all tokens, and their maximum length, 64, are the encoder's
to set. Actnorm is initialised from data, see :func:`fit_glow`. Not checked: their TensorFlow code was read, not run;
their released models were not compared; settings are the code's, not looked up in the paper.
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

from nearfar.baselines.glow import Glow
from nearfar.disk import disk_errors, flush
from nearfar.types import Encode, NearfarError

FILE = "flow.safetensors"
BETAS, EPSILON = (0.9, 0.999), 1e-6
SIDES = 2
CHUNK = 4096


@dataclass(frozen=True)
class Flow:
    """Texts -> z of their embeddings, an :data:`nearfar.types.Encode` like any other; compare z by cosine."""

    encode: Encode
    glow: Glow
    losses: tuple[float, ...]
    """Mean bits per dimension over the steps of each epoch; below zero is common, as densities may exceed 1."""

    @classmethod
    def fit(
        cls,
        encode: Encode,
        texts: Sequence[str],
        *,
        epochs: int = 1,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        clip: float = 1.0,
        data_init: bool = True,
        seed: int = 0,
        progress: bool = False,
    ) -> "Flow":
        """Fit a flow to the embeddings of ``texts``, each as often as it is among them; see :func:`fit_glow`.

        All embeddings are held at once: 4 dim bytes a text, 3.4 GB for both sides of NLI at 768 dimensions.

        Raises:
            NearfarError: ``encode`` does not return one finite vector per text, or what :func:`fit_glow` refuses.
        """
        glow, losses = fit_glow(
            _embed(encode, texts),
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            clip=clip,
            data_init=data_init,
            seed=seed,
            progress=progress,
        )
        return cls(encode, glow, losses)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dim"]:
        """The embeddings as float32 [texts, dim], not normalised.

        Raises:
            NearfarError: ``encode`` returns anything but one finite vector per text, as wide as the flow.
        """
        embeddings = _embed(self.encode, texts)
        if embeddings.shape[1] != self.glow.dim:
            raise NearfarError(
                f"the encoder gives {embeddings.shape[1]} dimensions, but the flow was fitted on {self.glow.dim}; give "
                "it the encoder that it was fitted with."
            )
        chunks = torch.from_numpy(embeddings).split(CHUNK)
        return torch.cat([self.glow(chunk)[0] for chunk in chunks]).numpy()

    def save(self, folder: str | Path) -> None:
        """Write ``flow.safetensors`` into ``folder``, the flow's sizes as JSON in its header; not the encoder.

        It is one file so that a kill leaves the flow that was there before whole.

        Raises:
            NearfarError: the disk is full or cannot be written.
        """
        place = Path(folder) / FILE
        fresh = place.with_name(FILE + ".new")
        glow = self.glow
        sizes = {"dim": glow.dim, "levels": len(glow.levels), "depth": glow.depth, "width": glow.width}
        header = json.dumps({"sizes": sizes, "losses": self.losses})
        with disk_errors(place):
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                save_file(glow.state_dict(), fresh, metadata={"flow": header})
                flush(fresh)
                fresh.replace(place)
            except (OSError, SafetensorError):
                fresh.unlink(missing_ok=True)
                raise

    @classmethod
    def load(cls, folder: str | Path, encode: Encode) -> "Flow":
        """Open what :meth:`save` wrote; ``encode`` is the encoder that the flow was fitted with.

        Raises:
            NearfarError: no such file, or one that is damaged or no flow.
        """
        place = Path(folder) / FILE
        if not place.is_file():
            raise NearfarError(f"{folder}: holds no {FILE}, so no flow was saved there.")
        try:
            with safe_open(place, framework="pt") as file:
                header: dict[str, Any] = json.loads((file.metadata() or {})["flow"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
            glow = Glow(**header["sizes"])
            glow.load_state_dict(tensors)
            return cls(encode, glow.eval(), tuple(header["losses"]))
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise NearfarError(f"{place}: is damaged or no saved flow ({error}). Fit and save it again.") from error


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
    """Fit a Glow to embeddings [texts, dim] as the module's head says; also the mean loss of each epoch.

    Rows are shuffled anew each epoch, and those that fill no batch left out of it. A seed gives the same weights on
    the same machine, whatever torch's global generator has done, and leaves that as it was.

    ``data_init``: before the first step, actnorm is fitted to the first batch, as Kingma & Dhariwal 2018 (section 3.1)
    say and as the authors' code means to: but it leaves that to a session hook (``GlowInitHook``) which
    ``run_siamese.py`` imports and never hands to its estimator. ``False`` is what thus ran: actnorm starts from
    TensorFlow's default, Glorot-uniform, and has to learn the embeddings' mean and scale by gradient. The
    re-implementation UKPLab/pytorch-bertflow initialises from data, and was reported to reproduce the results.

    Raises:
        NearfarError: embeddings that are no matrix, hold a NaN or infinity, are all equal, or have fewer dimensions
            than the levels need; more texts in a batch than there are; a number out of its range; a loss that is no
            longer finite.
    """
    matrix = _matrix(embeddings)
    rows, dim = matrix.shape
    if rows < 2:
        raise NearfarError(f"a flow is fitted to 2 texts or more, and there is {rows}.")
    if not 2 <= batch_size <= rows:
        raise NearfarError(f"batch_size is {batch_size}, but must be from 2 to the number of texts, {rows}.")
    if not (epochs >= 1 and 0 < learning_rate < math.inf and clip > 0 and 0 <= weight_decay < math.inf):
        raise NearfarError(
            f"epochs {epochs} must be 1 or more, learning_rate {learning_rate} and clip {clip} above 0, "
            f"weight_decay {weight_decay} 0 or more."
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
    """Set the groups so that torch's next step is BERT's: w -= learning_rate (m / (sqrt(v) + 1e-6) + weight_decay w).

    torch takes rate m / (1 - beta1^t) / (sqrt(v) / c + eps) with c = sqrt(1 - beta2^t), and rate * decay off w.
    """
    correction = math.sqrt(1 - BETAS[1] ** step)
    factor = (1 - BETAS[0] ** step) / correction
    for group in optimiser.param_groups:
        group["lr"], group["weight_decay"] = learning_rate * factor, weight_decay / factor
        group["eps"] = EPSILON / correction


def _embed(encode: Encode, texts: Sequence[str]) -> NDArray[np.float32]:
    embeddings = _matrix(encode(list(texts)))
    if len(embeddings) != len(texts):
        raise NearfarError(f"the encoder gave {len(embeddings)} vectors for {len(texts)} texts.")
    return embeddings


def _matrix(embeddings: NDArray[np.floating]) -> NDArray[np.float32]:
    matrix = np.ascontiguousarray(embeddings, dtype=np.float32)
    if matrix.ndim != 2:
        raise NearfarError(f"embeddings must be of shape [texts, dim], not {list(matrix.shape)}.")
    if not (finite := np.isfinite(matrix).all(axis=1)).all():
        raise NearfarError(f"the embedding of text {int(finite.argmin())} (counted from 0) holds a NaN or infinity.")
    return matrix
