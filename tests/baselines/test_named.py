"""Baselines by name: which specs are baselines, what they load, and errors of invalid ones."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nearfar import Encoder
from nearfar.baselines import Spec, is_baseline, open_baseline, parse_spec
from nearfar.baselines.flow import Flow
from nearfar.baselines.sbert_wk import SbertWk
from nearfar.baselines.whitening import CachedEncode, Whitening
from nearfar.types import NearfarError
from tests.tiny import save_tiny, sentences

TEXTS = sorted(set(sentences(120, longest=9)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("text") / "some.txt"
    file.write_text("\n".join(TEXTS[:70]) + "\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Records the texts of each call of Encoder.encode."""
    calls: list[list[str]] = []
    encode = Encoder.encode

    def counted(self: Encoder, texts: list[str], **settings: bool) -> np.ndarray:
        calls.append(list(texts))
        return encode(self, texts, **settings)

    monkeypatch.setattr(Encoder, "encode", counted)
    return calls


def test_which_specs_are_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spec in "bow bow:there use use:there glove:v.txt wk:m whitening:m@f flow:m glov:v.txt flow wk".split():
        assert is_baseline(spec), spec
    for spec in ("./use", "all-MiniLM-L6-v2", "owner/name", "runs/scl", "C:/models/x", "uses", "/data/a:b"):
        assert not is_baseline(spec), spec
    for folder in ("flow", "use", "mine:1", "wk:m"):
        (tmp_path / folder).mkdir()
    assert [is_baseline(spec) for spec in ("flow", "mine:1", "use", "wk:m")] == [False, False, True, True]


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("use", Spec("use", "", None, {})),
        ("bow", Spec("bow", "", None, {})),
        ("glove:a@b.txt", Spec("glove", "a@b.txt", None, {})),
        ("wk:own/er,layer_start=0", Spec("wk", "own/er", None, {"layer_start": "0"})),
        ("whitening:m@snli:dev,pooling=layer:2:cls", Spec("whitening", "m", "snli:dev", {"pooling": "layer:2:cls"})),
    ],
)
def test_the_parts_of_a_spec(spec: str, parts: Spec) -> None:
    assert parse_spec(spec) == parts


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        ("glov:v.txt", {}, "unknown baseline 'glov'. Did you mean 'glove'.*whitening:MODEL@TEXTS"),
        ("glove", {}, "glove: write glove:FILE"),
        ("whitening:m@", {}, "write (flow|whitening):MODEL"),
        ("wk:m,layer_stat=1", {}, "wk has no setting 'layer_stat'. Did you mean 'layer_start'. It has: layer_start"),
        ("glove:f,pooling=max", {}, "glove has no setting 'pooling'. It has: none"),
        ("whitening:m,dimensions=1/2", {"per_call": True}, "dimensions is '1/2', but must be an integer"),
        ("wk:m,layer_start=1/0", {}, "layer_start is '1/0', but must be an integer, or as a layer_start a share"),
        ("whitening:m", {}, "fitted on the texts of a task, but there is no task here. .*whitening:MODEL@TEXTS"),
        ("glove:f", {"device": "cpu"}, "device is a setting of an encoder; glove:f has none"),
        ("glove:f", {"pooling": "cls"}, "pooling is a setting"),
        ("flow:m@f,pooling=max", {"pooling": "cls"}, "flow:m@f,pooling=max has its own pooling"),
    ],
)
def test_what_is_refused(spec: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        open_baseline(spec, **settings)


@pytest.mark.long
def test_sbert_wk_of_a_folder_or_a_run(model: str, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(model, max_length=20)
    encode = open_baseline(f"wk:{model},layer_start=0", max_length=20, device="cpu")
    expected = SbertWk(encoder, layer_start=0)(TEXTS[:9])
    np.testing.assert_array_equal(encode(TEXTS[:9]), expected)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "model").symlink_to(model)
    np.testing.assert_array_equal(open_baseline(f"wk:{tmp_path},layer_start=0")(TEXTS[:9]), expected)
    with pytest.raises(NearfarError, match="layer_start 1: SBERT-WK needs three layers"):
        open_baseline(f"wk:{model}")


@pytest.mark.long
@pytest.mark.parametrize("name", ["whitening", "flow"])
def test_fitting_per_call_encodes_each_text_once(name: str, model: str, encoded: list[list[str]]) -> None:
    encode = open_baseline(f"{name}:{model},pooling=cls", per_call=True, seed=3)
    found, again, fewer = encode(TEXTS), encode(TEXTS), encode(TEXTS[:70])
    assert encoded == [TEXTS]
    np.testing.assert_array_equal(again, found)
    plain = Encoder.from_pretrained(model, pooling="cls").encode
    fit = Whitening.fit if name == "whitening" else lambda *to_fit: Flow.fit(*to_fit, seed=3)
    np.testing.assert_allclose(found, fit(plain, TEXTS)(TEXTS), atol=1e-4)
    np.testing.assert_allclose(fewer, fit(plain, TEXTS[:70])(TEXTS[:70]), atol=1e-4)
    assert np.abs(fewer - found[:70]).max() > 0.01
    encode([*TEXTS, "a new dog in the park"])
    assert encoded[-1] == ["a new dog in the park"]


@pytest.mark.long
def test_fitted_on_the_sentences_of_a_file(model: str, corpus: str, encoded: list[list[str]]) -> None:
    encode = open_baseline(f"whitening:{model}@{corpus},dimensions=5", pooling="cls")
    assert encoded == [TEXTS[:70]]
    assert encode(TEXTS[:2]).shape == (2, 5)
    flow = open_baseline(f"flow:{model}@{corpus}", pooling="cls", seed=1)
    assert encoded[-1] == TEXTS[:70]
    expected = Flow.fit(Encoder.from_pretrained(model, pooling="cls").encode, TEXTS[:70], seed=1)(TEXTS)
    np.testing.assert_allclose(flow(TEXTS), expected, atol=1e-5)


def vector(text: str) -> NDArray[np.float32]:
    return np.random.default_rng(list(text.encode())).normal(size=3).astype(np.float32)


def test_the_cache_gives_the_vectors_of_any_calls_and_computes_each_once() -> None:
    encoded: list[str] = []

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        encoded.extend(texts)
        return np.stack([vector(text) for text in texts]) if texts else np.zeros((0, 3), dtype=np.float32)

    draw, cached = random.Random(0), CachedEncode(encode)
    assert cached([]).shape == (0, 3)
    for _ in range(60):
        texts = [f"text {draw.randrange(30)}" for _ in range(draw.randint(1, 8))]
        assert np.array_equal(cached(texts), [vector(text) for text in texts])
    assert len(encoded) == len(set(encoded)) == 30
    assert cached([]).shape == (0, 3)
