"""How auto is resolved by device and environment, the warning for emulated bfloat16, and resumed precisions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.encoder import precision
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.precision import EMULATED, check_precision, precision_record, resolve, resumed_precision
from nearfar.types import Precision
from tests.precision_mocks import WARNING, machine
from tests.tiny import save_tiny, sentences


@pytest.mark.parametrize(
    ("requested", "native", "environment", "used"),
    [
        ("auto", True, None, "bf16"),
        ("auto", False, None, "fp32"),
        ("auto", True, "", "bf16"),
        ("auto", True, "auto", "bf16"),
        ("auto", True, "fp32", "fp32"),
        ("auto", False, "auto", "fp32"),
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


def test_the_warning_for_a_gpu_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, native=False)
    with pytest.warns(UserWarning, match="bfloat16 is not native here. Use --precision fp32"):
        resolve("bf16", "cuda:0")


def test_the_requested_device_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEARFAR_PRECISION")
    monkeypatch.setattr(precision, "is_native", lambda device: str(device) == "cuda:1")
    assert [resolve("auto", device) for device in ("cpu", torch.device("cuda:1"))] == ["fp32", "bf16"]


@pytest.mark.parametrize("value", ["bf32", "BF16", "fp16", "1"])
def test_invalid_values_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NearfarError, match=f"--precision '{value}': must be auto, fp32 or bf16"):
        check_precision(value)
    monkeypatch.setenv("NEARFAR_PRECISION", value)
    with pytest.raises(NearfarError, match=f"NEARFAR_PRECISION='{value}': must be auto, fp32 or bf16"):
        resolve("auto", "cpu")


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


@pytest.mark.long
def test_encode_and_predict_use_the_requested_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a tiny model, because bfloat16 may be emulated."""
    texts = sentences(4)
    encoder = Encoder.from_pretrained(save_tiny(tmp_path / "tiny"))
    classifier = Classifier.from_pretrained(tmp_path / "tiny", label_names=("no", "yes"))

    def computed(requested: Precision) -> tuple[np.ndarray, np.ndarray]:
        items = [(text,) for text in texts]
        return encoder.encode(texts, precision=requested), classifier.predict(items, precision=requested)

    machine(monkeypatch, native=True)
    full, half, automatic = (computed(requested) for requested in ("fp32", "bf16", "auto"))
    machine(monkeypatch, native=False)
    for exact, rough, chosen, without_native in zip(full, half, automatic, computed("auto"), strict=True):
        assert 0 < np.abs(exact - rough).max() < 0.2
        np.testing.assert_allclose(chosen, rough, atol=1e-5)
        np.testing.assert_allclose(without_native, exact, atol=1e-5)
    with pytest.warns(UserWarning, match=WARNING):
        encoder.encode(texts, precision="bf16")
