"""studies/student.py: a student that was not trained has some layers of the teacher, or its token vectors alone."""

import sys
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import torch

import nearfar
from nearfar.encoder.ragged import transformer_layers
from nearfar.studies.papers import ENCODER, write_inputs
from tests.scripts import run_here

FILE = Path(__file__).parents[1] / "studies" / "student.py"
TEXTS = ["A man plays a guitar.", "Nobody plays."]


def run(*words: object) -> CompletedProcess[str]:
    return run_here([sys.executable, FILE, *words])


@pytest.mark.long
def test_a_student_of_a_teacher(tmp_path: Path) -> None:
    write_inputs(tmp_path / "inputs")
    teacher = tmp_path / "inputs" / ENCODER
    layers = transformer_layers(nearfar.Encoder.from_pretrained(teacher).backbone)
    assert len(layers) == 2
    made = run("--model", teacher, "--output", tmp_path / "one", "--layers", 1, "--seed", 1)
    assert made.returncode == 0, made.stderr
    (kept,) = transformer_layers(nearfar.Encoder.from_pretrained(tmp_path / "one" / "model").backbone)
    for name, value in layers[1].state_dict().items():
        assert torch.equal(kept.state_dict()[name], value), name

    for name, words, dim in (("static", (), None), ("narrow", ("--dim", 5), 5)):
        made = run("--model", teacher, "--output", tmp_path / name, "--static", *words)
        assert made.returncode == 0, made.stderr
        nearfar.static(teacher, output=tmp_path / "expected" / name, dim=dim, progress=False)
        found, expected = (
            nearfar.Encoder.from_pretrained(folder).encode(TEXTS)
            for folder in (tmp_path / name / "model", tmp_path / "expected" / name)
        )
        np.testing.assert_array_equal(found, expected)

    refused = run("--model", teacher, "--output", tmp_path / "none", "--layers", 9)
    assert refused.returncode
    assert "this encoder has the layers 1 to 2" in refused.stderr
