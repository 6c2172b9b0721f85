"""The training scripts of studies/: losses of another library, averages of runs, students, starts."""

import hashlib
import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import nearfar
from nearfar.data.documents import load_pairs_of_documents
from nearfar.disk.model_folder import read_seen
from nearfar.encoder.ragged import transformer_layers
from nearfar.studies.papers import ENCODER, write_inputs
from tests.scripts import load_script, run_here

STUDIES = Path(__file__).parents[1] / "studies"
PEERS = load_script("studies/peers/losses.py")
BY_DAY = ("mnrl",)
"""A loss on triplets; the others run at night. Vectors of a teacher are in a test below."""
SCORED = ("cosent", "angle", "cosine")
TRAINING = {
    "data": "microworld", "evaluate_on": "microworld:dev", "limit": 64, "batch_size": 8, "max_steps": 2,
    "evaluate_every": 2, "learning_rate": 0.001, "precision": "fp32",
}  # fmt: skip


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts") / "inputs"
    write_inputs(folder)
    return folder / ENCODER


def run(script: str, start: Path, output: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return run_here([sys.executable, STUDIES / script, "--model", start, "--output", output, *words])


def flags(**changes: object) -> list[object]:
    """The flags of a short training."""
    given = {**TRAINING, **changes}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


# --- losses of sentence-transformers ---


@pytest.mark.long
@pytest.mark.parametrize(
    "loss", [pytest.param(name, marks=[] if name in BY_DAY else pytest.mark.nightly) for name in PEERS.LOSSES]
)
def test_a_loss_trains(loss: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "microworld:dev" if loss in SCORED else "microworld"
    words = (
        f"--model {start} --output {tmp_path} --loss {loss} --data {data} --evaluate-on microworld:dev --batch-size 8"
    )
    words += f" --precision fp32 --max-steps 2 --evaluate-every 1 --guide {start}"
    monkeypatch.setattr(sys, "argv", ["losses.py", *words.split()])
    PEERS.main()
    assert -100 <= json.loads((tmp_path / "numbers.json").read_text())["validation"] <= 100
    assert [step for step, _ in json.loads((tmp_path / "run.json").read_text())["history"]] == [1, 2]
    before = load_file(start / "model.safetensors")
    after = weights(tmp_path)
    assert any(not torch.equal(value, after[name]) for name, value in before.items() if name in after)
    seen = read_seen(tmp_path / "model")
    assert seen is not None
    assert len(seen.trained_texts) > 8


def test_weights_are_averaged_with_the_start() -> None:
    model = torch.nn.Linear(2, 1)
    start = [weight.clone() for weight in model.state_dict().values()]
    with torch.no_grad():
        model.weight += 1.0
    PEERS.average(model, start, 0.25)
    torch.testing.assert_close(model.weight.data, start[0] + 0.75)
    assert PEERS.LOSSES["mnrl"].build(model, Namespace(scale=40.0)).scale == 40.0


def test_rows_are_made_of_documents(tmp_path: Path) -> None:
    file = tmp_path / "documents.txt"
    sentences = (f"This is sentence number {number} of the document." for number in range(12))
    file.write_text(" ".join(sentences) + "\n")
    options = Namespace(documents=True, data=str(file), seed=3, limit=None)
    rows = load_pairs_of_documents(str(file), seed=3).rows
    assert PEERS.pairs(options) == {"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]}
    texts = PEERS.sentences(options)["text"]
    assert (len(texts), set(texts)) == (len(set(texts)), {text for row in rows for text in row})


@pytest.mark.long
def test_the_main_components_of_a_teacher_are_taught(start: Path) -> None:
    shown = {"guide": str(start), "loss": "distill-mse", "documents": False}
    options = Namespace(data="microworld", limit=40, components=None, **shown)
    whole = np.stack(PEERS.taught(options)["label"])
    options.components = 3
    taught = np.stack(PEERS.taught(options)["label"])
    assert taught.shape == (40, 3)
    variances = np.linalg.svd(whole - whole.mean(0), compute_uv=False)[:3] ** 2
    np.testing.assert_allclose(np.square(taught - taught.mean(0)).sum(0), variances, rtol=1e-4)


# --- averages of runs, and students ---


@pytest.fixture
def members_train_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", run_here)


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.usefixtures("members_train_here")
def test_an_average_is_that_of_its_runs(start: Path, tmp_path: Path) -> None:
    """Its numbers are theirs; what a stopped attempt left is replaced."""
    nearfar.train("sg-opt1", model=start, output=tmp_path / "soup" / "member-3", seed=9, keep="last", **TRAINING)
    words = ("--members", 2, "--method", "sg-opt1", "--tasks", "microworld", "--seed", 2)
    made = run("soup.py", start, tmp_path / "soup", *flags(keep="last"), *words)
    assert made.returncode == 0, made.stderr
    members = []
    for seed in (3, 4):
        nearfar.train("sg-opt1", model=start, output=tmp_path / str(seed), seed=seed, keep="last", **TRAINING)
        members.append(weights(tmp_path / str(seed)))
    average = weights(tmp_path / "soup")
    assert any(not torch.equal(members[0][name], members[1][name]) for name in average)
    for name, value in average.items():
        torch.testing.assert_close(value, (members[0][name] + members[1][name]) / 2, rtol=1e-5, atol=1e-7)
    scores = [
        nearfar.evaluate(str(tmp_path / name), tasks=["microworld"], precision="fp32", resamples=0, progress=False)
        .tasks["microworld"]
        .spearman.all.score
        for name in ("3", "4", "soup/model")
    ]
    numbers = json.loads((tmp_path / "soup" / "numbers.json").read_text())
    assert numbers["members"] == pytest.approx((scores[0] + scores[1]) / 2, abs=1e-3)
    assert numbers["average"] == pytest.approx(scores[2], abs=1e-3)
    assert not list((tmp_path / "soup").glob("member-*"))


@pytest.mark.long
def test_a_student_of_a_teacher(start: Path, tmp_path: Path) -> None:
    """One that was not trained has some layers of the teacher, or its token vectors alone."""
    layers = transformer_layers(nearfar.Encoder.from_pretrained(start).backbone)
    assert len(layers) == 2
    made = run("student.py", start, tmp_path / "one", "--layers", 1, "--seed", 1)
    assert made.returncode == 0, made.stderr
    (kept,) = transformer_layers(nearfar.Encoder.from_pretrained(tmp_path / "one" / "model").backbone)
    for name, value in layers[1].state_dict().items():
        assert torch.equal(kept.state_dict()[name], value), name
    for name, words, dim in (("static", (), None), ("narrow", ("--dim", 5), 5)):
        made = run("student.py", start, tmp_path / name, "--static", *words)
        assert made.returncode == 0, made.stderr
        nearfar.static(start, output=tmp_path / "expected" / name, dim=dim, progress=False)
        found, expected = (
            nearfar.Encoder.from_pretrained(folder).encode(["A man plays a guitar.", "Nobody plays."])
            for folder in (tmp_path / name / "model", tmp_path / "expected" / name)
        )
        np.testing.assert_array_equal(found, expected)
    refused = run("student.py", start, tmp_path / "none", "--layers", 9)
    assert refused.returncode
    assert "this encoder has the layers 1 to 2" in refused.stderr


@pytest.mark.long
def test_a_start_is_trained_on_or_begins_at_random_weights(start: Path, tmp_path: Path) -> None:
    """The same seed gives the same bytes, half precision and no pooler; what is saved can be trained from."""
    data = tmp_path / "sentences.txt"
    data.write_text("".join(f"the cat sees {number} green birds\n" for number in range(30)))
    before = load_file(start / "model.safetensors")
    digests = {}
    for name, words in {"one": (), "same": (), "seed": ("--seed", 1), "scratch": ("--from-scratch",)}.items():
        made = run("start.py", start, tmp_path / name, "--data", data, "--max-steps", 2, *words)
        assert made.returncode == 0, made.stderr
        after = load_file(tmp_path / name / "model.safetensors")
        assert {value.dtype for value in after.values()} == {torch.float16}
        assert not [key for key in after if "pooler" in key]
        moved = max((value.float() - before[key].float()).abs().max().item() for key, value in after.items())
        assert (moved > 0.01) == (name == "scratch"), (name, moved)
        digests[name] = made.stdout.split()[-2]
        assert np.isfinite(nearfar.Encoder.from_pretrained(tmp_path / name).encode(["a cat"])).all()
    assert (
        digests["one"]
        == digests["same"]
        == hashlib.sha256((tmp_path / "one/model.safetensors").read_bytes()).hexdigest()
    )
    assert len(set(digests.values())) == 3
