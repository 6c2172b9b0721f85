"""NearfarTransformer: the vectors of the encoder, in scikit-learn's pipelines, searches, clones and pickles."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from nearfar import Encoder, NearfarError
from nearfar import sklearn as nearfar_sklearn
from nearfar.sklearn import NearfarTransformer
from tests.tiny import save_tiny, sentences

TEXTS = sentences(12, longest=6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The folders of the encoders that are opened, from an empty cache."""
    nearfar_sklearn._open.cache_clear()
    found: list[Path] = []
    original = Encoder.from_pretrained

    def from_pretrained(name: Path, **settings: Any) -> Encoder:
        found.append(name)
        return original(name, **settings)

    monkeypatch.setattr(Encoder, "from_pretrained", from_pretrained)
    yield found
    nearfar_sklearn._open.cache_clear()


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [{}, {"normalize": True}, {"dimensions": 8, "normalize": True}, {"prompt": "red : "}, {"precision": "fp32"}],
)
def test_vectors_are_those_of_the_encoder(folder: Path, settings: dict[str, Any]) -> None:
    found = NearfarTransformer(folder, **settings).fit_transform(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, Encoder.from_pretrained(folder).encode(TEXTS, **settings))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a dog", "not a single text"),
        (np.array([["a dog"]]), "one column of texts"),
        (pandas.DataFrame({"text": ["a dog"]}), "name the column by a string"),
    ],
)
def test_what_is_not_a_sequence_of_texts_is_refused(folder: Path, texts: Any, message: str) -> None:
    transformer = NearfarTransformer(folder)
    for use in (transformer.fit, transformer.transform, transformer.fit_transform):
        with pytest.raises(NearfarError, match=message):
            use(texts)
    with pytest.raises(NearfarError, match="text 1 is NoneType, not a string"):
        transformer.transform(["a dog", None])


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dimensions": 33}, "must be from 1 to 32"),
        ({"prompt_name": "none"}, "no prompt of this name"),
        ({"model": "no/such/folder"}, "no such model folder"),
    ],
)
def test_invalid_parameters_are_reported_by_fit(folder: Path, settings: dict[str, Any], message: str) -> None:
    transformer = NearfarTransformer(**{"model": folder, **settings})  # as in scikit-learn, not by the constructor
    with pytest.raises(NearfarError, match=message):
        transformer.fit(TEXTS)


@pytest.mark.long
def test_the_encoder_is_opened_once_and_only_when_used(folder: Path, opened: list[Path]) -> None:
    transformer = NearfarTransformer(folder)
    assert opened == []
    transformer.fit(TEXTS)
    transformer.transform(TEXTS)
    clone(transformer).transform(TEXTS)
    transformer.set_params(normalize=True, dimensions=4).transform(TEXTS)
    assert len(opened) == 1
    transformer.set_params(pooling="max").transform(TEXTS)
    assert len(opened) == 2


@pytest.mark.long
def test_a_model_that_changed_is_opened_again(folder: Path, opened: list[Path]) -> None:
    transformer = NearfarTransformer(folder)
    before = transformer.transform(TEXTS)
    save_tiny(folder, seed=1)
    after = transformer.transform(TEXTS)
    assert len(opened) == 2
    assert not np.allclose(before, after)


@pytest.mark.long
def test_a_pipeline_is_searched_pickled_and_named(folder: Path) -> None:
    labels = [number % 2 for number in range(len(TEXTS))]
    pipeline = make_pipeline(NearfarTransformer(folder), LogisticRegression())
    search = GridSearchCV(pipeline, {"nearfartransformer__normalize": [False, True]}, cv=2).fit(TEXTS, labels)
    assert pickle.loads(pickle.dumps(search)).predict(TEXTS).tolist() == search.predict(TEXTS).tolist()
    table = NearfarTransformer(folder, dimensions=3).set_output(transform="pandas").fit_transform(TEXTS)
    assert list(table.columns) == ["nearfar0", "nearfar1", "nearfar2"]
