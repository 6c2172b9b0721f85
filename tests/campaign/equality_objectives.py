"""Equality of objectives with loops in float64 and with mpmath, at random shapes and extreme values; runs in forks."""

import random
import traceback
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from nearfar import objectives
from nearfar.objectives import DirectionMasks, _contrast
from tests import reference_objectives as loops
from tests.objectives import test_exact_values as exact
from tests.objectives.checks import by_rows, some_mask, vectors

EXACT = tuple(exact.OBJECTIVES)
VARIANTS = ("opt1", "opt2", "opt3")
DIRECTIONS = ("query_to_doc", "doc_to_query", "both", "all")


def _rows(mask: Tensor | None, draw: random.Random) -> Any:
    """A mask as it is, or as a function of rows, at random."""
    return mask if draw.random() < 0.5 else by_rows(mask)


def _info_nce(draw: random.Random, count: int, dim: int, seed: int) -> None:
    temperature, weight = draw.choice((1.0, 0.1, 0.04)), draw.choice((0.0, 1.5, -0.7))
    similarity = draw.choice(("cosine", "dot"))
    extra = draw.choice((None, count, draw.randint(1, count)))
    weight = weight if extra == count else 0.0
    mask = some_mask(count, count + (extra or 0), seed=seed) if draw.random() < 0.5 else None
    given = [*(0.5 * vectors(2, count, dim, seed=seed)), *([] if extra is None else [vectors(extra, dim, seed=seed)])]
    settings = {"temperature": temperature, "hard_negative_weight": weight, "similarity": similarity}

    def ours(a: Tensor, p: Tensor, n: Tensor | None = None) -> Tensor:
        return objectives.info_nce(a, p, n, **settings, mask=_rows(mask, draw))

    def theirs(a: Tensor, p: Tensor, n: Tensor | None = None) -> Tensor:
        return loops.info_nce(a, p, n, temperature, weight, similarity, mask)

    _same(ours, theirs, *given)


def _nt_xent(draw: random.Random, count: int, dim: int, seed: int) -> None:
    temperature = draw.choice((1.0, 0.1, 0.04))
    mask = some_mask(count, count, seed=seed) if draw.random() < 0.5 else None
    _same(
        lambda a, b: objectives.nt_xent(a, b, temperature=temperature, mask=_rows(mask, draw)),
        lambda a, b: loops.nt_xent(a, b, temperature, mask),
        *vectors(2, count, dim, seed=seed),
    )


def _directions(draw: random.Random, count: int, dim: int, seed: int) -> None:
    direction, temperature = draw.choice(DIRECTIONS), draw.choice((1.0, 0.3, 0.1))
    negatives = direction in ("query_to_doc", "all") and draw.random() < 0.7
    weight = draw.choice((0.0, 1.5)) if negatives else 0.0
    wide = 2 * count if negatives else count
    shapes = ((count, wide), (count, count), (count, count), (count, wide))
    masks: list[Tensor | None] = [None] * 4
    if draw.random() < 0.5:
        masks = [some_mask(*shape, seed=seed + number) for number, shape in enumerate(shapes)]
    row_masks = DirectionMasks(*map(by_rows, masks))
    settings = {"directions": direction, "temperature": temperature, "hard_negative_weight": weight}
    _same(
        lambda a, p, *n: objectives.info_nce_directions(a, p, *n, **settings, masks=row_masks),
        lambda a, p, *n: loops.info_nce_directions(
            a, p, n[0] if n else None, temperature, direction, weight, masks=tuple(masks)
        ),
        *(0.5 * vectors(3 if negatives else 2, count, dim, seed=seed)),
    )


