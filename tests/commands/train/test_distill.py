"""Distillation runs: the teacher's file, resuming at any point, other widths and depths, refused teachers."""

import json
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from nearfar import DistillConfig, Encoder, NearfarError, static
from nearfar.commands.encode import vectors
from nearfar.commands.train import train
from nearfar.commands.train.plan import plan
from nearfar.commands.train.prepare import prepare
from nearfar.data.fingerprints import text_hashes
from nearfar.disk.model_folder import SeenHashes, read_seen, write_seen
from nearfar.encoder import stream
from nearfar.encoder.heads import add_projection
from nearfar.training import Interrupted
from tests.interrupted_runs import assert_same_run, interrupt_at_step
from tests.method_configs import config, write_data
from tests.tiny import sentences

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = write_data(tmp_path_factory.mktemp("data"))
    wide = Encoder.from_pretrained(data / "teacher")
    torch.manual_seed(3)
    wide.tail.append(st.Dense(32, 48))
    wide.save_pretrained(data / "wide")
    return data


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 7 of the 31 texts."""
    monkeypatch.setattr(vectors, "PART_TEXTS", 7)


def distill(folder: Path, tmp_path: Path, **settings: Any) -> DistillConfig:
    return config(
        "distill", folder, **{"output": str(tmp_path / "run"), "epochs": 3, "max_steps": 5, "keep": "last", **settings}
    )


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def stop_in_block(number: int, monkeypatch: pytest.MonkeyPatch, settings: DistillConfig) -> None:
    """Start a run, and press Ctrl-C while the teacher encodes a block, counted from 0."""
    encode = stream.encode_blocks

    def interrupted(*arguments: Any, **settings: Any) -> stream.Encoded:
        yield from islice(encode(*arguments, **settings), number)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stream, "encode_blocks", interrupted)
        with pytest.raises(Interrupted):
            train(settings)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first text of each block that a teacher encodes."""
    encode, starts = stream.encode_blocks, []

    def record(*arguments: Any, **settings: Any) -> stream.Encoded:
        for block, encoded in encode(*arguments, **settings):
            starts.append(block.start)
            yield block, encoded

    monkeypatch.setattr(stream, "encode_blocks", record)
    return starts


@pytest.mark.usefixtures("small_blocks")
def test_the_teacher_is_run_once_and_its_file_is_removed_at_the_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[int]
) -> None:
    settings = distill(folder, tmp_path)
    interrupt_at_step(4, monkeypatch, lambda: train(settings))
    (file,) = (tmp_path / "run" / "teachers").iterdir()
    assert encoded == [0, 7, 14, 21, 28]
    vectors = np.load(file)
    texts = (folder / "sentences.txt").read_text().splitlines()
    np.testing.assert_allclose(vectors, Encoder.from_pretrained(folder / "teacher").encode(texts), atol=1e-6)
    train(settings, resume=True)
    assert len(encoded) == 5
    assert not (tmp_path / "run" / "teachers").exists()


@pytest.mark.usefixtures("small_blocks")
def test_a_run_stopped_while_the_teacher_encodes_continues_after_the_finished_blocks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: list[int]
) -> None:
    whole = distill(folder, tmp_path, output=str(tmp_path / "whole"))
    train(whole)
    settings = distill(folder, tmp_path)
    encoded.clear()
    stop_in_block(3, monkeypatch, settings)
    assert len(encoded) == 3
    train(settings, resume=True)
    assert encoded == [0, 7, 14, 21, 28]
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert not (tmp_path / "run" / "teachers").exists()


PROJECTIONS = ["kept", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("train_only", "same_width"))]


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_a_teacher_of_another_width(projection: str, folder: Path, tmp_path: Path) -> None:
    train(distill(folder, tmp_path, teacher=str(folder / "wide"), vector_projection=projection))
    trained = Encoder.from_pretrained(tmp_path / "run" / "model")
    assert trained.dim == (48 if projection == "kept" else 32)
    texts = sentences(9)
    theirs = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu").encode(texts)
    assert np.abs(trained.encode(texts) - theirs).max() <= 1e-5


def test_a_static_student_has_its_layer_in_its_vectors(folder: Path, tmp_path: Path) -> None:
    static(str(folder / "teacher"), output=tmp_path / "static", dim=None, progress=False)
    settings = distill(folder, tmp_path, model=str(tmp_path / "static"), teacher=str(folder / "wide"), pooling="own")
    assert len(prepare(settings).encoder.tail) == 1
    train(settings)
    trained = Encoder.from_pretrained(tmp_path / "run" / "model")
    assert trained.dim == 32
    assert not trained.tail
    before = load_file(tmp_path / "static" / "model.safetensors")["embedding.weight"]
    assert not torch.equal(weights(tmp_path / "run")["embedding.weight"], before)


