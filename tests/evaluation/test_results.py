"""Result files: written atomically, read back equal, and refused by name if damaged."""

import json
import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from nearfar.evaluation.results import (
    Estimate,
    EvaluationResult,
    Provenance,
    check_output,
    digest,
    environment,
    load_result,
    provenance,
)
from nearfar.evaluation.sts import evaluate_sts
from nearfar.evaluation.tables.pages import save_with_tables
from nearfar.types import NearfarError, ScoredPair

PAIRS = [ScoredPair("ein Hund", "a dog", 4.5), ScoredPair("a cat", "two", 1), ScoredPair("no", "a dog", 0.25)]


@pytest.fixture
def result():
    scored = evaluate_sts(lambda texts: np.array([[len(t), 3.0] for t in texts]), {"mine": {"a": PAIRS}}, resamples=9)
    return EvaluationResult(
        kind="evaluation",
        model="länge",
        config={"seed": 0},
        provenance=provenance(),
        tasks=scored.tasks,
        texts=scored.texts,
        dim=scored.dim,
    )


def test_a_written_result_is_read_back(result, tmp_path):
    file = tmp_path / "r.json"
    save_with_tables(result, file)
    assert EvaluationResult.load(file) == load_result(file) == result
    assert json.loads(file.read_text(encoding="utf-8")) == result.to_dict()
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("# Evaluation of länge\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.md"]


def test_arrays_and_estimates_are_on_one_line_each(result, tmp_path):
    result.save(tmp_path / "r.json")
    lines = [line.strip() for line in (tmp_path / "r.json").read_text(encoding="utf-8").splitlines()]
    assert '"gold": [4.5,1,0.25],' in lines
    assert sum(line.startswith('"cosines_e6": [') and line.endswith("]") for line in lines) == 1
    assert sum(line.startswith('"wmean": {"score":') for line in lines) == 2


def test_a_failed_write_keeps_the_old_file(result, tmp_path, monkeypatch):
    file = tmp_path / "r.json"
    save_with_tables(result, file)
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NearfarError, match=r"r\.json: cannot be written \(No space left on device\)"):
        replace(result, model="another").save(file)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.md"]


def test_a_result_that_is_not_finite_is_never_written(result, tmp_path):
    task = result.tasks["mine"]
    bad = replace(task.spearman, all=Estimate(float("nan"), None, None))
    with pytest.raises(ValueError, match="JSON compliant"):
        replace(result, tasks={"mine": replace(task, spearman=bad)}).save(tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "not a complete JSON file"),
        ('{"schema": 1, "kind": "evaluation", "tas', "not a complete JSON file"),
        ("[1, 2]", "is not a JSON object"),
        ('{"a": 1}', "has no 'schema'"),
        ('{"schema": 2}', r"newer version of nearfar \(schema 2; this version reads up to 1\)\. Update nearfar"),
        ('{"schema": 1, "kind": "comparison"}', "kind is 'comparison'"),
        ('{"schema": 1, "kind": "evaluation", "model": "m", "config": {}}', "it lacks 'tasks'"),
    ],
)
def test_a_file_that_is_not_a_result_is_named(text, message, tmp_path):
    file = tmp_path / "broken.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(NearfarError, match=message) as caught:
        EvaluationResult.load(file)
    assert str(caught.value).startswith(str(file))


def test_a_binary_file_is_not_a_result(tmp_path):
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NearfarError, match=r"b\.json: is damaged: byte 0 is not UTF-8"):
        EvaluationResult.load(tmp_path / "b.json")


def subset_of(content):
    return content["tasks"]["mine"]["subsets"]["a"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: r["tasks"]["mine"].pop("subsets"), "tasks.mine lacks 'subsets'"),
        (lambda r: r["tasks"].update(mine=3), "tasks.mine = 3: must be an object"),
        (lambda r: r["tasks"]["mine"]["spearman"].pop("wmean"), "tasks.mine.spearman lacks 'wmean'"),
        (lambda r: subset_of(r).pop("digest"), "tasks.mine.subsets.a lacks 'digest'"),
        (lambda r: subset_of(r).pop("gold"), "tasks.mine.subsets.a lacks 'gold'"),
        (
            lambda r: r["tasks"]["mine"]["subsets"]["a"]["gold"].pop(),
            "tasks.mine.subsets.a.gold has 2 numbers, and 'pairs' is 3",
        ),
        (
            lambda r: r["tasks"]["mine"]["subsets"]["a"].update(cosines_e6=["1", 2, 3]),
            r"cosines_e6\[0\] = '1': must be a number",
        ),
        (
            lambda r: r["tasks"]["mine"]["subsets"]["a"].update(gold=[1, float("nan"), 3]),
            r"gold\[1\] = nan: must be a finite number",
        ),
    ],
)
def test_the_error_of_a_damaged_result_names_the_location(damage, message, result):
    content = result.to_dict()
    assert EvaluationResult.from_dict(content) == result
    damage(content)
    with pytest.raises(NearfarError, match=f"damaged.json.*{message}"):
        EvaluationResult.from_dict(content, source="damaged.json")


def test_unwritable_outputs_are_refused_before_any_work(tmp_path):
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


def test_a_read_only_folder_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda folder, mode: False)  # root may write anywhere, so the check is mocked
    with pytest.raises(NearfarError, match="is not writable"):
        check_output(tmp_path / "r.json")


def test_the_digest_depends_on_texts_scores_and_order():
    assert digest(PAIRS) == digest([ScoredPair(first, second, float(score)) for first, second, score in PAIRS])
    others = [
        PAIRS[::-1],
        PAIRS[:2],
        [PAIRS[0]._replace(score=4.0), *PAIRS[1:]],
        [PAIRS[0]._replace(second="a dog."), *PAIRS[1:]],
        [ScoredPair(PAIRS[0].second, PAIRS[0].first, PAIRS[0].score), *PAIRS[1:]],
    ]
    assert len({digest(pairs) for pairs in (PAIRS, *others)}) == 6


def test_provenance_has_date_command_versions_and_hardware():
    found = provenance()
    assert found.versions["numpy"] == np.__version__
    assert found.hardware["cores"] == os.cpu_count()
    assert found.date.endswith("+00:00")
    assert Provenance.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


def test_the_commit_is_of_the_checkout_that_tracks_the_package(tmp_path, monkeypatch):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    module = tmp_path / "results.py"
    module.write_text("1")
    monkeypatch.setattr(environment, "__file__", str(module))
    assert provenance().commit is None  # no checkout
    git("init")
    (tmp_path / "other").write_text("2")
    git("add", "other")
    git("commit", "-m", "one")
    assert provenance().commit is None  # installed inside the checkout of another project
    git("add", "results.py")
    git("commit", "-m", "two")
    assert provenance().commit == git("rev-parse", "HEAD")
    for created in ("docs/page.md", "studies/results/fast/scl.json"):
        (tmp_path / created).parent.mkdir(parents=True)
        (tmp_path / created).write_text("before")
    git("add", ".")
    git("commit", "-m", "three")
    for created in ("docs/page.md", "studies/results/fast/scl.json"):
        (tmp_path / created).write_text("made again")
    assert provenance().commit == git("rev-parse", "HEAD")  # results are from the same code
    module.write_text("3")
    assert provenance().commit == git("rev-parse", "HEAD") + "-dirty"