def _premise_scl(draw: random.Random, count: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1 + count // draw.randint(1, 4), (count,), generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    labels[0] = 0
    texts = torch.randint(1 + count, (count,), generator=generator) if draw.random() < 0.5 else None
    hard, kept = draw.choice((("all", (1, 2)), ("contradiction", (2,)), ("none", ())))
    margin = draw.choice((None, 0.0, 0.1, 1.0))
    temperature, similarity = draw.choice((1.0, 0.3, 0.1)), draw.choice(("cosine", "dot"))
    settings = {"temperature": temperature, "similarity": similarity, "hard_negatives": hard}
    _same(
        lambda p, h: objectives.premise_scl(
            p, h, ids, labels, **settings, hypothesis_ids=texts, false_negative_margin=margin
        ),
        lambda p, h: torch.stack(
            loops.premise_scl(p, h, ids, labels, temperature, similarity, texts, margin, hard=kept)
        ),
        *(0.5 * vectors(2, count, dim, seed=seed)),
    )


def _supcon(draw: random.Random, count: int, dim: int, seed: int) -> None:
    labels = torch.randint(1 + count // 2, (count + 2,), generator=torch.Generator().manual_seed(seed))
    labels[:2] = 0
    temperature = draw.choice((1.0, 0.3, 0.07))
    _same(
        lambda z: objectives.supcon(z, labels, temperature=temperature),
        lambda z: torch.stack(loops.supcon(z, labels, temperature)),
        vectors(count + 2, dim, seed=seed),
    )


def _self_guided(draw: random.Random, count: int, dim: int, seed: int) -> None:
    variant, temperature = draw.choice(VARIANTS), draw.choice((1.0, 0.1, 0.01))
    mask = some_mask(count, count, seed=seed) if draw.random() < 0.5 else None
    shape = (count, draw.randint(1, 4), dim) if variant == "opt3" else (count, dim)
    found = {"opt1": loops.sg_opt1, "opt2": loops.sg_opt2, "opt3": loops.sg_opt3}[variant]

    def mean(values: Tensor) -> Tensor:  # one value for each view in nearfar, one for each sentence in the loops
        return values.mean()

    _same(
        lambda c, h: mean(
            objectives.self_guided(c, h, temperature=temperature, variant=variant, mask=_rows(mask, draw))
        ),
        lambda c, h: mean(found(c, h, temperature, mask)),
        vectors(count, dim, seed=seed),
        vectors(*shape, seed=seed + 1),
    )


def _ranking(draw: random.Random, count: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(3, (count,), generator=generator)
    temperature, margin = draw.choice((1.0, 0.05)), draw.choice((0.0, 0.2))
    groups = torch.randint(2, (count,), generator=generator) if draw.random() < 0.5 else None
    scores = vectors(count, seed=seed)
    if pairs := loops.ranknet(scores, targets, temperature, margin, groups):
        _same(
            lambda s: objectives.ranknet(s, targets, groups, temperature=temperature, margin=margin),
            lambda s: torch.stack(loops.ranknet(s, targets, temperature, margin, groups)),
            scores,
        )
    elif len(objectives.ranknet(scores, targets, groups, temperature=temperature, margin=margin)) != len(pairs):
        raise AssertionError("ranknet compares pairs where there are none")
    _same(
        lambda s: objectives.cosent(s, targets, temperature=temperature, margin=margin),
        lambda s: loops.cosent(s, targets, temperature, margin) + 0 * s.sum(),  # a gradient where nothing is compared
        scores,
    )
    _same(objectives.angle_similarity, loops.angle_similarity, *vectors(2, count, dim, seed=seed))


def _distillation(draw: random.Random, count: int, dim: int, seed: int) -> None:
    own, others = draw.choice((1.0, 0.1, 0.05)), draw.choice((1.0, 0.1, 0.05))
    teachers = vectors(count, draw.randint(1, 20), seed=seed + 1)
    _same(
        lambda s: objectives.list_distillation(s, teachers, temperature=own, teacher_temperature=others),
        lambda s: loops.list_distillation(s, teachers, own, others),
        vectors(count, dim, seed=seed),
    )
    teachers = vectors(count, dim, seed=seed + 1)
    _same(
        lambda s: objectives.vector_distillation(s, teachers),
        lambda s: loops.vector_distillation(s, teachers),
        vectors(count, dim, seed=seed),
    )


def _pairs(draw: random.Random, count: int, dim: int, seed: int) -> None:
    targets = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    u, v = vectors(2, count, dim, seed=seed)
    _same(
        lambda u, v: objectives.cosine_regression(u, v, targets),
        lambda u, v: loops.cosine_regression(u, v, targets),
        u,
        v,
    )
    _same(objectives.regression_features, loops.regression_features, u, v)
    _same(objectives.nli_softmax_features, loops.nli_softmax_features, u, v)
    labels = torch.randint(dim, (count,), generator=torch.Generator().manual_seed(seed))
    scale = draw.choice((1.0, 1e-6, 20.0))
    _same(lambda x: objectives.nli_softmax(x, labels), lambda x: loops.nli_softmax(x, labels), scale * u)
    _same(lambda x: objectives.masked_lm(x, labels), lambda x: loops.masked_lm(x, labels), scale * u)


LOOPS: dict[str, Callable[[random.Random, int, int, int], None]] = {
    "info_nce": _info_nce,
    "nt_xent": _nt_xent,
    "info_nce_directions": _directions,
    "premise_scl": _premise_scl,
    "supcon": _supcon,
    "self_guided": _self_guided,
    "ranking": _ranking,
    "distillation": _distillation,
    "pairs": _pairs,
}


def _same(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *given: Tensor) -> None:
    """Equal values and gradients, also where some are zero."""
    found = []
    for objective in (ours, theirs):
        inputs = [tensor.clone().requires_grad_() for tensor in given]
        value = objective(*inputs)
        weights = 1 + torch.arange(value.numel(), dtype=torch.float64).view(value.shape)
        (value * weights).sum().backward()
        found.append([value.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs)])
    for number, (one, other) in enumerate(zip(*found, strict=True)):
        what = f"gradient {number}" if number else "the value"
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9, msg=lambda words, what=what: f"{what}: {words}")


def against_loops(name: str, seed: int) -> str:
    """Random shapes, in row blocks of a random size."""
    draw = random.Random(seed)
    count, dim = draw.choice((1, 2, draw.randint(3, 9))), draw.choice((1, 2, draw.randint(3, 24)))
    block = draw.choice((_contrast.BLOCK, 1, 2 * count, 7 * count))
    with patch.object(_contrast, "BLOCK", block):
        return _sentence(lambda: LOOPS[name](draw, count, dim, seed), f"{count} rows of width {dim}")


def against_mpmath(name: str, seed: int) -> str:
    """Random temperatures and lengths of vectors, up to both ends of floating point."""
    draw = random.Random(seed)
    dtype = draw.choice(list(exact.SCALES))
    count, dim = draw.randint(1, 9), draw.choice((2, 5, 24))
    kind = draw.choice(("random", "random", "equal", "some zero", "opposite", "mixed"))
    x = vectors(count, 3, dim, seed=seed)
    if kind == "equal":
        x = x[:1, :1].expand(count, 3, dim).clone()
    if kind == "some zero":
        x[draw.randrange(count), draw.randrange(3)] = 0
    if kind == "opposite":
        x[:, 1] = -x[:, 0]
    x = x / x.abs().max()
    scale = draw.choice(exact.SCALES[dtype])
    if kind == "mixed":
        x[draw.randrange(count)] *= scale
    else:
        x = x * scale
    labels = torch.tensor([draw.randrange(3) for _ in range(count)])
    temperature = 10 ** draw.uniform(-8, 4)
    described = f"{count} {kind} rows of width {dim}, {dtype}, scale {scale:g}, temperature {temperature:.3g}"
    return _sentence(lambda: exact.assert_exact(name, x.to(dtype), labels, temperature), described)


def _sentence(check: Callable[[], None], described: str) -> str:
    try:
        check()
    except AssertionError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        first = next(iter(str(error).strip().splitlines()), "")
        return f"{described}: {first or where.line} ({where.name}, line {where.lineno})"
    return ""
