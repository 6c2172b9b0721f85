"""Gradients with micro-batches equal the gradient of the whole batch, for every method, with the same dropout."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.methods import Loss
from nearfar.registry import METHODS
from nearfar.training.gradients import Gradients, read_later, seed_rng
from nearfar.training.processes import Processes
from tests.method_configs import by_night, config

pytestmark = pytest.mark.long


def modules(run: PreparedRun) -> list[torch.nn.Module]:
    return [run.encoder, *run.mixture.heads]


def gradients(
    run: PreparedRun, parts, micro_batch: int | None, *, tokens: int | None = None
) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of one step, as the loop computes them."""
    total = 0.0
    for module in modules(run):
        module.train()
        module.zero_grad()
    for number, (method, batch, weight) in enumerate(parts):
        computed = Gradients(7, Processes(), micro_batch, tokens)
        loss, _ = computed.accumulate(method, batch, weight=weight, key=(3, number))
        total += weight * float(loss.total.detach())
    return total, collected(run)


def collected(run: PreparedRun) -> list[torch.Tensor]:
    found = [p.grad.clone() for module in modules(run) for p in module.parameters() if p.grad is not None]
    assert sum(float(gradient.norm() > 1e-6) for gradient in found) > 10
    return found


def plain(run: PreparedRun, parts) -> tuple[float, list[torch.Tensor]]:
    """The reference by autograd, with one graph from texts to loss; equal only without dropout."""
    total = torch.zeros(())
    for module in modules(run):
        module.train()
        module.zero_grad()
    for number, (method, batch, weight) in enumerate(parts):
        seed_rng(7, 3, number, "items")
        items = method.extract_items(batch)
        rows = method.represent(items)
        seed_rng(7, 3, number, "loss")
        total = total + weight * method.loss_fn(batch, rows).total
    total.backward()
    return float(total.detach()), collected(run)


def assert_close(ours: tuple[float, list[torch.Tensor]], theirs: tuple[float, list[torch.Tensor]]) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert len(ours[1]) == len(theirs[1])
    scale = max(float(gradient.norm()) for gradient in theirs[1])
    for one, other in zip(ours[1], theirs[1], strict=True):
        assert float((one - other).norm()) <= 1e-4 * float(other.norm()) + 1e-6 * scale


def last_batch(run: PreparedRun):
    *_, parts = run.mixture.epoch(0)
    return parts


@pytest.mark.parametrize(
    "method", by_night(METHODS, ("scl", "simcse-unsup", "sg-opt", "bt", "supcon-text", "distill", "nli-order"))
)
def test_micro_batches_give_the_gradient_of_the_batch(method: str, folder: Path) -> None:
    settings = config(method, folder, model=str(folder / "tiny"))
    run = prepare(settings)
    parts = next(run.mixture.epoch(0))
    expected = plain(run, parts)
    assert_close(gradients(run, parts, None), expected)
    assert_close(gradients(run, parts, 3), expected)  # does not divide the number of items
    assert_close(gradients(run, parts, None, tokens=25), expected)  # fewer than in a batch
    last = last_batch(run)
    assert_close(gradients(run, last, 4), plain(run, last))


