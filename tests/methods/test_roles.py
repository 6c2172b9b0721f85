"""Prompts in training: roles of the columns, equal texts in both roles, and no change without prompts."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from nearfar import Encoder, NearfarError
from nearfar.commands.train import train
from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.encoder.prompts import PromptedText
from nearfar.methods import Method
from nearfar.registry import METHODS, find_entry
from nearfar.training.gradients import seed_rng
from nearfar.types import NliRow
from tests.method_configs import by_night, config, write_data
from tests.methods.table_encoder import built

QUERY, DOCUMENT, DEFAULT = "who sees the ", "a big house : ", "not "
ROLES = (QUERY, DOCUMENT)
NLI_METHODS = ("sbert", "scl", "augment", "nli-order")
TWO_ROLES = (*NLI_METHODS, "simcse-sup", "info-nce", "teacher-scores")
TRIPLETS = [
    ("A dog runs.", "An animal moves.", "A dog sleeps."),
    ("Two men sing.", "People make music.", "Nobody sings."),
    ("A dog runs.", "The dog is fast.", "A dog sleeps."),  # the anchor again
    ("An animal moves.", "Something moves.", "A dog runs."),  # texts that are documents elsewhere, and the other way
    ("People make music.", "Two men sing.", "It rains."),
]
NLI = [
    NliRow("p", "a", 0),
    NliRow("p", "q", 0),  # a hypothesis that is a premise elsewhere
    NliRow("p", "c", 2),
    NliRow("q", "a", 1),
    NliRow("q", "p", 0),
    NliRow("r", "r", 0),
    NliRow("r", "c", 2),
]


class PromptTable:
    """A vector of each text; it depends on the prompt only if ``by_prompt``."""

    def __init__(self, *, by_prompt: bool) -> None:
        self.by_prompt, self.vectors = by_prompt, {}

    def __call__(self, items: Any) -> torch.Tensor:
        return torch.stack([self.vector(item) for item in items])

    def vector(self, item: str | PromptedText) -> torch.Tensor:
        prompt, text = (DEFAULT, item) if isinstance(item, str) else item
        key = (prompt if self.by_prompt else "", text)
        if key not in self.vectors:
            seed = int(hashlib.sha256("".join(key).encode()).hexdigest()[:8], 16)
            drawn = torch.randn(6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            self.vectors[key] = drawn.requires_grad_()
        return self.vectors[key]


def build(name: str, table: PromptTable, prompts: tuple[str, str]) -> tuple[Method, Any]:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"nli-order": {"directions": "all", "distinct_texts": False}}.get(name, {})
    scores = {"targets": [(1.0, 0.1 * n) for n in range(len(TRIPLETS))]} if name == "teacher-scores" else {}
    method = built(METHODS[name](output="x", **settings), table, 6, rows(name), prompts=prompts, **scores)
    return method, next(method.batches.epoch(0))


@pytest.mark.parametrize("name", TWO_ROLES)
def test_equal_texts_are_found_without_their_prompts(name: str) -> None:
    """With an encoder that ignores prompts, loss and gradient are those without prompts: the masks are the same."""
    found = {}
    for roles in ((DEFAULT,) * 2, ROLES):
        table = PromptTable(by_prompt=False)
        method, batch = build(name, table, roles)
        torch.manual_seed(1)
        loss = method.loss(batch).total
        loss.backward()
        found[roles] = (loss.detach(), *(table.vectors[key].grad for key in sorted(table.vectors)))
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", TWO_ROLES)
def test_each_distinct_prompt_and_text_is_encoded_once(name: str) -> None:
    method, batch = build(name, PromptTable(by_prompt=True), ROLES)
    items = list(method.extract_items(batch))
    assert len(set(items)) == len(items)
    queries, *documents = zip(*(row[:2] if isinstance(row, NliRow) else row for row in rows(name)), strict=True)
    expected = {PromptedText(QUERY, text) for text in queries}
    expected |= {PromptedText(DOCUMENT, text) for column in documents for text in column}
    assert set(items) == expected
    plain, batch = build(name, PromptTable(by_prompt=True), (DEFAULT,) * 2)
    assert [item.text for item in plain.extract_items(batch)] == batch.sentences


def rows(name: str) -> list[Any]:
    return NLI if name in NLI_METHODS else TRIPLETS


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of each type, an encoder, and the encoder ``prompted`` that leaves the prompt out of its pooling."""
    folder = write_data(tmp_path_factory.mktemp("data"))
    encoder = Encoder.from_pretrained(folder / "noisy")
    encoder.save_pretrained(folder / "prompted")
    pooling = folder / "prompted" / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    return folder