@pytest.mark.parametrize("projection", ["train_only", "kept", "same_width"])
def test_the_projection_starts_where_the_vectors_of_student_and_teacher_are_nearest(
    projection: str, folder: Path, tmp_path: Path
) -> None:
    """A teacher that is a rotation of the student, in more dimensions: the first loss is 0."""
    rotated = Encoder.from_pretrained(folder / "tiny")
    add_projection(rotated, 48)
    rotated.save_pretrained(tmp_path / "rotated")
    settings = distill(
        folder,
        tmp_path,
        model=str(folder / "tiny"),
        teacher=str(tmp_path / "rotated"),
        pooling="own",
        vector_projection=projection,
    )
    ((method, batch, _),) = next(prepare(settings).mixture.epoch(0))
    assert method.loss(batch).total.item() == pytest.approx(0, abs=1e-5)


def test_what_the_teacher_has_seen_counts_as_seen(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "teacher", tmp_path / "mine")
    known = np.unique(text_hashes(["a secret"]))
    none = np.empty(0, dtype=np.uint64)
    write_seen(tmp_path / "mine", SeenHashes(known, none, none, none))
    train(distill(folder, tmp_path, teacher=str(tmp_path / "mine")))
    seen = read_seen(tmp_path / "run" / "model")
    assert seen is not None
    own = text_hashes((folder / "sentences.txt").read_text().splitlines())
    assert np.isin([*known, *own], seen.trained_texts).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher": ""}, "distill needs a teacher|must not be empty"),
        ({"teacher": "nowhere/at/all"}, "nowhere/at/all"),
        ({"teacher": "noisy"}, "is the start model itself, so there is nothing to learn"),
        ({"batch_size": 2, "list_weight": 1.0, "vector_weight": 0.0}, "a list of one teaches nothing"),
    ],
)
def test_unusable_teachers_and_layers_are_refused(
    settings: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    if settings.get("teacher") == "noisy":
        settings = {"teacher": str(folder / "noisy")}
    with pytest.raises(NearfarError, match=message):
        train(distill(folder, tmp_path, **settings))
    assert not (tmp_path / "run").exists()


def test_agreement_with_the_teacher_on_held_out_sentences_chooses_the_step(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{text} {number}" for number, text in enumerate(sentences(80))]
    (tmp_path / "many.txt").write_text("\n".join([*texts, texts[0].upper()]) + "\n")
    settings = distill(folder, tmp_path, data=(str(tmp_path / "many.txt"),), evaluate_on=None, hold_out=12)
    settings = replace(settings, keep="best", evaluate_every=1)
    planned = plan(settings)
    assert any("sentences, Spearman of the student's cosines" in fact for fact in planned.facts)
    interrupt_at_step(4, monkeypatch, lambda: train(settings))
    result = train(settings, resume=True)
    assert (result.metric, result.dev) == ("spearman", "the held-out sentences")
    assert result.start_score is not None
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(info["inputs"]["held-out sentences"]) == 16
    seen = read_seen(tmp_path / "run" / "model")
    assert seen is not None
    held_out = [text for text in texts if text_hashes([text])[0] in seen.chosen_texts]
    assert len(held_out) == 12
    assert not np.isin(seen.chosen_texts, seen.trained_texts).any()
    assert len(seen.trained_texts) == 80 - 12
    unit = [Encoder.from_pretrained(folder / name).encode(held_out, normalize=True) for name in ("noisy", "teacher")]
    upper = np.triu_indices(12, 1)
    expected = spearmanr(*((vectors @ vectors.T)[upper] for vectors in unit)).statistic
    assert result.start_score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("width", [32, pytest.param(48, marks=pytest.mark.nightly)])
def test_a_teacher_that_is_not_finite_is_named(width: int, folder: Path, tmp_path: Path) -> None:
    broken = Encoder.from_pretrained(folder / ("teacher" if width == 32 else "wide"))
    with torch.no_grad():
        broken.backbone.embeddings.word_embeddings.weight.fill_(torch.inf)  # type: ignore[union-attr,operator]
    broken.save_pretrained(tmp_path / "broken")
    with pytest.raises(NearfarError, match=r"--teacher .*broken: text \d+ .*: the model's output is not finite"):
        train(distill(folder, tmp_path, teacher=str(tmp_path / "broken")))
