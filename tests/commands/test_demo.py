"""``nearfar demo`` from start to end, on fewer pairs and with two steps: its files, and that its commands work."""

import json
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pytest

from nearfar.cli import main
from nearfar.commands import demo as command
from nearfar.data.triplets import load_tuples
from nearfar.encoder import tokens
from nearfar.evaluation.results import ComparisonResult
from nearfar.training import Interrupted
from nearfar.types import NearfarError
from tests.tiny import save_tiny

PAIRS, HELD_OUT = 120, 40
ARGUMENTS = ["demo", "--output", "demo", "--model", "tiny", "--max-steps", "2", "--seed", "3"]


class Finished(NamedTuple):
    """A finished demo: the folder in which it ran, and its report."""

    place: Path
    report: str


@pytest.fixture(scope="module")
def small() -> Iterator[pytest.MonkeyPatch]:
    """Fewer pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "PAIRS", PAIRS)
        patch.setattr(command, "HOLD_OUT", HELD_OUT)
        patch.setattr(tokens, "TEXTS", 300)
        yield patch


@pytest.fixture(scope="module")
def finished(small: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    place = tmp_path_factory.mktemp("demo")
    save_tiny(place / "tiny")
    with chdir(place):
        assert main(ARGUMENTS) == 0
    return Finished(place, (place / "demo" / "report.md").read_text(encoding="utf-8"))


def lines_of(file: Path) -> list[list[str]]:
    """The rows of a table, without its header."""
    return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]


def commands_of(report: str) -> list[list[str]]:
    """The command lines of a report, without ``nearfar``."""
    return [shlex.split(line)[1:] for line in report.splitlines() if line.startswith("nearfar ")]


@pytest.mark.long
def test_it_leaves_rows_model_hits_and_page(finished: Finished) -> None:
    folder = finished.place / "demo"
    pairs = [list(pair) for pair in load_tuples("microworld-paraphrases").rows[:PAIRS]]
    assert lines_of(folder / "pairs.tsv") == pairs
    queries = [query for (query,) in lines_of(folder / "queries.tsv")]
    assert len(queries) == HELD_OUT // 2
    assert {text for (text,) in lines_of(folder / "documents.tsv")} == {positive for _, positive in pairs}
    tested = [pair for pair in pairs if pair[0] in queries]
    assert [row[:2] for row in lines_of(folder / "texts.tsv")] == [
        side for first, second in tested for side in ([first, second], [second, first])
    ]
    assert (folder / "trained" / "model" / "modules.json").exists()
    assert json.dumps(tested[0][0])[1:-1] in (folder / "explorer.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_report_shows_the_result_of_training(finished: Finished) -> None:
    comparison = ComparisonResult.load(finished.place / "demo" / "trained" / "held_out" / "before-after.json")
    row = comparison.tasks["held-out"]
    assert row.pairs == HELD_OUT // 2
    assert f"| {row.second:.2f} | {row.first:.2f} | {row.difference:+.2f} [" in finished.report
    assert "[explorer.html](explorer.html)" in finished.report
    assert "commit" in finished.report
    assert comparison.queries is not None
    for example in comparison.queries.examples:
        assert f"\n{example.change:+.3f}  {example.query}\n" in finished.report


@pytest.fixture(scope="module")
def real(small: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A demo with the default model, which knows the words, so that no two documents are equal to it."""
    place = tmp_path_factory.mktemp("real")
    with chdir(place):
        assert main([word for word in ARGUMENTS if word not in ("--model", "tiny")]) == 0
    return Finished(place, (place / "demo" / "report.md").read_text(encoding="utf-8"))


@pytest.mark.nightly
def test_the_hits_have_the_score_of_the_table(real: Finished) -> None:
    folder = real.place / "demo"
    row = ComparisonResult.load(folder / "trained" / "held_out" / "before-after.json").tasks["held-out"]
    positive = dict(lines_of(folder / "pairs.tsv"))
    for name, expected in (("before", row.second), ("after", row.first)):
        ranks = {query: 0.0 for (query,) in lines_of(folder / "queries.tsv")}
        for query, rank, _, _, text, *_ in lines_of(folder / f"hits-{name}.tsv"):
            if text == positive[query]:
                ranks[query] = 1 / int(rank)
        assert 100 * sum(ranks.values()) / len(ranks) == pytest.approx(expected, abs=1e-3)


@pytest.mark.long
def test_sentence_transformers_gives_the_same_vectors(finished: Finished) -> None:
    (line,) = [line for line in finished.report.splitlines() if "largest difference" in line]
    assert float(line.rpartition(" ")[2].rstrip(".")) < 1e-6


@pytest.mark.nightly
def test_its_commands_give_what_the_demo_has(real: Finished) -> None:
    """The commands of the report, with another output, write the same weights, hits and page."""
    commands = commands_of(real.report)
    assert [words[0] for words in commands] == ["train", "search", "search", "geometry"]
    with chdir(real.place):
        for words in commands:
            place = words.index("--page" if words[0] == "geometry" else "--output") + 1
            before, again = Path(words[place]), Path(f"again-{Path(words[place]).name}")
            words[place] = str(again)
            assert main(words) == 0
            weights = "model/model.safetensors" if words[0] == "train" else ""
            assert (again / weights).read_bytes() == (before / weights).read_bytes(), words


def test_what_is_not_the_folder_of_a_demo_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    for output in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(NearfarError, match="is not the folder of a demo; choose another --output"):
            command.demo(output=str(output))
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


@pytest.mark.long
def test_ctrl_c_during_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted

    monkeypatch.setattr("nearfar.commands.train.train", interrupted)
    model = save_tiny(tmp_path / "tiny")
    folder = tmp_path / "demo"
    for _ in range(2):  # what is left is the folder of a demo, which the next one replaces
        assert main(["demo", "--output", str(folder), "--model", str(model)]) == 130
        assert "nearfar: stopped." in capsys.readouterr().err
        assert (folder / "pairs.tsv").exists()
        assert not (folder / "left.txt").exists()
        (folder / "left.txt").touch()