def losses(run: PreparedRun) -> list[float]:
    run.encoder.train()
    found = []
    for number, parts in zip(range(3), run.mixture.epoch(0), strict=False):
        for method, batch, weight in parts:
            seed_rng(3, number)
            found.append(weight * float(method.loss(batch).total.detach()))
    return found


def named(**prompts: str) -> dict[str, str]:
    return {f"{name}_prompt" if name != "default" else "prompt": text for name, text in prompts.items()}


BY_DAY = ("scl", "info-nce", "sg-opt", "regression")
"""One of each type of rows; the other methods are tested at night."""


@pytest.mark.long
@pytest.mark.parametrize("method", by_night(METHODS, BY_DAY))
def test_each_method_reads_its_texts_with_their_prompts(method: str, data: Path) -> None:
    """Without prompts the tokens are those of the texts; methods without roles read all texts with the default one."""
    run = prepare(config(method, data))
    assert not any(fact.startswith("prompts:") for fact in run.facts)
    (part, batch, _), *_ = next(run.mixture.epoch(0))
    items = part.extract_items(batch)
    if isinstance(items[0], str | PromptedText):
        items = [getattr(item, "text", item) for item in items]
        assert set(items) == set(batch.sentences)
    else:
        items = [text for pair in items for text in pair]
    ids = run.texts.ids(items)
    assert ids.prompt_lengths is None
    assert list(ids) == run.encoder.tokenizer(list(items), truncation=True, max_length=62)["input_ids"]
    plain = losses(run)
    default = losses(prepare(config(method, data, **named(default=DEFAULT))))
    roles = losses(prepare(config(method, data, **named(query=QUERY, document=DOCUMENT))))
    entry = find_entry(method)
    assert entry is not None
    assert (default == plain) is entry.by_role
    assert (roles == plain) is not entry.by_role


@pytest.mark.long
@pytest.mark.parametrize(("model", "weight"), [("noisy", 0.0), ("prompted", 0.3)])
def test_training_embeds_as_encode_query_and_encode_document(model: str, weight: float, data: Path) -> None:
    settings: dict[str, Any] = {"model": str(data / model), "pooling": "own", "mlp": "none", "mlm_weight": weight}
    run = prepare(config("simcse-sup", data, **settings, **named(query=QUERY, document=DOCUMENT)))
    assert f"prompts: {QUERY!r} before queries (anchors), {DOCUMENT!r} before documents (positives and negatives)" in (
        run.facts
    )
    run.encoder.eval()
    for (method, batch, _), *others in run.mixture.epoch(0):
        items = method.extract_items(batch)
        with torch.no_grad():
            vectors = run.texts.embed(items).numpy()
        encode = {QUERY: run.encoder.encode_query, DOCUMENT: run.encoder.encode_document}
        for item, vector in zip(items, vectors, strict=True):
            assert np.abs(encode[item.prompt]([item.text], precision="fp32")[0] - vector).max() <= 2e-5
        for mlm, other, _ in others:
            assert len(mlm.extract_items(other)) == len(items)
            assert np.isfinite(float(mlm.loss(other).total.detach()))


@pytest.mark.long
def test_the_trained_folder_has_the_prompts_of_training(data: Path, tmp_path: Path) -> None:
    prompts = named(query=QUERY, document=DOCUMENT, default="text: ")
    train(config("info-nce", data, output=str(tmp_path / "run"), **prompts))
    theirs = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert theirs.prompts == {"query": QUERY, "document": DOCUMENT, "default": "text: "}
    assert theirs.default_prompt_name == "default"
    ours = Encoder.from_pretrained(tmp_path / "run")
    for name in ("encode", "encode_query", "encode_document"):
        found, expected = getattr(ours, name)(["dog", "cat"], precision="fp32"), getattr(theirs, name)(["dog", "cat"])
        assert np.abs(found - expected).max() <= 1e-5

    # A model that has prompts is trained with them, unless they are turned off.
    model = str(tmp_path / "run" / "model")
    assert prepared_prompts(config("info-nce", data, model=model)) == (QUERY, DOCUMENT)
    own = config("info-nce", data, model=model, query_prompt="default", document_prompt="")
    assert prepared_prompts(own) == ("text: ", "")
    with pytest.raises(NearfarError, match="--query-prompt qurey: the model has no prompt of this name"):
        prepare(config("info-nce", data, model=model, query_prompt="qurey"))


def prepared_prompts(settings: Any) -> tuple[str, str]:
    run = prepare(settings)
    (method, batch, _), *_ = next(run.mixture.epoch(0))
    items = method.extract_items(batch)
    return items[0].prompt, items[-1].prompt
