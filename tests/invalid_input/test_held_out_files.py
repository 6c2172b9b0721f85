"""Held-out rows of a run, damaged or missing: the file is named, and what is whole stays."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invalid_input.cli_runner import assert_refused, copy_workspace, run_cli

TRAIN = "train --data rows.tsv --model tiny --output held --max-steps 1 --batch-size 10 --hold-out 20"
EVALUATE = "evaluate held --held-out --resamples 0"
COMPARE = "compare held tiny --held-out --resamples 10"


@pytest.fixture(scope="module")
def valid_run(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace with ``held``, a run that holds out rows of triplets."""
    folder = copy_workspace(valid_workspace, tmp_path_factory.mktemp("held"))
    words = "dog cat bird man woman child ball apple house river".split()
    rows = [(f"{one} sees {two}", f"the {one} sees", f"the {two} sees") for one in words for two in words if one < two]
    lines = ["anchor\tpositive\tnegative", *("\t".join(f"{text} {n}" for text in row) for n, row in enumerate(rows))]
    (folder / "rows.tsv").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = run_cli(TRAIN.split())
    assert result.status == 0, result.err
    return folder


@pytest.fixture
def held_out(valid_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder ``held/held_out`` of a copy of the run."""
    copy_workspace(valid_run, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "held" / "held_out"


def edited(**changes: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps({**json.loads(content), **changes}).encode()


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes] | None, str]] = {
    # id: file, what happens to it (None: it is removed), message
    "no summary": ("held_out.json", None, "is not a run that holds out rows"),
    "half a summary": ("held_out.json", lambda old: old[: len(old) // 2], "is not a complete JSON file"),
    "summary of bytes": ("held_out.json", lambda _: b"\xff\xfe", "is not UTF-8 text. Restore the folder"),
    "summary of a list": ("held_out.json", lambda _: b"[]", "is damaged"),
    "another object": ("held_out.json", lambda _: b"{}", "held_out.json: is damaged ('kind' is missing or unknown)"),
    "unknown kind": ("held_out.json", edited(kind="x"), "held_out.json: is damaged ('x' is missing or unknown)"),
    "other columns": ("held_out.json", edited(columns=["a"]), "is damaged (the columns a)"),
    "fewer candidates": ("held_out.json", edited(candidates=3), "training.tsv does not have 3 rows"),
    "no seed": ("held_out.json", edited(seed=None), "is damaged"),
    "no rows": ("rows.tsv", None, "rows.tsv: no such file. Restore the folder"),
    "empty rows": ("rows.tsv", lambda _: b"", "rows.tsv is empty"),
    "one row less": ("rows.tsv", lambda old: b"".join(old.splitlines(True)[:-1]), "does not have the digest"),
    "another negative": ("rows.tsv", lambda old: old[:-2] + b"x\n", "rows.tsv is not what was written"),
    "a row of an unknown part": (
        "rows.tsv",
        lambda old: old.replace(b"dev\t", b"val\t", 1),
        "'val' is missing or unknown",
    ),
    "no training rows": ("training.tsv", None, "training.tsv: no such file. Restore the folder"),
    "another training row": ("training.tsv", lambda old: old[:-2] + b"x\n", "training.tsv is not what was written"),
    "one training row less": ("training.tsv", lambda old: b"".join(old.splitlines(True)[:-1]), "does not have"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_held_out_rows(case: str, held_out: Path) -> None:
    name, change, message = DAMAGES[case]
    content = (held_out / name).read_bytes()
    (held_out / name).unlink()
    if change is not None:
        (held_out / name).write_bytes(change(content))
    assert_refused(EVALUATE.split(), message)
    assert_refused(COMPARE.split(), message if name != "held_out.json" or change else "none of the sides is a run")
    (held_out / name).write_bytes(content)
    assert run_cli(EVALUATE.split()).status == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"kind": "evaluation"}', b"\xff"], ids=["empty", "list", "other", "bytes"]
)
def test_a_damaged_table_after_training_is_made_again_once_it_is_removed(content: bytes, held_out: Path) -> None:
    file = held_out / "before-after.json"
    file.write_bytes(content)
    resume = [*TRAIN.split(), "--resume"]
    assert_refused(resume, "Remove held/held_out/before-after.json; then --resume makes it again")
    assert file.read_bytes() == content
    os.unlink(file)
    assert run_cli(resume).status == 0
    assert json.loads(file.read_text())["kind"] == "comparison"
