"""How auto is resolved by device and environment, the warning for emulated bfloat16, and resumed precisions."""

import pytest
import torch

from nearfar import NearfarError
from nearfar.encoder.precision import EMULATED, choose_device, precision_record, resolve, resumed_precision
from nearfar.runtime.threads import WORKER
from nearfar.types import Precision
from tests.precision_mocks import WARNING, machine


@pytest.mark.parametrize(
    ("requested", "native", "environment", "used"),
    [
        ("auto", True, None, "bf16"),
        ("auto", False, None, "fp32"),
        ("auto", True, "", "bf16"),
        ("auto", True, "fp32", "fp32"),
        ("fp32", True, None, "fp32"),
        ("fp32", True, "bf16", "fp32"),
        ("bf16", True, "fp32", "bf16"),
    ],
)
def test_resolved_precision(
    requested: Precision, native: bool, environment: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, native=native)
    if environment is not None:
        monkeypatch.setenv("NEARFAR_PRECISION", environment)
    assert resolve(requested, "cpu") == used  # without a warning, because warnings are errors in tests
    assert precision_record(resolve(requested, "cpu"), "cpu") == used


@pytest.mark.parametrize(("requested", "environment"), [("bf16", "fp32"), ("auto", "bf16")])
def test_emulated_bfloat16_warns_once(requested: Precision, environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, native=False)
    monkeypatch.setenv("NEARFAR_PRECISION", environment)
    with pytest.warns(UserWarning, match=WARNING) as caught:
        assert [resolve(requested, "cpu") for _ in range(3)] == ["bf16"] * 3
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message.endswith(" Use --precision fp32.")
    assert "\n" not in message
    assert precision_record("bf16", "cpu") == EMULATED


@pytest.mark.parametrize(
    ("recorded", "native", "used"),
    [("fp32", True, "fp32"), ("fp32", False, "fp32"), ("bf16", True, "bf16"), (EMULATED, True, "bf16")],
)
def test_resumed_precision(recorded: str, native: bool, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, native=native)
    assert resumed_precision(recorded, "cpu", what="it") == used


def test_native_bfloat16_is_not_resumed_with_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, native=False)
    message = r"it was started in bf16, .* machine with native bfloat16, or start again with"
    with pytest.raises(NearfarError, match=message):
        resumed_precision("bf16", "cpu", what="it")
    with pytest.warns(UserWarning, match=WARNING):
        assert resumed_precision(EMULATED, "cpu", what="it") == "bf16"


def test_workers_of_a_machine_share_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(WORKER, "3")
    assert [str(choose_device(name)) for name in ("cuda", None, "cpu")] == ["cuda:1", "cuda:1", "cpu"]
