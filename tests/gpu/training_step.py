"""Loss and gradients of the first batch of a method, as training computes them, brought to the CPU."""

from pathlib import Path
from typing import Any, NamedTuple

import torch

from nearfar import FinetuneConfig
from nearfar.commands.finetune import load_task, open_classifier
from nearfar.commands.finetune import prepare as prepare_classifier
from nearfar.commands.train.prepare import prepare
from nearfar.registry import METHODS
from nearfar.runs.run import Prepared
from nearfar.training.gradients import Gradients, seed_rng, split_micro_batches
from nearfar.training.processes import Processes
from tests.method_configs import config
from tests.same_gradients import assert_same_gradients, gradients_of

CLASSIFIER = "scl-finetune"
EVERY = (*METHODS, "mlm", CLASSIFIER)
SEED = 7


class Step(NamedTuple):
    """Loss and gradients of one step."""

    loss: float
    gradients: dict[str, torch.Tensor]


def prepared(
    method: str, folder: Path, device: str, *, processes: int = 1, soft: bool = False, **settings: Any
) -> Prepared:
    """A run of ``method`` on an encoder without dropout; ``mlm`` is the further loss of simcse-unsup."""
    if method == CLASSIFIER:
        return _classifier(folder, device, processes=processes, **settings)
    name, overrides = ("simcse-unsup", {"mlm_weight": 0.5}) if method == "mlm" else (method, {})
    if method == "augment":
        overrides |= {"max_positives": "all", "max_negatives": "all"}  # random choices depend on the device
    if soft and getattr(METHODS[name], "temperature", 1.0) < 0.5:
        overrides |= {"temperature": 0.5}  # a lower one multiplies rounding
    values = {"model": str(folder / "tiny"), "device": device, "precision": "fp32", **overrides, **settings}
    return prepare(config(name, folder, **values), processes=processes)


def _classifier(folder: Path, device: str, *, processes: int, **settings: Any) -> Prepared:
    """Cross-entropy and SCL on labelled texts."""
    parts = {name: str(folder / f"{name}.tsv") for name in ("validation", "test")}
    values = {"model": str(folder / "tiny"), "precision": "fp32", "batch_size": 10, **settings}
    values |= {"dropout": 0.0 if values["model"].endswith("tiny") else 0.3}
    config = FinetuneConfig(output="unused", task=str(folder / "labelled.tsv"), scl_weight=0.5, **parts, **values)
    task = load_task(config)
    return prepare_classifier(config, task, open_classifier(config, task, device=device), processes=processes)


def step(run: Prepared, *, micro_batch: int | None = None, bf16: bool = False) -> Step:
    """Return the step computed by the library, in micro-batches if ``micro_batch`` is given."""
    parts, total = _first_batch(run), 0.0
    processes = Processes()
    for number, (objective, batch, weight) in enumerate(parts):
        computed = Gradients(SEED, processes, micro_batch, bf16=bf16)
        loss, _ = computed.accumulate(objective, batch, weight=weight, key=(0, number))
        total += weight * float(loss.total.detach())
    processes.all_reduce_gradients(_modules(run).parameters())
    return Step(total, gradients_of(_modules(run)))


def plain_step(run: Prepared, *, micro_batch: int | None = None, bf16: bool = False) -> Step:
    """The reference by autograd, in one graph from texts to loss, with the dropout of the same micro-batches."""
    parts, total = _first_batch(run), torch.zeros((), device=next(run.encoder.parameters()).device)
    for number, (objective, batch, weight) in enumerate(parts):
        seed_rng(SEED, 0, number, "items")
        items = objective.extract_items(batch)
        computed_rows = []
        for index, items_of_micro_batch in enumerate(split_micro_batches(objective, items, micro_batch, None)):
            seed_rng(SEED, 0, number, "rows", 0, index)
            computed_rows.append(objective.represent(items_of_micro_batch))
        seed_rng(SEED, 0, number, "loss")
        with torch.autocast(total.device.type, dtype=torch.bfloat16, enabled=bf16):
            total = total + weight * objective.loss_fn(batch, torch.cat(computed_rows)).total
    total.backward()
    return Step(float(total.detach()), gradients_of(_modules(run)))


def assert_close(found: Step, expected: Step, *, tolerance: float) -> None:
    """Assert that losses and the gradient of each parameter agree within a relative ``tolerance``."""
    assert abs(found.loss - expected.loss) <= tolerance * abs(expected.loss), f"loss {found.loss}, not {expected.loss}"
    assert_same_gradients(found.gradients, expected.gradients, tolerance=tolerance, least=1e-3)


def _first_batch(run: Prepared) -> Any:
    _modules(run).train().zero_grad()
    return next(run.mixture.epoch(0))


def _modules(run: Prepared) -> torch.nn.ModuleDict:
    heads = {f"head{number}": head for number, head in enumerate(run.mixture.heads)}
    return torch.nn.ModuleDict({"encoder": run.encoder, **heads})
