"""Messages name the cause and a solution, and never suggest the name that was given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from nearfar.commands.train.dev import dev_evaluation, load_dev_pairs
from nearfar.types import NearfarError
from tests.invalid_input.cli_runner import assert_refused
from tests.tiny import write_pairs

TRAIN = "--output new --model tiny --evaluate-on pairs.tsv --batch-size 2 --max-steps 1".split()


@pytest.mark.parametrize(
    ("method", "name", "text"),
    [
        ("info-nce", "one.tsv", "anchor\tpositive\na dog\ta cat\n"),
        ("bt", "one.tsv", "sentence\ttranslation\na dog\ta cat\n"),
    ],
)
def test_the_error_names_a_single_row_as_the_cause(workspace: Path, method: str, name: str, text: str) -> None:
    (workspace / name).write_text(text)
    output = assert_refused(["train", method, "--data", name, *TRAIN], "there is 1 row in one.tsv")
    assert "from 2 to 1" not in output
    assert not (workspace / "new").exists()


def test_a_name_is_not_suggested_for_itself(workspace: Path) -> None:
    (workspace / "gone.tsv").symlink_to("nowhere")
    output = assert_refused(["train", "scl", "--data", "gone.tsv", *TRAIN], "gone.tsv")
    assert "Did you mean 'gone.tsv'" not in output
    (workspace / "twice.tsv").write_text("premise\tlabel\tlabel\thypothesis\na\t0\t0\tb\n")
    output = assert_refused(["train", "scl", "--data", "twice.tsv", *TRAIN], "2 columns named 'label'")
    assert "Did you mean 'label'" not in output


class Collapsing:
    """An encoder whose vectors are all equal after some calls."""

    def __init__(self, good_calls: int) -> None:
        self.good_calls, self.draws = good_calls, np.random.default_rng(0)

    def encode(self, texts: Sequence[str], **_: object) -> Any:
        self.good_calls -= 1
        shape = (len(texts), 8)
        return (self.draws.normal(size=shape) if self.good_calls >= 0 else np.ones(shape)).astype(np.float32)


def test_the_error_for_collapsed_weights_does_not_blame_the_dev_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs.tsv")

    def evaluation(good_calls: int) -> Any:
        return dev_evaluation(Collapsing(good_calls), load_dev_pairs("pairs.tsv"), "fp32", Console(quiet=True))  # type: ignore[arg-type]

    evaluate = evaluation(2)
    evaluate()
    evaluate()
    with pytest.raises(NearfarError, match=r"^training diverged or collapsed; choose a lower --learning-rate\. pairs"):
        evaluate()
    with pytest.raises(NearfarError, match=r"^pairs\.tsv: no correlation"):
        evaluation(0)()
