"""Loss and gradient of every method on a GPU equal the CPU's: float32 to 1e-4, bfloat16 to its precision."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tests.gpu.devices import on_each_device
from tests.gpu.training_step import CLASSIFIER, EVERY, Step, assert_close, plain_step, prepared, step

pytestmark = pytest.mark.long

TOLERANCE = 1e-4
"""Relative tolerance for another order of summation, through two layers and a softmax at temperature 0.01."""
SMALL = ("scl", "sg-opt", "info-nce", "mlm", CLASSIFIER)


@on_each_device("method", small=SMALL[:1], whole=EVERY)
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_step_equals_the_one_on_the_cpu(device: str, method: str, micro_batch: int | None, folder: Path) -> None:
    expected = plain_step(prepared(method, folder, "cpu"))
    run = prepared(method, folder, device)
    assert next(run.encoder.parameters()).device.type == device
    assert_close(step(run, micro_batch=micro_batch), expected, tolerance=TOLERANCE)


@on_each_device(
    "method, precision",
    small=[(method, "fp32") for method in SMALL],
    whole=[(method, precision) for method in EVERY for precision in ("fp32", "bf16")],
)
def test_dropout_is_the_same_both_times(
    device: str, method: str, precision: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With micro-batches, rows are computed twice, first without a graph; both times have the same masks.

    Without CUDA graphs, because the reference keeps all micro-batches until one backward pass, which they do not allow.
    """
    monkeypatch.setenv("NEARFAR_CUDA_GRAPHS", "0")
    bf16 = precision == "bf16"
    run = prepared(method, folder, device, model=str(folder / "noisy"), soft=bf16, precision=precision)
    expected = plain_step(run, micro_batch=3, bf16=bf16)
    assert_close(step(run, micro_batch=3, bf16=bf16), expected, tolerance=0.03 if bf16 else TOLERANCE)
    other = plain_step(run, bf16=bf16).loss
    assert abs(other - expected.loss) > 1e-4 * abs(expected.loss), "other pieces have the same masks"


@on_each_device("method", small=SMALL, whole=EVERY)
def test_bfloat16_agrees_with_float32(device: str, method: str, folder: Path) -> None:
    """In loss, and in the direction of the concatenated gradient of all parameters."""
    exact = step(prepared(method, folder, device, soft=True))
    rough = step(prepared(method, folder, device, soft=True, precision="bf16"), bf16=True)
    assert rough.loss == pytest.approx(exact.loss, rel=0.02)
    ours, right = (torch.cat([g.flatten() for g in found.gradients.values()]) for found in (rough, exact))
    assert not torch.equal(ours, right)
    assert float(functional.cosine_similarity(ours, right, dim=0)) > 0.99


def test_the_comparison_detects_another_gradient(folder: Path) -> None:
    """A change of one gradient by one percent."""
    right = step(prepared("scl", folder, "cpu"))
    for name in ("encoder.backbone.encoder.layer.0.attention.self.query.weight", "head0.linears.0.weight"):
        wrong = Step(right.loss, right.gradients | {name: 1.01 * right.gradients[name]})
        with pytest.raises(AssertionError, match=name.replace(".", "[.]")):
            assert_close(wrong, right, tolerance=TOLERANCE)
    with pytest.raises(AssertionError, match="loss"):
        assert_close(right._replace(loss=1.01 * right.loss), right, tolerance=TOLERANCE)
