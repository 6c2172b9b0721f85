"""``nearfar compare`` of a table of scores or of run files: what it prints, writes and refuses."""

import json

import numpy as np
import pandas as pd
import pytest

from nearfar.cli import main
from nearfar.commands.compare import compare
from nearfar.evaluation.results import PairwiseResult
from nearfar.types import NearfarError


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Twelve systems on fifty units of two tasks."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["task\tsystem\tunit\tscore"]
    for task in "xy":
        base = rng.uniform(0.2, 0.6, 50)
        for system in range(12):
            scores = base + 0.02 * system + rng.uniform(-0.05, 0.05, 50)
            lines += [f"{task}\ts{system}\tu{unit}\t{score:.4f}" for unit, score in enumerate(scores)]
    (tmp_path / "board.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "board.tsv"


@pytest.mark.long
def test_a_table_is_ranked_on_the_screen_and_in_files(board, capsys):
    settings = "board.tsv --resamples 500 --output board.json"
    assert main(["compare", *settings.split()]) == 0
    shown = capsys.readouterr().out
    assert "score x 100: ranks of 12 systems" in shown
    assert "Pairs, mean over tasks" in shown
    assert "all 66 pairs" in shown
    content = json.loads(board.with_suffix(".json").read_text(encoding="utf-8"))
    assert content["kind"] == "comparisons"
    assert len(content["comparisons"]) == 66
    assert {*content["sides"][0]["ranks"]} == {"x", "y"}
    assert content["sides"][0]["overall_rank"]["best_rank"] == 1
    result = PairwiseResult.load(board.with_suffix(".json"))
    assert result.comparisons == compare(board, resamples=500, progress=False).comparisons
    page = board.with_suffix(".md").read_text(encoding="utf-8")
    assert page.startswith("# 12 systems compared\n")
    assert page.count("\n## Pairs, ") == 3
    pairs = page.partition("## Pairs, x")[2].partition("##")[0]
    assert sum(line.startswith("| s") for line in pairs.splitlines()) == 11  # neighbours
    assert main(["report", "board.json", "--output", "page.html"]) == 0
    assert "ranks of 12 systems" in board.with_name("page.html").read_text(encoding="utf-8")


def test_a_data_frame_and_chosen_tasks(board):
    frame = pd.read_csv(board, sep="\t")
    few = frame[frame.system.isin(["s0", "s5", "s6"])]
    result = compare(few, tasks=["y"], resamples=500, progress=False)
    assert [side.name for side in result.sides][2] == "s0"
    assert [list(tests.tasks) for tests in result.comparisons] == [["y"]] * 3
    assert result.comparisons[0].overall is None
    assert result.comparisons[1].tasks["y"].verdict == "better"


def test_run_files_with_judgements(board, capsys):
    for name, scores in {"one": (3, 2, 1), "two": (1, 2, 3)}.items():
        lines = [f"q{q} Q0 d{d} 0 {score} {name}" for q in range(9) for d, score in enumerate(scores)]
        board.with_name(f"{name}.run").write_text("\n".join(lines) + "\n", encoding="utf-8")
    judged = "".join(f"q{q} 0 d{q % 4 // 2} 1\n" for q in range(9))
    board.with_name("qrels.txt").write_text(judged, encoding="utf-8")
    assert main("compare one.run two.run --qrels qrels.txt --measure mrr@10 --resamples 500".split()) == 0
    shown = capsys.readouterr().out
    assert "mrr@10 x 100: ranks of 2 systems" in shown
    assert "one better" in shown


@pytest.mark.parametrize(
    ("sides", "settings", "message"),
    [
        (["board.xlsx"], {}, "two sides are needed"),
        (["board.tsv"], {"held_out": True}, "--held-out: is for models and result files, not"),
        ([{}, {}], {"qrels": "board.tsv"}, "--qrels: ranks the documents of run files"),
        (["nothing.tsv"], {}, "nothing.tsv: no such file"),
    ],
)
def test_calls_that_mean_nothing_are_refused(board, sides, settings, message):
    with pytest.raises(NearfarError, match=message):
        compare(*sides, **settings, progress=False)
    assert [file.name for file in board.parent.iterdir()] == ["board.tsv"]
