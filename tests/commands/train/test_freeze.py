"""Training queries alone: values and gradients, documents and their index as they were, a Router; refusals."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

import nearfar
from nearfar import Encoder, NearfarError
from nearfar.commands.train import train
from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.registry import METHODS
from tests.interrupted_runs import assert_same_run, interrupt_at_step
from tests.method_configs import by_night, config
from tests.tiny import save_tiny, sentences

BY_ROLE = ("sbert", "scl", "augment", "simcse-sup", "info-nce", "documents", "nli-order", "teacher-scores")
TEXTS = sentences(9)


def frozen(method: str, folder: Path, **settings: Any) -> Any:
    extra = {"mlp": "none"} if hasattr(METHODS[method], "mlp") else {}
    extra["pooling"] = "own"
    return config(method, folder, **{"freeze": "documents", "model": str(folder / "tiny"), **extra, **settings})


def gradients(run: PreparedRun, *, detached: bool) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of the first batch; ``detached`` lets those of documents be constants."""
    ((method, batch, _),) = next(run.mixture.epoch(0))
    items = method.extract_items(batch)
    vectors = method.represent(items)
    if detached:
        queries = {batch.sentences[text] for text in batch.columns[0]}
        is_query = torch.tensor([getattr(item, "text", item) in queries for item in items])
        vectors = torch.where(is_query[:, None], vectors, vectors.detach())
    torch.manual_seed(0)
    loss = method.loss_fn(batch, vectors).value
    run.encoder.zero_grad()
    loss.backward()
    return loss.item(), [weight.grad.to_dense() for weight in run.encoder.parameters() if weight.grad is not None]


@pytest.mark.parametrize("method", by_night(BY_ROLE, ("scl", "info-nce", "teacher-scores")))
def test_the_gradient_is_that_of_the_queries(method: str, folder: Path) -> None:
    assert METHODS.keys() >= {*BY_ROLE}
    ours = gradients(prepare(frozen(method, folder)), detached=False)
    theirs = gradients(prepare(frozen(method, folder, freeze=None)), detached=True)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert len(ours[1]) == len(theirs[1]) > 0
    scale = max(float(gradient.norm()) for gradient in theirs[1])
    for one, other in zip(*(each[1] for each in (ours, theirs)), strict=True):
        assert float((one - other).norm()) <= 1e-4 * float(other.norm()) + 1e-6 * scale


@pytest.mark.long
def test_documents_and_their_index_stay_and_a_stopped_run_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = tmp_path / "documents.txt"
    documents.write_text("\n".join(sentences(20, seed=5)) + "\n")
    start = folder / "tiny"
    nearfar.search("a query", model=str(start), input=str(documents))
    index = tmp_path / "documents.txt.index"
    before = {file.name: file.read_bytes() for file in index.iterdir()}
    settings = frozen("info-nce", folder, output=str(tmp_path / "run"), keep="last", query_prompt="find: ")
    stopped = frozen("info-nce", folder, output=str(tmp_path / "stopped"), keep="last", query_prompt="find: ")
    train(settings)
    interrupt_at_step(3, monkeypatch, lambda: train(stopped))
    train(stopped, resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "stopped")

    (hits,) = nearfar.search("a query", model=str(tmp_path / "run"), input=str(documents))
    assert {file.name: file.read_bytes() for file in index.iterdir()} == before
    trained, plain = Encoder.from_pretrained(tmp_path / "run"), Encoder.from_pretrained(start)
    assert np.array_equal(trained.encode_document(TEXTS), plain.encode(TEXTS))
    assert np.array_equal(trained.encode(TEXTS), plain.encode(TEXTS))
    queries = trained.encode_query(TEXTS)
    assert np.abs(queries - plain.encode_query(TEXTS, prompt="find: ")).max() > 1e-3
    assert hits[0].score == pytest.approx(
        float(
            np.max(trained.encode_query(["a query"], normalize=True) @ trained.encode([hits[0].text], normalize=True).T)
        ),
        abs=1e-5,
    )
    theirs = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    np.testing.assert_allclose(theirs.encode_query(TEXTS), queries, atol=1e-5)
    np.testing.assert_allclose(theirs.encode_document(TEXTS), trained.encode_document(TEXTS), atol=1e-5)
    np.testing.assert_allclose(theirs.encode(TEXTS), trained.encode(TEXTS), atol=1e-5)

    with pytest.raises(NearfarError, match=r"train that of queries further with --freeze documents"):
        train(config("info-nce", folder, model=str(tmp_path / "run"), output=str(tmp_path / "again")))
    train(frozen("info-nce", folder, model=str(tmp_path / "run"), output=str(tmp_path / "again"), max_steps=1))
    again = Encoder.from_pretrained(tmp_path / "again")
    assert np.array_equal(again.encode_document(TEXTS), plain.encode(TEXTS))
    assert again.query_prompt == "find: "
    with pytest.raises(NearfarError, match=r"one encoder for queries and one for documents; name one of them: .*query"):
        nearfar.export(tmp_path / "run", output=str(tmp_path / "exported"))


