"""``--prompt`` of encode, evaluate and geometry, and of the baselines; refusals."""

from pathlib import Path

import numpy as np
import pytest

from nearfar import Encoder, encode, evaluate
from nearfar.baselines import open_baseline
from tests.invalid_input.cli_runner import assert_refused
from tests.tiny import save_tiny, sentences, write_pairs

PROMPT = "who sees the "
TEXTS = sentences(30, longest=6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: texts, pairs, ``plain`` without prompts and ``model`` with a query prompt."""
    save_tiny(tmp_path / "plain")
    encoder = Encoder.from_pretrained(tmp_path / "plain")
    encoder.set_prompts(query=PROMPT)
    encoder.save_pretrained(tmp_path / "model")
    (tmp_path / "x.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "prefixed.txt").write_text("".join(f"{PROMPT}{text}\n" for text in TEXTS))
    write_pairs(tmp_path / "pairs.tsv", 30)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prefixed_pairs() -> str:
    header, *rows = Path("pairs.tsv").read_text().splitlines()
    names = header.split("\t")
    texts = [names.index(name) for name in ("sentence1", "sentence2")]
    lines = [header]
    for row in rows:
        lines.append("\t".join(PROMPT * (place in texts) + field for place, field in enumerate(row.split("\t"))))
    Path("prefixed.tsv").write_text("\n".join(lines) + "\n")
    return "prefixed.tsv"


@pytest.mark.long
def test_encode_takes_a_name_or_a_text(folder: Path) -> None:
    encode("plain", input="prefixed.txt", output="expected.npy", progress=False)
    expected = np.load("expected.npy")
    for number, (model, prompt) in enumerate((("model", "query"), ("model", PROMPT), ("plain", PROMPT))):
        encode(model, input="x.txt", output=f"{number}.npy", prompt=prompt, progress=False)
        assert np.array_equal(np.load(f"{number}.npy"), expected)
    encode("model", input="x.txt", output="default.npy", progress=False)
    encode("model", input="x.txt", output="none.npy", prompt="", progress=False)
    assert np.array_equal(np.load("default.npy"), np.load("none.npy"))
    assert not np.allclose(np.load("default.npy"), expected)


@pytest.mark.long
def test_evaluate(folder: Path) -> None:
    settings = {"resamples": 0, "progress": False}
    expected = evaluate("plain", pairs=[prefixed_pairs()], **settings)
    found = evaluate("model", pairs=["pairs.tsv"], prompt="query", **settings)
    (one,), (other,) = expected.tasks.values(), found.tasks.values()
    assert one.spearman.all.score == other.spearman.all.score
    assert found.config["prompt"] == found.config["query_prompt"] == PROMPT
    assert not {"prompt", "query_prompt", "document_prompt"} & expected.config.keys()
    assert evaluate("model", pairs=["pairs.tsv"], **settings).config["query_prompt"] == PROMPT
    assert "query_prompt" not in evaluate("model", pairs=["pairs.tsv"], query_prompt="", **settings).config


@pytest.mark.long
@pytest.mark.parametrize("baseline", ["wk:{},layer_start=0", "whitening:{},dimensions=3", "flow:{}@x.txt"])
def test_baselines_encode_with_the_prompt(baseline: str, folder: Path) -> None:
    if baseline.startswith("flow"):
        (folder / "x.txt").write_text("".join(f"{text}\n" for text in sentences(200, seed=2)))
        (folder / "prefixed.txt").write_text("".join(f"{PROMPT}{text}\n" for text in sentences(200, seed=2)))
    found = open_baseline(baseline.format("model"), per_call=True, prompt="query")(TEXTS)
    plain = open_baseline(baseline.format("plain").replace("x.txt", "prefixed.txt"), per_call=True)
    assert np.allclose(found, plain([PROMPT + text for text in TEXTS]), atol=1e-5)
    assert not np.allclose(found, plain(TEXTS), atol=1e-3)


@pytest.mark.long
def test_names_that_no_prompt_has(folder: Path) -> None:
    words = ["encode", "model", "--input", "x.txt", "--output", "y.npy", "--prompt", "qurey"]
    assert_refused(words, "--prompt qurey: the model has no prompt of this name. It has 'query'.")
    assert not Path("y.npy").exists()


@pytest.mark.long
def test_retrieval_encodes_queries_and_documents_with_their_prompts(folder: Path) -> None:
    distinct = list(dict.fromkeys(f"{text} {word}" for text, word in zip(TEXTS, 5 * sentences(6, seed=3), strict=True)))
    pairs = list(zip(distinct[::2], distinct[1::2], strict=False))
    for name, first, second in (("rows", "", ""), ("prefixed-rows", PROMPT, "not ")):
        lines = [f"{first}{anchor}\t{second}{positive}" for anchor, positive in pairs]
        Path(f"{name}.tsv").write_text("\n".join(["anchor\tpositive", *lines]) + "\n")
    settings = {"resamples": 0, "progress": False}
    expected = evaluate("plain", retrieval=["prefixed-rows.tsv"], **settings)
    found = evaluate("model", retrieval=["rows.tsv"], document_prompt="not ", **settings)
    assert (found.config["query_prompt"], found.config["document_prompt"]) == (PROMPT, "not ")
    (one,), (other,) = expected.retrieval.values(), found.retrieval.values()
    assert one.measures == other.measures
    (plain,) = evaluate("plain", retrieval=["rows.tsv"], **settings).retrieval.values()
    assert plain.measures != one.measures
