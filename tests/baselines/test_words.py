"""Bags of words by counting, averages of word vectors, their files, TensorFlow Hub's encoder; what is refused."""

import gzip
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nearfar.baselines import words as module
from nearfar.baselines.words import PUBLISHED, Glove, Use, bag_of_words, words_of
from nearfar.types import NearfarError

TEXTS = ["A dog runs.", "a DOG sleeps", "Über die Brücke", "شخص ما يحمل", "", "a a a dog , ,"]


def test_cosines_are_shares_of_common_words() -> None:
    vectors = bag_of_words(TEXTS)
    assert set(np.unique(vectors)) == {0, 1}
    for first, a in zip(TEXTS, vectors, strict=True):
        for second, b in zip(TEXTS, vectors, strict=True):
            common = len(words_of(first) & words_of(second))
            assert a @ b == common
            norms = np.linalg.norm(a) * np.linalg.norm(b)
            assert norms == pytest.approx((len(words_of(first)) * len(words_of(second))) ** 0.5)


LINES = "the 1 0 0\ndog 0 1 0\n's 0 0 2\nn't 0 0 8\ndo 4 0 0\n. 0 0 4\nwell-known 6 6 6\n"


def saved(folder: Path, text: str, name: str = "vectors.txt", *, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode(encoding))
    return path


def test_averages_the_known_words(tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, LINES))
    by_hand = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in LINES.splitlines()}
    for text, words in (
        ("dog", ["dog"]),
        ("The DOG\tthe dog", ["the", "dog", "the", "dog"]),
        ("the dog's.", ["the", "dog", "'s", "."]),
        ("Don’t... don't", ["do", ".", ".", ".", "do", "n't"]),
        ("a well-known dog-the", ["well-known", "dog", "the"]),
    ):
        found = glove([text])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[0], np.mean([by_hand[word] for word in words], axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vectors.txt", LINES),
        ("vectors.vec", "7 3\n" + LINES.replace("\n", " \n")),
        ("vectors.txt.gz", LINES.replace("\n", "\r\n")),
    ],
)
def test_formats(name: str, text: str, tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, text, name))
    assert list(glove.words) == ["the", "dog", "'s", "n't", "do", ".", "well-known"]
    assert glove.vectors.shape == (7, 3)
    np.testing.assert_array_equal(glove(["the dog .", "do"]), np.float32([[1 / 3, 1 / 3, 4 / 3], [4, 0, 0]]))


def test_texts_without_a_known_word_are_counted(tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, LINES))
    with pytest.warns(UserWarning, match="3 of 4 texts have no word in .*vectors.txt") as caught:
        found = glove(["a cat", "the dog", "", "cat"])
    assert len(caught) == 1
    np.testing.assert_array_equal(found, [[0, 0, 0], [0.5, 0.5, 0], [0, 0, 0], [0, 0, 0]])
    assert glove([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "vectors.txt, line 2: must be a word and 2 finite numbers, .* begins with 'b 1'"),
        ("a 1 2\n\nb 1 2 3\n", "vectors.txt, line 3: must be a word and 2 finite numbers"),
        ("a 1 2\nb 1 nan\n", "line 2: must be"),
        ("a 1 2\nb 1e999 2\n", "line 2: must be"),
        ("", "has 0 vectors"),
        ("3 2\na 1 2\nb 1 2\n", "has 2 vectors, and its first line says 3"),
        ("a 1 2\nd\xe9 1 2\n", "vectors.txt, line 2: not UTF-8"),
    ],
)
def test_invalid_files_raise(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=message):
        Glove.from_file(saved(tmp_path, text, encoding="latin-1"))


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
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 2)
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
