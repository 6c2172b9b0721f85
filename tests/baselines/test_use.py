"""The Universal Sentence Encoder: calls of TensorFlow Hub, and the error if it is not installed."""

import sys
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest

from nearfar.baselines import use
from nearfar.baselines.words import PUBLISHED, Use
from nearfar.types import NearfarError


@pytest.fixture
def hub(monkeypatch):
    """A mock of tensorflow_hub; ``loaded`` and ``calls`` record its use."""
    module = ModuleType("tensorflow_hub")
    module.loaded, module.calls = [], []

    def model(texts):
        assert type(texts) is list
        module.calls.append(texts)
        return np.array([[len(text), 1] for text in texts], dtype=np.float64).reshape(len(texts), 2)

    def load(handle):
        module.loaded.append(handle)
        return model

    module.load = load
    monkeypatch.setitem(sys.modules, "tensorflow_hub", module)
    return module


def test_the_published_model_or_a_folder_is_called_in_batches(hub, monkeypatch):
    monkeypatch.setattr(use, "TEXTS_AT_ONCE", 2)
    encode = Use()
    vectors = encode(("a", "bb", "ccc"))
    Use("some/folder")
    assert hub.loaded == [PUBLISHED, "some/folder"]
    assert hub.calls == [["a", "bb"], ["ccc"]]
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, [[1, 1], [2, 1], [3, 1]])
    assert encode([]).shape == (0, 2)


def test_without_tensorflow_hub_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_hub", None)
    with pytest.raises(NearfarError, match=r"pip install tensorflow tensorflow-hub 'setuptools<81'.*tensorflow_hub"):
        Use()


def test_a_model_that_cannot_be_loaded(hub):
    for error in (OSError, ValueError, RuntimeError):
        hub.load = Mock(side_effect=error("no such module"))
        with pytest.raises(NearfarError, match=r"some/where: TensorFlow Hub cannot load it: no such module.*FOLDER"):
            Use("some/where")
