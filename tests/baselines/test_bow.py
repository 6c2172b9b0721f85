"""Bags of words: cosines by counting, words, the tasks of an evaluation, and errors."""

from pathlib import Path

import numpy as np
import pytest

from nearfar.baselines import words as module
from nearfar.baselines.named import is_per_task, is_transductive, open_baseline
from nearfar.baselines.words import bag_of_words, words_of
from nearfar.commands.evaluate.command import evaluate
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


def test_words() -> None:
    assert words_of("A dog's 3 toys, a dog!") == {"a", "dog", "'", "s", "3", "toys", ",", "!"}
    assert words_of(" \n") == set()


def test_each_task_has_its_own_dimensions_and_the_same_scores_alone(tmp_path: Path) -> None:
    files = []
    for name, words in (("one", ["dog", "cat", "bird"]), ("two", ["sun", "moon", "sky", "rain"])):
        rows = [f"{k}\t{word} and {words[0]}\t{word} or {words[-1]}" for k, word in enumerate(words)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
        files.append(str(tmp_path / f"{name}.tsv"))
    both = evaluate("bow", tasks=files, resamples=0, progress=False)
    assert both.config["transductive"] is False
    for file in files:
        assert evaluate("bow", tasks=[file], resamples=0, progress=False).tasks[file] == both.tasks[file]
    (subset,) = both.tasks[files[0]].subsets.values()
    # {dog, and} and {dog, or, bird}: 1 / sqrt(2 * 3)
    assert subset.cosines_e6[0] == round(1e6 / 6**0.5)
    ranked = tmp_path / "pairs.tsv"
    ranked.write_text(
        "anchor\tpositive\n" + "".join(f"what is a {w}\tthe {w} is here\n" for w in ("dog", "cat", "sun"))
    )
    assert evaluate("bow", retrieval=[str(ranked)], resamples=0, progress=False).retrieval[str(ranked)].main == "mrr@10"


def test_it_is_not_fitted_and_takes_no_settings() -> None:
    assert is_per_task("bow")
    assert not is_transductive("bow")
    assert is_per_task("whitening:m")
    assert not is_per_task("whitening:m@snli")
    for spec, message in (
        ("bow:words.txt", "bow:words.txt: write bow alone; it has no file and no model."),
        ("bow:", "bow:: write bow alone; it has no file and no model."),
    ):
        with pytest.raises(NearfarError) as caught:
            open_baseline(spec, per_call=True)
        assert str(caught.value) == message
    with pytest.raises(NearfarError, match="pooling is a setting of an encoder; bow has none"):
        open_baseline("bow", per_call=True, pooling="cls")
    with pytest.raises(NearfarError, match="bow: its dimensions are the words of a task, but there is no task here"):
        open_baseline("bow")


def test_too_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NUMBERS", 20)
    with pytest.raises(NearfarError, match="bow: 6 texts with 12 distinct words need 0 GB; it is for tasks with fewer"):
        bag_of_words(TEXTS)
