"""Result files: written whole, read back equal, and refused by name where they are damaged."""

import json
import os
import subprocess

import numpy as np
import pytest

from nearfar.evaluation import results
from nearfar.evaluation.results import check_output, digest, provenance, read_result, validate, write_result
from nearfar.evaluation.sts import evaluate_sts
from nearfar.types import NearfarError, ScoredPair

PAIRS = [ScoredPair("ein Hund", "a dog", 4.5), ScoredPair("a cat", "two", 1), ScoredPair("no", "a dog", 0.25)]


@pytest.fixture
def result():
    scored = evaluate_sts(lambda texts: np.array([[len(t), 3.0] for t in texts]), {"mine": {"a": PAIRS}}, resamples=9)
    header = {"schema": 1, "kind": "sts", "model": "länge", "config": {"seed": 0}, "provenance": provenance()}
    return header | {"unavailable": {}} | scored


def test_what_is_written_is_read_back(result, tmp_path):
    file = tmp_path / "r.json"
    write_result(result, file, markdown="# länge\n")
    assert read_result(file) == result
    assert (tmp_path / "r.md").read_text(encoding="utf-8") == "# länge\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.md"]


def test_arrays_and_estimates_stand_on_one_line_each(result, tmp_path):
    write_result(result, tmp_path / "r.json", markdown="")
    lines = [line.strip() for line in (tmp_path / "r.json").read_text(encoding="utf-8").splitlines()]
    assert '"gold": [4.5,1,0.25],' in lines
    assert sum(line.startswith('"cosines_e6": [') and line.endswith("]") for line in lines) == 1
    assert sum(line.startswith('"wmean": {"score":') for line in lines) == 2


def test_a_failed_write_leaves_the_old_file_whole(result, tmp_path, monkeypatch):
    file = tmp_path / "r.json"
    write_result(result, file, markdown="")
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NearfarError, match=r"r\.json: cannot be written \(No space left on device\)"):
        write_result(result | {"model": "another"}, file, markdown="")
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.md"]


def test_a_result_that_is_not_finite_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_result({"score": float("nan")}, tmp_path / "r.json", markdown="")
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "not a complete JSON file"),
        ('{"schema": 1, "kind": "sts", "tas', "not a complete JSON file"),
        ("[1, 2]", "has no 'schema'"),
        ('{"a": 1}', "has no 'schema'"),
        ('{"schema": 2}', "schema 2; this version of nearfar reads 1"),
        ('{"schema": 1, "kind": "comparison"}', "kind is 'comparison'"),
        ('{"schema": 1, "kind": "sts", "model": "m", "config": {}}', "no tasks"),
    ],
)
def test_a_file_that_is_no_result_is_named(text, message, tmp_path):
    file = tmp_path / "broken.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(NearfarError, match=message) as caught:
        read_result(file)
    assert str(caught.value).startswith(str(file))


def test_a_binary_file_is_no_result(tmp_path):
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NearfarError, match=r"b\.json: is damaged: byte 0 is not UTF-8"):
        read_result(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: r["tasks"]["mine"].pop("subsets"), "task mine has no subsets"),
        (lambda r: r["tasks"].update(mine=3), "task mine has no subsets"),
        (lambda r: r["tasks"]["mine"]["spearman"].pop("wmean"), "task mine has no Spearman estimates"),
        (lambda r: r["tasks"]["mine"]["subsets"]["a"].pop("digest"), "subset a has no digest"),
        (lambda r: r["tasks"]["mine"]["subsets"]["a"].pop("gold"), "'gold' is no list of numbers"),
        (lambda r: r["tasks"]["mine"]["subsets"]["a"]["gold"].pop(), "'gold' has 2 numbers"),
        (lambda r: r["tasks"]["mine"]["subsets"]["a"].update(cosines_e6=["1", 2, 3]), "no list of numbers"),
        (lambda r: r["tasks"]["mine"]["subsets"]["a"].update(gold=[1, float("nan"), 3]), "no list of numbers"),
    ],
)
def test_a_damaged_result_says_where(damage, message, result):
    validate(result, source="whole.json")
    damage(result)
    with pytest.raises(NearfarError, match=f"damaged.json.*{message}"):
        validate(result, source="damaged.json")


def test_outputs_that_cannot_be_written_are_refused_beforehand(tmp_path):
    assert check_output(tmp_path / "new" / "r.json") == tmp_path / "new" / "r.json"
    assert (tmp_path / "new").is_dir()
    with pytest.raises(NearfarError, match=r"ends in \.json"):
        check_output(tmp_path / "r.txt")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(NearfarError, match="is a folder"):
        check_output(tmp_path / "folder.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(NearfarError, match="file: cannot be made"):
        check_output(tmp_path / "file" / "r.json")


def test_a_read_only_folder_is_refused_beforehand(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda folder, mode: False)  # root may write anywhere, so say it may not
    with pytest.raises(NearfarError, match="is not writable"):
        check_output(tmp_path / "r.json")


def test_digest_sees_texts_scores_and_order():
    assert digest(PAIRS) == digest([ScoredPair(first, second, float(score)) for first, second, score in PAIRS])
    others = [
        PAIRS[::-1],
        PAIRS[:2],
        [PAIRS[0]._replace(score=4.0), *PAIRS[1:]],
        [PAIRS[0]._replace(second="a dog."), *PAIRS[1:]],
        [ScoredPair(PAIRS[0].second, PAIRS[0].first, PAIRS[0].score), *PAIRS[1:]],
    ]
    assert len({digest(pairs) for pairs in (PAIRS, *others)}) == 6


def test_provenance_tells_date_command_versions_and_hardware():
    told = provenance()
    assert told["versions"]["numpy"] == np.__version__
    assert told["hardware"]["cores"] == os.cpu_count()
    assert told["date"].endswith("+00:00")
    json.dumps(told, allow_nan=False)


def test_commit_is_that_of_the_checkout_the_package_is_tracked_in(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    module = tmp_path / "results.py"
    module.write_text("1")
    monkeypatch.setattr(results, "__file__", str(module))
    assert provenance()["commit"] is None  # no checkout
    git("init")
    (tmp_path / "other").write_text("2")
    git("add", "other")
    git("commit", "-m", "one")
    assert provenance()["commit"] is None  # installed inside somebody else's checkout
    git("add", "results.py")
    git("commit", "-m", "two")
    assert provenance()["commit"] == git("rev-parse", "HEAD")
    for made in ("docs/page.md", "studies/results/fast/scl.json"):
        (tmp_path / made).parent.mkdir(parents=True)
        (tmp_path / made).write_text("before")
    git("add", ".")
    git("commit", "-m", "three")
    for made in ("docs/page.md", "studies/results/fast/scl.json"):
        (tmp_path / made).write_text("made again")
    assert provenance()["commit"] == git("rev-parse", "HEAD")  # its numbers come from the same code
    module.write_text("3")
    assert provenance()["commit"] == git("rev-parse", "HEAD") + "-dirty"
