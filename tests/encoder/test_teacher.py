"""The teacher's vectors: those of the encoder itself, before and after they are attached."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import modules as st

from nearfar import Encoder, NearfarError
from nearfar.encoder.frozen import TeacherVectors
from nearfar.encoder.heads import add_projection
from tests.tiny import sentences

TEXTS = list(dict.fromkeys(sentences(30)))


def teacher_of(encoder: Encoder, texts: list[str] = TEXTS, *, bf16: bool = False) -> TeacherVectors:
    return TeacherVectors(encoder, texts, name="teacher", bf16=bf16)


def test_vectors_are_those_of_the_encoder(encoder: Encoder) -> None:
    encoder.prompts, encoder.default_prompt_name = {"own": "the red "}, "own"
    encoder.normalizes = True
    encoder.train()
    expected = encoder.encode(TEXTS, precision="fp32")
    teacher = teacher_of(encoder, [*TEXTS, *TEXTS[:3]])
    some = [TEXTS[4], TEXTS[2], TEXTS[4]]
    before = torch.get_rng_state()
    found = teacher(some)
    assert torch.equal(torch.get_rng_state(), before)
    assert not found.requires_grad
    np.testing.assert_allclose(found.numpy(), expected[[4, 2, 4]], atol=1e-6)
    teacher.attach(expected)
    np.testing.assert_allclose(teacher(some).numpy(), expected[[4, 2, 4]], atol=1e-6)
    assert teacher.mean_square == pytest.approx(1 / encoder.dim)


def test_the_mean_square_is_that_of_all_entries(encoder: Encoder) -> None:
    teacher = teacher_of(encoder)
    assert teacher.mean_square == pytest.approx(float(np.square(encoder.encode(TEXTS, precision="fp32")).mean()))


def test_a_vector_that_is_not_finite_names_the_text(folder: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    with torch.no_grad():
        encoder.backbone.embeddings.word_embeddings.weight[encoder.tokenizer.get_vocab()["river"]] = torch.inf  # type: ignore[union-attr,operator,index]
    texts = ["a dog", "a cat", "the river", "a man"]
    with pytest.raises(NearfarError, match=r"text 2 \(counted from 0\), 'the river': the model's output is not finite"):
        teacher_of(encoder, texts)(texts[1:])


def test_vectors_of_another_shape_are_refused(encoder: Encoder) -> None:
    with pytest.raises(NearfarError, match=r"the teacher's vectors have the shape \(3, 32\), not"):
        teacher_of(encoder).attach(np.zeros((3, 32), dtype=np.float32))


@pytest.mark.long
def test_an_added_projection_is_saved(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    before = encoder.encode(TEXTS)
    add_projection(encoder, 48)
    assert encoder.dim == 48
    assert isinstance(encoder.tail[-1], st.Dense)
    wide = encoder.encode(TEXTS)
    np.testing.assert_allclose(wide @ wide.T, before @ before.T, rtol=1e-3, atol=1e-3)
    encoder.save_pretrained(tmp_path / "wide")
    assert np.array_equal(Encoder.from_pretrained(tmp_path / "wide").encode(TEXTS), wide)
