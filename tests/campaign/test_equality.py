"""The checks of the part "equality" find what is wrong, and pass where all is well."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.commands.train.command import train
from nearfar.training.processes import Processes
from tests.campaign import equality, equality_encoders, equality_gradients, equality_objectives, equality_runs

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")]
STEP: dict[str, Any] = {"method": "info-nce", "rows": 25, "settings": {"seed": 1, "batch_size": 8}}
SHAPE: dict[str, Any] = {
    **{"family": "bert", "heads": 2, "head_dim": 16, "layers": 2, "intermediate": 48, "vocabulary": 60},
    **{"activation": "gelu", "positions": 40, "seed": 1},
}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    return str(tmp_path / "shared")


def test_names_are_unique_and_the_same_for_a_seed() -> None:
    names = [case.name for case in equality.cases(0)]
    assert len(set(names)) == len(names) > 600
    assert [case.name for case in equality.cases(0)] == names


@pytest.mark.parametrize("processes", [None, 2])
def test_a_wrong_gradient_is_found(processes: int | None, shared: str) -> None:
    def scaled(*arguments: Any, **limits: Any) -> equality_gradients.Step:
        step = equality_gradients.computed(*arguments, **limits)
        name = "encoder.backbone.encoder.layer.0.output.dense.weight"
        return replace(step, gradients={**step.gradients, name: step.gradients[name] * 1.0001})

    def drifting(*arguments: Any, **limits: Any) -> equality_gradients.Step:
        step = equality_gradients.computed(*arguments, **limits)
        factor = 1 + 1e-6 * Processes().rank
        return replace(step, gradients={name: factor * gradient for name, gradient in step.gradients.items()})

    def other_loss(*arguments: Any, **limits: Any) -> equality_gradients.Step:
        step = equality_gradients.computed(*arguments, **limits)
        return replace(step, loss=step.loss * (1 + 1e-5))

    assert equality_gradients.compare(shared, **STEP, processes=processes, micro_batch=3) == ""
    wrong = equality_gradients.compare(shared, **STEP, processes=processes, compute=scaled)
    assert "the gradient of encoder.backbone.encoder.layer.0.output.dense.weight differs by 1.0e-04" in wrong
    assert "the loss is" in equality_gradients.compare(shared, **STEP, processes=processes, compute=other_loss)
    if processes:
        assert "would drift apart" in equality_gradients.compare(shared, **STEP, processes=2, compute=drifting)


def test_an_error_in_a_process_is_reported(shared: str) -> None:
    def fails(*_: Any, **__: Any) -> equality_gradients.Step:
        raise ValueError("no")

    with pytest.raises(RuntimeError, match=r"process 0: ValueError\('no'\)"):
        equality_gradients.compare(shared, **STEP, processes=2, compute=fails)


def test_a_run_that_resumes_at_another_batch_is_found(shared: str) -> None:
    settings = {"seed": 1, "batch_size": 10, "max_steps": 4, "epochs": 9, "checkpoint_every": 2, "keep": "last"}
    given: dict[str, Any] = {"method": "simcse-unsup", "rows": 25, "settings": settings, "stops": {"3": "killed"}}

    def forgets(config: Any, **options: Any) -> None:
        progress = Path(config.output, "checkpoint", "progress.json")
        text = progress.read_text()
        assert '"batch": 2' in text
        progress.write_text(text.replace('"batch": 2', '"batch": 1'))
        train(config, **options)

    assert equality_runs.resumed_equals_undisturbed(shared, **given) == ""
    for folder in ("whole", "parted"):
        Path(folder).rename(f"{folder} before")
    assert "of metrics.jsonl is" in equality_runs.resumed_equals_undisturbed(shared, **given, rerun=forgets)


def test_differences_of_run_folders_are_found(shared: str) -> None:
    settings = {"seed": 1, "batch_size": 10, "max_steps": 2, "epochs": 9}
    given: dict[str, Any] = {"method": "simcse-unsup", "rows": 25, "settings": settings, "stops": {"1": "Ctrl-C"}}
    assert equality_runs.resumed_equals_undisturbed(shared, **given) == ""
    one, other = Path("parted"), Path("whole")
    weights = one / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert equality_runs.folder_difference(one, other) == "model/model.safetensors has other bytes"
    weights.write_bytes(content)
    (one / "checkpoint").mkdir()
    assert "other files: checkpoint" in equality_runs.folder_difference(one, other)


def test_a_wrong_embedding_or_gradient_is_found(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare() -> str:
        return equality_encoders.ragged_equals_padded(SHAPE, [1, 7, 3, 40, 7], "mean")

    assert compare() == ""
    monkeypatch.setattr(equality_encoders, "_pool", lambda states, name: states[0])
    assert "an embedding differs" in compare()
    gradients = {"weight": torch.ones(3)}
    assert equality_encoders.gradient_difference(gradients, gradients) == ""
    found = equality_encoders.gradient_difference({"weight": torch.tensor([1.0, 1.0, 1.001])}, gradients)
    assert found == "the gradient of weight differs by 1.0e-03 of its largest element"
    assert "compares nothing" in equality_encoders.gradient_difference({}, {})


def test_wrong_vectors_are_found() -> None:
    vectors = np.ones((3, 2), np.float32)
    assert equality_encoders.vector_difference(vectors, vectors) == ""
    for wrong in (np.nan, 1.001):
        other = vectors.copy()
        other[1, 1] = wrong
        assert equality_encoders.vector_difference(other, vectors).startswith("vector 1 differs by ")
    assert "compares nothing" in equality_encoders.vector_difference(0 * vectors, 0 * vectors)


@pytest.mark.parametrize("name", ["supcon", "info_nce"])
def test_a_wrong_objective_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(10)  # some draw a batch of one, whose loss is 0
    assert not any(equality_objectives.against_loops(name, seed) for seed in seeds)
    assert not any(equality_objectives.against_mpmath(name, seed) for seed in seeds)
    original = getattr(equality_objectives.objectives, name)
    monkeypatch.setattr(
        equality_objectives.objectives, name, lambda *given, **settings: 1.01 * original(*given, **settings)
    )
    assert any("the value: " in equality_objectives.against_loops(name, seed) for seed in seeds)
    assert any(equality_objectives.against_mpmath(name, seed) for seed in seeds)
