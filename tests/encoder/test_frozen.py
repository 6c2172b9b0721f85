"""The guide: views equal pooled hidden states; it stays frozen, keeps its mode. The teacher's vectors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nearfar import Encoder, NearfarError
from nearfar.encoder.frozen import Guide, TeacherVectors
from nearfar.encoder.ragged import RaggedBatch, hidden_states
from tests.encoder.architectures import VARIED
from tests.tiny import save_tiny, sentences

TEXTS = [*sentences(5, longest=5), "a dog", "a dog", *sentences(2, seed=1, longest=40)]


def views_by_hand(encoder: Encoder, token_ids: list[list[int]], pooling: str) -> torch.Tensor:
    """The views of each text separately, from the backbone's hidden states."""
    rows = []
    for ids in token_ids:
        with torch.no_grad():
            layers = hidden_states(encoder.backbone, RaggedBatch.pack([ids]), encoder.route, all_layers=True)
        rows.append(torch.stack([layer.max(0).values if pooling == "max" else layer.mean(0) for layer in layers]))
    return torch.stack(rows)


@pytest.mark.long
@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("architecture", VARIED)
def test_views_equal_the_pooled_hidden_states(architecture: str, pooling: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(save_tiny(tmp_path, architecture))
    ids = encoder.tokenize(TEXTS).ids
    expected = views_by_hand(encoder, ids, pooling)
    count = encoder.backbone.config.num_hidden_layers
    full = Guide(encoder.backbone, encoder.route, pooling=pooling)
    found = full.views(ids)
    assert full.layers == (0, count)
    assert found.shape == (len(TEXTS), count + 1, 32)
    assert expected.abs().amax(dim=(0, 2)).min() > 0.1
    assert (expected[:, 0] - expected[:, 1]).abs().max() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    for first, last in ((0, 0), (1, count), (1, 1), (count, count)):
        part = Guide(encoder.backbone, encoder.route, pooling=pooling, layers=(first, last))
        torch.testing.assert_close(part.views(ids), expected[:, first : last + 1], atol=1e-5, rtol=0)


def test_the_copy_is_frozen_and_independent_of_the_original(encoder: Encoder) -> None:
    ids = encoder.tokenize(TEXTS).ids
    encoder(ids).sum().backward()
    guide = Guide(encoder.backbone, encoder.route)
    before = guide.views(ids)
    with torch.no_grad():
        for parameter in encoder.backbone.parameters():
            parameter.add_(1.0)
    assert torch.equal(guide.views(ids), before)
    assert not before.requires_grad
    assert all(not p.requires_grad and p.grad is None for p in guide.parameters())
    assert all(p.requires_grad for p in encoder.backbone.parameters())
    (before * encoder(ids)[:, None]).sum().backward()  # not an inference tensor, so usable in a loss


@pytest.mark.long
@pytest.mark.parametrize("dropout", [False, True])
def test_it_keeps_its_mode_when_a_parent_changes_mode(encoder: Encoder, dropout: bool) -> None:
    ids = encoder.tokenize(TEXTS).ids
    guide = Guide(encoder.train().backbone, encoder.route, dropout=dropout)
    parent = torch.nn.ModuleList([guide])
    for mode in (True, False):
        parent.train(mode)
        assert all(module.training == dropout for module in guide.modules())
        assert torch.equal(guide.views(ids), guide.views(ids)) != dropout


def test_views_are_float32_in_the_precision_of_the_run(encoder: Encoder) -> None:
    ids = encoder.tokenize(TEXTS).ids
    guide = Guide(encoder.backbone, encoder.route)
    exact = guide.views(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = guide.views(ids)
    assert rounded.dtype == torch.float32
    assert 1e-4 < (rounded - exact).abs().max() < 0.3
    assert torch.nn.functional.cosine_similarity(rounded, exact, dim=2).min() > 0.999
    assert Guide(encoder.backbone.to(torch.bfloat16), encoder.route).views(ids).dtype == torch.float32


DISTINCT = list(dict.fromkeys(sentences(30)))


def test_vectors_of_the_teacher_are_those_of_the_encoder(encoder: Encoder) -> None:
    encoder.prompts, encoder.default_prompt_name = {"own": "the red "}, "own"
    encoder.normalizes = True
    encoder.train()
    expected = encoder.encode(DISTINCT, precision="fp32")
    teacher = TeacherVectors(encoder, [*DISTINCT, *DISTINCT[:3]], name="teacher", bf16=False)
    some = [DISTINCT[4], DISTINCT[2], DISTINCT[4]]
    before = torch.get_rng_state()
    found = teacher(some)
    assert torch.equal(torch.get_rng_state(), before)
    assert not found.requires_grad
    np.testing.assert_allclose(found.numpy(), expected[[4, 2, 4]], atol=1e-6)
    assert teacher.mean_square == pytest.approx(1 / encoder.dim)
    teacher.attach(expected)
    np.testing.assert_allclose(teacher(some).numpy(), expected[[4, 2, 4]], atol=1e-6)


def test_a_vector_of_the_teacher_that_is_not_finite_names_the_text(encoder: Encoder) -> None:
    with torch.no_grad():
        encoder.backbone.get_input_embeddings().weight[encoder.tokenizer.get_vocab()["river"]] = torch.inf
    texts = ["a dog", "a cat", "the river", "a man"]
    with pytest.raises(NearfarError, match=r"text 2 \(counted from 0\), 'the river': the model's output is not finite"):
        TeacherVectors(encoder, texts, name="teacher", bf16=False)(texts[1:])