@pytest.mark.parametrize("method", by_night(METHODS, ("scl", "simcse-sup", "sg-opt")))
def test_micro_batches_stay_within_the_token_limit(method: str, folder: Path) -> None:
    """Counts the tokens of each micro-batch that the encoder gets with gradient."""
    extra = {"mlm_weight": 0.1} if hasattr(METHODS[method], "mlm_weight") else {}
    run = prepare(config(method, folder, model=str(folder / "tiny"), **extra))
    parts = next(run.mixture.epoch(0))
    read: list[int] = []

    def count(_: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        if torch.is_grad_enabled():
            read.append(kwargs["input_ids"].numel())

    hook = run.encoder.backbone.register_forward_pre_hook(count, with_kwargs=True)
    longest = max(run.texts.lengths([text for _, batch, _ in parts for text in batch.sentences]))
    for tokens in (longest, 3 * longest):
        read.clear()
        gradients(run, parts, None, tokens=tokens)
        assert len(read) > len(parts)
        assert max(read) <= tokens
        # neighbours that fit together are in one micro-batch
        assert sum(one + other <= tokens for one, other in pairwise(read)) < len(parts)
    hook.remove()


def test_dropout_is_the_same_both_times(folder: Path) -> None:
    """Keeps the graphs of all micro-batches, with the same seeds as in both passes of gradient caching."""
    run = prepare(config("simcse-unsup", folder))
    ((objective, batch, _),) = next(run.mixture.epoch(0))
    cached = gradients(run, ((objective, batch, 1.0),), 3)
    for module in modules(run):
        module.zero_grad()
    seed_rng(7, 3, 0, "items")
    items = objective.extract_items(batch)
    computed_rows = []
    for micro_batch, start in enumerate(range(0, len(items), 3)):
        seed_rng(7, 3, 0, "rows", 0, micro_batch)
        computed_rows.append(objective.represent(items[start : start + 3]))
    seed_rng(7, 3, 0, "loss")
    total = objective.loss_fn(batch, torch.cat(computed_rows)).total
    total.backward()
    assert_close(cached, (float(total.detach()), collected(run)))
    # dropout is active: other masks give another loss
    losses = []
    for seed in (1, 2):
        seed_rng(seed)
        with torch.no_grad():
            losses.append(float(objective.loss(batch).total))
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_the_mean_of_several_batches(folder: Path) -> None:
    """--accumulate gives the gradient of the mean loss, and mean terms."""
    run = prepare(config("scl", folder, model=str(folder / "tiny")))
    group = [parts for _, parts in zip(range(3), run.mixture.epoch(0), strict=False)]
    for module in modules(run):
        module.train()
        module.zero_grad()
    parts, items = Gradients(7, Processes()).accumulate_mean(group, step=3)
    terms = read_later(parts)()
    ours = terms["loss"], collected(run)
    assert items == sum(len(batch.sentences) for ((_, batch, _),) in group)

    for module in modules(run):
        module.zero_grad()
    losses = [method.loss(batch) for ((method, batch, _),) in group]
    total = torch.stack([loss.total for loss in losses]).mean()
    total.backward()
    assert_close(ours, (float(total.detach()), collected(run)))
    assert terms.keys() == {"loss", "scl", "ce", "accuracy"}
    for name in ("scl", "ce", "accuracy"):
        assert terms[name] == pytest.approx(sum(float(loss.terms[name]) for loss in losses) / 3, rel=1e-5)


def test_dropout_depends_on_step_batch_part_and_seed(folder: Path) -> None:
    """Dropout differs by step, by batch of an accumulated step, and by seed; equal keys give equal dropout."""
    run = prepare(config("simcse-unsup", folder))
    run.encoder.train()
    parts = next(run.mixture.epoch(0))

    def loss(step: int, *, seed: int = 7, times: int = 1) -> float:
        terms, _ = Gradients(seed, Processes()).accumulate_mean([parts] * times, step=step)
        return read_later(terms)()["loss"]

    assert loss(0) == loss(0)
    assert len({loss(0), loss(1), loss(2), loss(0, seed=8), loss(0, times=2)}) == 5


def test_a_loss_that_does_not_depend_on_the_rows(folder: Path) -> None:
    """Only the head gets a gradient, and rows without gradient are not backpropagated."""
    run = prepare(config("sbert", folder))
    (method, batch, _) = next(run.mixture.epoch(0))[0]
    head = torch.nn.Linear(1, 1)
    headless = replace(method, loss_fn=lambda _, rows: Loss(head(torch.ones(1)).sum(), {}))
    fixed = replace(
        method, represent=lambda items: torch.ones(len(items), 2), loss_fn=lambda _, rows: Loss(rows.sum(), {})
    )
    for objective in (headless, fixed):
        for micro_batch in (None, 3):
            Gradients(7, Processes(), micro_batch).accumulate(objective, batch, weight=1.0, key=(0,))
    assert float(head.weight.grad) == 2  # once from each of the two
    assert all(parameter.grad is None for parameter in run.encoder.parameters())