@pytest.mark.long
def test_a_square_layer_is_all_that_changes(folder: Path, tmp_path: Path) -> None:
    train(frozen("info-nce", folder, output=str(tmp_path / "run"), keep="last", query_layer=True))
    query = tmp_path / "run" / "model" / "query"
    start, now = (load_file(place / "model.safetensors") for place in (folder / "tiny", query))
    assert all(torch.equal(now[name], start[name]) for name in start)
    (layer,) = (load_file(file)["linear.weight"] for file in query.glob("*_Dense/model.safetensors"))
    expected = Encoder.from_pretrained(folder / "tiny").encode(TEXTS) @ layer.numpy().T
    np.testing.assert_allclose(Encoder.from_pretrained(tmp_path / "run").encode_query(TEXTS), expected, atol=1e-5)
    assert float((layer - torch.eye(len(layer))).abs().max()) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_static_encoder_searches_the_documents_of_a_transformer(precision: str, folder: Path, tmp_path: Path) -> None:
    nearfar.static(str(folder / "tiny"), output=str(tmp_path / "static"), dim=None)
    models = {"model": str(tmp_path / "static"), "document_model": str(folder / "tiny")}
    train(frozen("info-nce", folder, **models, output=str(tmp_path / "run"), keep="last", precision=precision))
    trained = Encoder.from_pretrained(tmp_path / "run")
    assert np.array_equal(trained.encode_document(TEXTS), Encoder.from_pretrained(folder / "tiny").encode(TEXTS))
    theirs = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    np.testing.assert_allclose(theirs.encode_query(TEXTS), trained.encode_query(TEXTS), atol=1e-5)
    nearfar.static(str(folder / "tiny"), output=str(tmp_path / "narrow"), dim=8)
    with pytest.raises(NearfarError, match=r"narrow and .*tiny: .*8 dimensions for queries, and 32 for documents"):
        train(frozen("info-nce", folder, **{**models, "model": str(tmp_path / "narrow")}))


def test_a_router_of_sentence_transformers_is_opened(tmp_path: Path) -> None:
    parts = [SentenceTransformer(str(save_tiny(tmp_path / str(seed), seed=seed)), device="cpu") for seed in (0, 1)]
    router = st.Router.for_query_document(*(list(part.children()) for part in parts))
    theirs = SentenceTransformer(
        modules=[router, st.Normalize()], prompts={"query": "find: ", "document": "in: "}, device="cpu"
    )
    theirs.save_pretrained(str(tmp_path / "router"))
    ours = Encoder.from_pretrained(tmp_path / "router")
    for role in ("query", "document"):
        expected = getattr(theirs, f"encode_{role}")(TEXTS)
        np.testing.assert_allclose(ours.encode(TEXTS, role=role), expected, atol=1e-5)  # type: ignore[arg-type]
    scores = nearfar.evaluate(tmp_path / "router", tasks=("microworld",), resamples=0)
    assert scores.tasks
    file = tmp_path / "router" / "router_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "structure": {"query": []}}))
    with pytest.raises(NearfarError, match=r"router_config\.json: does not say which modules encode the role 'query'"):
        Encoder.from_pretrained(tmp_path / "router")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "sg-opt"}, "sg-opt trains on texts that are neither queries nor documents"),
        ({"method": "simcse-sup", "mlp": "train_only"}, "--mlp train_only: its layer is for queries and documents"),
        ({"matryoshka": (16,)}, "--freeze documents and --matryoshka"),
        ({"lora_rank": 2, "adapter": "keep"}, "--freeze documents and --adapter keep"),
        ({"lora_rank": 2, "query_layer": True}, "--query-layer and --lora-rank"),
        ({"freeze": None, "query_layer": True}, "--query-layer"),
        ({"freeze": None, "document_model": "x"}, "--document-model"),
        ({"document_model": "missing/model"}, "missing/model"),
    ],
)
def test_what_cannot_be_frozen_is_said(settings: dict[str, Any], message: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=re.escape(message)):
        train(frozen(settings.pop("method", "info-nce"), folder, output=str(tmp_path / "run"), **settings))
