"""A frozen encoder as the judge of false negatives (--guide): which are left out, and the loss of GISTEmbed."""

from pathlib import Path

import pytest
import torch

from nearfar import NearfarError, train
from nearfar.commands.train.prepare import prepare
from tests.method_configs import config as method_config
from tests.method_configs import write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("margin", [None, 0.02])
def test_the_loss_is_that_of_gist_embed(margin: float | None, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss

    settings = {"model": str(folder / "tiny"), "guide": str(folder / "teacher"), "negative_column": None}
    settings |= {"false_negative_margin": margin, "precision": "fp32", "batch_size": 31}
    run = prepare(method_config("info-nce", folder, **settings))
    ((method, batch, _),) = next(run.mixture.epoch(0))
    rows = [(batch.sentences[first], batch.sentences[second]) for first, second in zip(*batch.columns, strict=True)]
    student, guide = (SentenceTransformer(str(folder / name), device="cpu") for name in ("tiny", "teacher"))
    theirs = GISTEmbedLoss(
        student, guide, temperature=0.05, margin=-(margin or 0.0), contrast_anchors=False, contrast_positives=False
    )
    features = [student.tokenize([row[side] for row in rows]) for side in (0, 1)]
    expected = theirs(features, None)
    loss = method.loss_fn(batch, method.represent(method.extract_items(batch)))
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-6)
    assert loss.terms["left_out"] > 0.05


@pytest.mark.parametrize("method", ["info-nce", "simcse-sup", "nli-order"])
def test_the_start_can_be_the_guide(method: str, folder: Path, tmp_path: Path) -> None:
    settings = {"model": str(folder / "tiny"), "guide": "start", "max_steps": 2}
    trained = train(method_config(method, folder, output=str(tmp_path / "run"), **settings))
    assert (trained.model / "model.safetensors").is_file()


def test_a_guide_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=r"--guide: .*nothing"):
        train(method_config("info-nce", folder, output=str(tmp_path / "run"), guide=str(tmp_path / "nothing")))
