"""Training queries alone: gradients, documents and their index as they were, vectors that exist; a Router; refusals."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
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
from tests.interrupted_runs import assert_same_run, interrupt_at_step, weights_of
from tests.method_configs import by_night, config
from tests.tiny import save_tiny, sentences

BY_ROLE = ("sbert", "scl", "augment", "simcse-sup", "info-nce", "documents", "nli-order", "teacher-scores")
TEXTS = sentences(9)
STABLE = {"adam_epsilon": 1e-4}
"""With it, AdamW does not enlarge the rounding of gradients that are 0, as of the biases of keys."""


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


def documents_of(folder: Path) -> tuple[list[str], list[str]]:
    """The positives and the negatives of the triplets."""
    table = pandas.read_csv(folder / "triplets.tsv", sep="\t")
    return list(table["positive"]), list(table["negative"])


def assert_near(one: Path, other: Path) -> None:
    """Assert that two runs end with the same weights but for rounding, and that these were trained."""
    ours, theirs = weights_of(one), weights_of(other)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=0, atol=1e-5)
    query, document = (load_file(one / "model" / place / "model.safetensors") for place in ("query", "document"))
    assert max(float((query[name] - document[name]).abs().max()) for name in query) > 1e-3


@pytest.mark.long
def test_vectors_of_an_index_are_as_those_that_are_encoded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    positives, negatives = documents_of(folder)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join([*sentences(9, seed=5), *negatives[7:], *positives[4:]]) + "\n")
    how: dict[str, Any] = {"model": str(folder / "tiny"), "input": str(corpus), "precision": "fp32"}
    nearfar.search("a query", **how)
    index = tmp_path / "corpus.txt.index"
    before = {file.name: file.read_bytes() for file in index.iterdir()}

    def settings(output: str, **more: Any) -> Any:
        more = {"output": str(tmp_path / output), "keep": "last", "precision": "fp32", **STABLE, **more}
        return frozen("info-nce", folder, negative_column="negative", **more)

    train(settings("encoded"))
    train(settings("read", document_vectors=str(index)))
    assert_near(tmp_path / "read", tmp_path / "encoded")
    assert {file.name: file.read_bytes() for file in index.iterdir()} == before
    info = json.loads((tmp_path / "read" / "run.json").read_text())
    assert f"documents: 51 have a vector in {index}, 11 are encoded" in info["data"]
    assert info["config"]["document_vectors"] == str(index)

    stopped = settings("stopped", document_vectors=str(index))
    interrupt_at_step(2, monkeypatch, lambda: train(stopped))
    corpus.write_text("one more text\n" + corpus.read_text())
    nearfar.search("a query", **how)  # the index is of more texts, in another order
    interrupt_at_step(3, monkeypatch, lambda: train(stopped, resume=True))
    vectors = np.load(index / "vectors.npy")
    np.save(index / "vectors.npy", vectors + np.float32(1e-4))
    with pytest.raises(NearfarError, match=r"--document-vectors .*index changed since this run started"):
        train(stopped, resume=True)
    np.save(index / "vectors.npy", vectors)
    train(stopped, resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "read")


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "negatives"), [("float32", False), ("float16", True)])
def test_vectors_of_a_file_are_those_of_the_positives(
    dtype: str, negatives: bool, folder: Path, tmp_path: Path
) -> None:
    file, table = tmp_path / "positives.npy", pandas.read_csv(folder / "triplets.tsv", sep="\t")
    table = table if negatives else table.drop(columns="negative")
    twice = pandas.concat([table, table.iloc[:3], table.iloc[:2].assign(anchor="another query")])  # 3 are left out
    twice.rename(columns={"positive": "answer", "anchor": "question"}).to_csv(tmp_path / "rows.csv", index=False)
    how: dict[str, Any] = {"input": str(tmp_path / "rows.csv"), "column": "answer", "precision": "fp32"}
    nearfar.encode(str(folder / "tiny"), **how, output=str(file), dtype=dtype, progress=False)
    settings: dict[str, Any] = {
        "data": str(tmp_path / "rows.csv"),
        "model": str(folder / "tiny"),
        "freeze": "documents",
    }
    settings |= {"hold_out": 8, "batch_size": 10, "max_steps": 4, "learning_rate": 1e-3}
    for name, more in (("encoded", {}), ("read", {"document_vectors": file})):
        train(**settings, **more, **STABLE, output=str(tmp_path / name), precision="fp32", keep="last")
    if dtype == "float32":
        assert_near(tmp_path / "read", tmp_path / "encoded")
    (fact,) = (fact for fact in json.loads((tmp_path / "read/run.json").read_text())["data"] if "have a vector" in fact)
    counts = re.fullmatch(f"documents: (\\d+) have a vector in {re.escape(str(file))}, (\\d+) are encoded", fact)
    assert counts is not None
    assert 15 < int(counts[1]) < len(table)  # without those of held-out rows
    assert int(counts[2]) == int(counts[1]) * negatives


def test_each_set_has_its_documents_vectors(folder: Path, tmp_path: Path) -> None:
    positives, _ = documents_of(folder)
    np.save(tmp_path / "vectors.npy", 3 * Encoder.from_pretrained(folder / "tiny").encode(positives, precision="fp32"))
    rows = "".join(f"question {number}\t{text}\n" for number, text in enumerate([*positives[:5], *TEXTS]))
    (tmp_path / "more.tsv").write_text("anchor\tpositive\n" + rows)
    more = {"data": [str(tmp_path / "more.tsv")], "method": "info-nce"}
    how: dict[str, Any] = {"document_vectors": str(tmp_path / "vectors.npy"), "negative_column": None}
    run = prepare(frozen("info-nce", folder, sets=(more,), **how))
    assert [(len(teacher.known), len(teacher.texts)) for teacher in run.teachers] == [(31, 0), (5, len({*TEXTS}))]
    assert sum("5 have a vector" in fact for fact in run.facts) == 1


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        ("missing", {}, "must be a search index, or a .npy file with a finite vector for each row of --data: float32"),
        ("folder", {}, "must be a search index, or a .npy file"),
        ("rows", {}, "each row of --data: float32 or float16 [31, 32]"),
        ("width", {}, "each row of --data: float32 or float16 [31, 32]"),
        ("numbers", {}, "each row of --data: float32 or float16 [31, 32]"),
        ("nan", {}, "a finite vector for each row of --data"),
        ("pickle", {}, "must be a search index, or a .npy file"),
        ("other", {}, "is of another model, prompt or row. Name vectors of "),
        ("shuffled", {}, "is of another model, prompt or row. Name vectors of "),
        ("longer", {"similarity": "dot"}, "or not of the model's length (--no-normalize), as info-nce needs it"),
        ("longer", {"method": "scl"}, "only positives of a single file can have a .npy file; name a search index"),
        ("index", {"document_model": "teacher"}, "is the index of other vectors: the model changed. Name vectors of"),
        ("index", {"document_prompt": "in: "}, "is the index of other vectors: --document-prompt was '', is in: "),
        ("index", {"method": "scl"}, "or not of the model's length (--no-normalize), as scl needs it"),
        ("short index", {}, "is the index of other vectors: --dimensions was 8, is not given"),
        ("index", {"freeze": None}, "--document-vectors"),
    ],
)
def test_other_vectors_are_refused(
    make: str, settings: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    positives, _ = documents_of(folder)
    vectors: Any = Encoder.from_pretrained(folder / "tiny").encode(positives, precision="fp32")
    method, path = settings.pop("method", "info-nce"), tmp_path / make
    if make == "other":
        vectors = Encoder.from_pretrained(folder / "teacher").encode(positives, precision="fp32")
    elif make == "nan":
        vectors[-1, -1] = np.nan
    elif make == "folder":
        path.mkdir()
    made = {
        "rows": vectors[:-1],
        "width": vectors[:, :-1],
        "numbers": np.ones(vectors.shape, int),
        "pickle": np.array([vectors, None], dtype=object),
        "shuffled": vectors[::-1],
        "longer": 2 * vectors,
    }
    if make.endswith("index"):
        nli = pandas.read_csv(folder / "nli.tsv", sep="\t")
        pandas.DataFrame({"text": [*positives, *nli["hypothesis"]]}).to_csv(tmp_path / "corpus.csv", index=False)
        how: dict[str, Any] = {"index": str(path), "dimensions": 8 if make == "short index" else None}
        nearfar.search("a", model=str(folder / "tiny"), input=str(tmp_path / "corpus.csv"), **how)
    elif make not in ("missing", "folder"):
        with path.open("wb") as stream:
            np.save(stream, made.get(make, vectors), allow_pickle=True)
    if "document_model" in settings:
        settings["document_model"] = str(folder / settings["document_model"])
    with pytest.raises(NearfarError, match=re.escape(message)):
        train(frozen(method, folder, output=str(tmp_path / "run"), document_vectors=str(path), **settings))
    assert not (tmp_path / "run").exists()


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
