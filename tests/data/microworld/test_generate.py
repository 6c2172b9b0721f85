"""The generated corpus: sizes, balance, held-out words and templates, files, and reproducibility."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from nearfar.data.microworld import Microworld, generate
from nearfar.types import CONTRADICTION, ENTAILMENT, LABEL_NAMES, NearfarError

# Function words of both vocabularies.
FUNCTION_WORDS = set("a after an and are at being by from in is not of on the to up with".split())
DIGEST = """
import hashlib
from nearfar.data.microworld import generate
world = generate(3, premises=40, dev_pairs=40, test_pairs=40, labelled=20, text=20)
print(hashlib.sha256(repr(world).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def corpus() -> Microworld:
    return generate()


def words(sentence: str) -> set[str]:
    return set(re.findall(r"[a-z'-]+", sentence.lower()))


def training_sentences(corpus: Microworld) -> set[str]:
    rows = {text for row in corpus.nli for text in (row.premise, row.hypothesis)}
    return rows | {text for text, _ in corpus.labelled} | set(corpus.text)


def pair_sentences(pairs) -> set[str]:
    return {text for pair in pairs for text in (pair.first, pair.second)}


def held_out_sentences(corpus: Microworld) -> set[str]:
    return pair_sentences(corpus.sts_test) | {text for row in corpus.nli_test for text in (row.premise, row.hypothesis)}


def test_sizes(corpus: Microworld) -> None:
    assert len({row.premise for row in corpus.nli}) == 1300
    assert 4000 < len(corpus.nli) < 5000
    assert len({row.premise for row in corpus.nli_test}) == 250
    assert (len(corpus.sts_dev), len(corpus.sts_test), len(corpus.labelled), len(corpus.text)) == (400, 800, 600, 2000)
    small = generate(1, premises=5, test_premises=0, dev_pairs=3, test_pairs=0, labelled=2, text=1)
    assert len({row.premise for row in small.nli}) == 5
    assert (len(small.sts_dev), len(small.sts_test), len(small.labelled), len(small.text)) == (3, 0, 2, 1)


@pytest.mark.long
def test_output_does_not_depend_on_the_hash_seed_of_the_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert generate(3, premises=9).nli == generate(3, premises=9).nli != generate(4, premises=9).nli


def test_the_size_of_one_part_changes_no_other() -> None:
    small = generate(2, premises=10, test_premises=1, dev_pairs=20, test_pairs=5, labelled=1, text=5)
    large = generate(2, premises=20, test_premises=2, dev_pairs=20, test_pairs=9, labelled=3, text=8)
    for part in ("nli", "nli_test", "sts_test", "labelled", "text"):
        first = getattr(small, part)
        assert 0 < len(first) < len(getattr(large, part))
        assert getattr(large, part)[: len(first)] == first


def test_most_premises_have_every_label(corpus: Microworld) -> None:
    labels = defaultdict(list)
    for row in corpus.nli:
        labels[row.premise].append(row.label)
    assert sum(set(found) == {0, 1, 2} for found in labels.values()) > 0.75 * len(labels)
    assert sum(found.count(ENTAILMENT) > 1 for found in labels.values()) > 0.1 * len(labels)
    assert min(Counter(row.label for row in corpus.nli).values()) > 0.2 * len(corpus.nli)


def test_no_row_contradicts_another(corpus: Microworld) -> None:
    rows = [(row.premise, row.hypothesis) for row in corpus.nli + corpus.nli_test]
    assert len(set(rows)) == len(rows)
    assert all(premise != hypothesis for premise, hypothesis in rows)


def test_negation_does_not_predict_the_label(corpus: Microworld) -> None:
    negated = Counter(row.label for row in corpus.nli if {"not"} & words(row.hypothesis))
    assert 0.3 < negated[CONTRADICTION] / negated.total() < 0.7


def test_the_test_sets_share_no_content_word_with_other_sets(corpus: Microworld) -> None:
    seen = set().union(*map(words, training_sentences(corpus) | pair_sentences(corpus.sts_dev)))
    held_out = set().union(*map(words, held_out_sentences(corpus)))
    assert seen & held_out <= FUNCTION_WORDS
    assert len(seen) > 350
    assert len(held_out) > 350


def test_the_test_sets_have_their_own_templates(corpus: Microworld) -> None:
    mark = re.compile(r"can be seen|^Here |^It is |n't |^(In|On|At|Outside|Inside)\b[^,]*, ")
    assert not any(mark.search(text) for text in training_sentences(corpus) | pair_sentences(corpus.sts_dev))
    held_out = held_out_sentences(corpus)
    assert sum(bool(mark.search(text)) for text in held_out) > 0.6 * len(held_out)


def test_no_development_sentence_is_trained_on(corpus: Microworld) -> None:
    assert not pair_sentences(corpus.sts_dev) & training_sentences(corpus)


def test_scores_vary_and_word_overlap_predicts_them_poorly(corpus: Microworld) -> None:
    for pairs in (corpus.sts_dev, corpus.sts_test):
        scores = [pair.score for pair in pairs]
        shared = [
            len(words(pair.first) & words(pair.second)) / len(words(pair.first) | words(pair.second)) for pair in pairs
        ]
        assert spearmanr(shared, scores).statistic < 0.4
        for low, high in ((0, 1), (1, 2), (2, 3), (3.5, 4.5), (4.9, 5)):
            assert sum(low <= score <= high for score in scores) > 0.05 * len(scores)
        # high overlap with different meaning, low overlap with the same meaning
        assert any(overlap > 0.8 and score < 2.5 for overlap, score in zip(shared, scores, strict=True))
        assert any(overlap < 0.4 and score == 5.0 for overlap, score in zip(shared, scores, strict=True))


def test_the_sentences_are_english(corpus: Microworld) -> None:
    errors = re.compile(
        r"\ba [aeiou]|\ban [^aeiou]|  | ,| \.|\b(an?|is) (people|men|women|children|mice|geese)\b"
        r"|\b(men|women|people|children|mice|geese|dogs|cats|nurses|sailors) (is|does|isn't|has)\b"
        r"|\b(two|three|four|five|some|several) [\w-]*(man|woman|child|mouse|goose|person)\b"
        r"|\bthe (a|an|some|several)\b|\b(\w+) \4\b|[{}()]",
        re.IGNORECASE,
    )
    for text in training_sentences(corpus) | pair_sentences(corpus.sts_dev) | held_out_sentences(corpus):
        assert text[0].isupper(), text
        assert text.endswith("."), text
        assert not errors.search(text), text


def test_labels_are_kinds_of_activity(corpus: Microworld) -> None:
    counts = Counter(label for _, label in corpus.labelled)
    assert {"food", "music", "motion", "rest"} <= set(counts)
    assert len(counts) >= 8
    assert all(label == "music" for text, label in corpus.labelled if "sing" in words(text) or "singing" in words(text))


def test_files_are_laid_out_like_the_data_folder(corpus: Microworld, tmp_path: Path) -> None:
    corpus.write(tmp_path)
    lines = (tmp_path / "nli/microworld/train.tsv").read_text().splitlines()
    assert lines[0] == "premise\thypothesis\tlabel"
    row = corpus.nli[0]
    assert lines[1].split("\t") == [row.premise, row.hypothesis, LABEL_NAMES[row.label]]
    assert len(lines) == len(corpus.nli) + 1
    assert len((tmp_path / "nli/microworld/test.tsv").read_text().splitlines()) == len(corpus.nli_test) + 1
    for name, pairs in (("dev", corpus.sts_dev), ("test", corpus.sts_test)):
        lines = (tmp_path / f"sts/microworld/{name}.tsv").read_text().splitlines()
        assert lines[0] == "score\tsentence1\tsentence2"
        assert [(float(score), one, two) for score, one, two in (line.split("\t") for line in lines[1:])] == [
            (pair.score, pair.first, pair.second) for pair in pairs
        ]
    assert (tmp_path / "labelled.tsv").read_text().splitlines()[:1] == ["label\ttext"]
    assert (tmp_path / "text.txt").read_text().splitlines() == corpus.text


def test_a_folder_that_cannot_be_written(corpus: Microworld, tmp_path: Path) -> None:
    (tmp_path / "nli").write_text("a file where a folder should be")
    with pytest.raises(NearfarError, match=r"train\.tsv: cannot be written"):
        corpus.write(tmp_path)


def test_the_default_corpus_has_not_changed(corpus: Microworld) -> None:
    # a change of vocabulary, templates or sampling would invalidate all reported results on this corpus
    assert (
        hashlib.sha256(repr((corpus.nli, corpus.sts_dev, corpus.sts_test)).encode()).hexdigest()[:16]
        == "368ceba4da79a280"
    )
