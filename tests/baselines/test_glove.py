"""Averaged word vectors: file formats, tokens, averages, and invalid files."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from nearfar.baselines.words import Glove
from nearfar.types import NearfarError

LINES = "the 1 0 0\ndog 0 1 0\n's 0 0 2\nn't 0 0 8\ndo 4 0 0\n. 0 0 4\nwell-known 6 6 6\n"


def saved(folder: Path, text: str, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dog", ["dog"]),
        ("The DOG\tthe dog", ["the", "dog", "the", "dog"]),
        ("the dog's.", ["the", "dog", "'s", "."]),
        ("Don’t... don't", ["do", ".", ".", ".", "do", "n't"]),
        ("a well-known dog-the", ["well-known", "dog", "the"]),
    ],
)
def test_averages_the_known_words(text: str, words: list[str], tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, LINES))
    by_hand = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in LINES.splitlines()}
    found = glove([text])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], np.mean([by_hand[word] for word in words], axis=0), rtol=1e-6)


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.vec", "vectors.txt.gz"])
@pytest.mark.parametrize(
    "change",
    [lambda text: text, lambda text: "7 3\n" + text.replace("\n", " \n"), lambda text: text.replace("\n", "\r\n")],
)
def test_formats(change, name: str, tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, change(LINES), name))
    assert list(glove.words) == ["the", "dog", "'s", "n't", "do", ".", "well-known"]
    assert glove.vectors.shape == (7, 3)
    np.testing.assert_array_equal(glove(["the dog .", "do"]), np.float32([[1 / 3, 1 / 3, 4 / 3], [4, 0, 0]]))


def test_words_with_spaces_and_repeated_words(tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, "a 1 2\n. . . 3 4\n\nb\u00a0c 5 6\na 7 8\n"))
    assert list(glove.words) == ["a", ". . .", "b\u00a0c"]
    np.testing.assert_array_equal(glove.vectors, [[1, 2], [3, 4], [5, 6]])


def test_case_matters_if_the_file_has_upper_case_words(tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, "Bill 1 0\nbill 0 1\nsings 4 4\n"))
    np.testing.assert_array_equal(glove(["Bill", "bill", "BILL", "Sings"]), [[1, 0], [0, 1], [0, 1], [4, 4]])


def test_keeping_only_some_words(tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, LINES), words={"dog", "do", "cat"})
    assert glove.words == {"dog": 0, "do": 1}
    np.testing.assert_array_equal(glove.vectors, [[0, 1, 0], [4, 0, 0]])
    with pytest.raises(NearfarError, match="none of the 1 requested words among its 7"):
        Glove.from_file(saved(tmp_path, LINES), words=["cat"])


def test_texts_without_a_known_word_are_counted(tmp_path: Path) -> None:
    glove = Glove.from_file(saved(tmp_path, LINES))
    with pytest.warns(UserWarning, match=r"3 of 4 texts .* 60.0% of all tokens are unknown") as caught:
        found = glove(["a cat", "the dog", "", "cat"])
    assert len(caught) == 1
    np.testing.assert_array_equal(found, [[0, 0, 0], [0.5, 0.5, 0], [0, 0, 0], [0, 0, 0]])
    assert glove([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "vectors.txt, line 2: 1 numbers, .* declares 2"),
        ("a 1 2\n\nb 1 2 3\n", "vectors.txt, line 3: 3 numbers, .* declares 2"),
        ("2 2\na 1 2\nb 1\n", "line 3: 1 numbers"),
        ("2 3\na 1 2\nb 1 2\n", "line 2: 2 numbers, .* declares 3"),
        ("a 1 2\nb 1 x2\n", "line 2: 'x2' is not a number"),
        ("a 1 2\nb 1 nan\n", "line 2: the vector of 'b' holds a NaN or infinity"),
        ("a 1 2\nb 1e999 2\n", "line 2: the vector of 'b'"),
        ("a\nb 1\n", "line 1: has no numbers"),
        ("", "has no vectors"),
        ("3 2\n", "has no vectors"),
        ("3 2\na 1 2\nb 1 2\n", "first line says 3 vectors, but the file has 2"),
    ],
)
def test_invalid_files_raise(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=message):
        Glove.from_file(saved(tmp_path, text))


def test_missing_file_and_invalid_utf8(tmp_path: Path) -> None:
    saved(tmp_path, LINES)
    with pytest.raises(NearfarError, match=r"no such file. Did you mean 'vectors.txt'"):
        Glove.from_file(tmp_path / "vector.txt")
    (tmp_path / "latin.txt").write_bytes(b"a 1 2\nd\xe9j\xe0 1 2\n")
    with pytest.raises(NearfarError, match=r"latin.txt, line 2: not UTF-8"):
        Glove.from_file(tmp_path / "latin.txt")


@pytest.mark.realdata
def test_real_vectors_of_similar_texts_are_similar(nearfar_data: Path) -> None:
    glove = Glove.from_file(nearfar_data / "glove" / "glove.6B.50d.5k.txt")
    assert glove.vectors.shape == (5050, 50)
    assert glove.lower
    dog, other, far = glove(["The dog isn't in the house.", "A dog was at home.", "Interest rates fell 3.5% today"])

    def cosine(x, y):
        return x @ y / np.linalg.norm(x) / np.linalg.norm(y)

    assert cosine(dog, other) > cosine(dog, far) + 0.1
