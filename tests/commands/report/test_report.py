"""The report from folders to pages: accepted inputs, missing parts, and damaged files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nearfar import FinetuneConfig
from nearfar.cli import main
from nearfar.commands.finetune import finetune
from nearfar.commands.report import report
from nearfar.types import NearfarError
from tests.encoder.tiny_pairs import save_tiny_for_pairs
from tests.evaluation.report.cases import (
    ParsedPage,
    comparison,
    evaluation,
    geometry,
    metrics_lines,
    row_of,
    side,
    training_record,
    transfer,
)

TASKS = {"one": 70.0, "two": 60.0}


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing; charts have tests of their own."""
    monkeypatch.setattr("nearfar.evaluation.report.blocks.svg", lambda chart: "<svg/>")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with three runs, results of two settings and of a single model, and a geometry."""
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs/alone"), seed=5)
    for seed in (1, 2):
        write_run(Path(f"runs/mine-{seed}"), seed=seed)
        write_json(Path(f"results/scl-{seed}.json"), evaluation(f"scl-{seed}", TASKS, seed=seed))
        write_json(Path(f"ce/seed-{seed}.json"), evaluation("runs/ce", {"one": 50.0, "two": 49.0}, seed=seed))
    base = evaluation("base", {"one": 40.0, "two": 30.0}) | {"transfer": transfer({"mr": 80.0})}
    write_json(Path("base.json"), base)
    write_json(Path("geo/geometry.json"), geometry("a", "b"))
    return tmp_path


def write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), encoding="utf-8")


def write_run(folder: Path, *, seed: int, finished: bool = True) -> None:
    record = training_record(seed)
    folder.mkdir(parents=True)
    settings = {**record["config"], "output": str(folder)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (folder / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [json.dumps(line) + "\n" for line in metrics_lines(seed)]
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    if finished:
        write_json(folder / "run.json", record)


def load_page(*what: str, **settings: Any) -> ParsedPage:
    """Return the parsed page."""
    report(what, output="out.html", **{"resamples": 200, "progress": False} | settings)
    return ParsedPage(Path("out.html").read_text(encoding="utf-8"))


def table_of(page: ParsedPage, title: str) -> dict[str, list[str]]:
    table = next(table for table in page.tables if table[0][0] == title)
    return {row[0].strip(): row[1:] for row in table}


MINE = ("runs/mine-1", "runs/mine-2")
EVERYTHING = (
    "runs/alone",
    *MINE,
    "runs/mine-1/run.json",
    "runs/../runs/mine-2",
    "results/scl-1.json",
    "ce",
    "base.json",
    "geo",
)
EVERYTHING += ("results/scl-2.json",)


@pytest.mark.long
def test_from_flags_to_both_files(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--output", "new/page.html", "--resamples", "200", "--title", "All <of> it"]
    assert main(["report", *EVERYTHING, *flags]) == 0
    assert "Wrote the report to new/page.html and, as Markdown, to new/page.md" in capsys.readouterr().out
    assert {path.name for path in Path("new").iterdir()} == {"page.html", "page.md"}
    page = ParsedPage(Path("new/page.html").read_text(encoding="utf-8"))
    assert page.headings[0] == (1, "All <of> it")
    assert [row[0] for row in page.tables[0]] == ["model", "scl 2 seeds: 1, 2", "runs/ce 2 seeds: 1, 2", "base"]
    assert table_of(page, "model")["base"][0].startswith("40.00")
    runs = table_of(page, "run")
    assert list(runs) == ["run", "alone", "mine-1", "mine-2", "mine, all 2"]
    assert "Computed for this page: 200 resamples, seed 0" in page.text
    assert table_of(page, "measure")["alignment"] == ["0.200", "0.200"]
    assert "What is missing" not in page.text
    assert Path("new/page.md").read_text(encoding="utf-8").startswith("# All \\<of\\> it\n")
    before = [path.read_bytes() for path in sorted(Path("new").iterdir())]
    assert main(["report", *EVERYTHING, *flags]) == 0  # the same page, byte for byte
    assert [path.read_bytes() for path in sorted(Path("new").iterdir())] == before


@pytest.mark.long
def test_when_a_comparison_is_computed(workspace: Path, no_charts: None) -> None:
    assert "Computed for this page" in load_page("base.json", "ce").text
    row = row_of(70.0, 70.0, separable=False)
    write_json(Path("c.json"), comparison(*(side(name, evaluation(name, TASKS)) for name in "AB"), {"one": row}))
    page = load_page("base.json", "ce", "c.json")
    assert "Computed for this page" in page.text
    assert "From c.json" in page.text
    for number in range(6):
        write_json(Path(f"many/{number}.json"), evaluation(f"m{number}", TASKS))
    assert "Computed for this page" not in load_page("many", "base.json").text


def test_sides_that_cannot_be_compared_are_still_shown(workspace: Path) -> None:
    other = evaluation("other", {"one": 99.0})
    other["tasks"]["one"]["subsets"]["only"]["digest"] = "e"
    write_json(Path("other.json"), other)
    page = load_page("base.json", "other.json")
    assert "No comparison was computed: base.json and other.json were scored on different data" in page.text


@pytest.mark.long
def test_missing_parts_are_noted(workspace: Path, no_charts: None) -> None:
    write_run(Path("r/going"), seed=1, finished=False)
    with Path("r/going/metrics.jsonl").open("a") as stream:
        stream.write('{"step": 11, "lo')
    write_run(Path("r/bare"), seed=2)
    for name in ("metrics.jsonl", "config.toml"):
        Path("r/bare", name).unlink()
    page = load_page("r/going", "r/bare", *MINE)
    for sentence in (
        "r/going: has no run.json, so it is not finished: it was stopped or is still running.",
        "r/going/metrics.jsonl: its last line is incomplete and was skipped.",
    ):
        assert sentence in page.text
    rows = table_of(page, "run")
    assert list(rows)[1:] == ["going", "bare", "mine-1", "mine-2", "mine, all 2"]
    assert rows["going"][-1] == "not finished"


@pytest.mark.long
def test_a_model_has_one_name(workspace: Path, no_charts: None) -> None:
    """Run and evaluations are shown under the name of the run; the title has it once."""
    for folder in ("results", "again"):
        write_json(Path(f"{folder}/alone.json"), evaluation("runs/alone", TASKS, seed=5))
    write_json(Path("results/mine.json"), evaluation("./runs/mine-1/model", TASKS, seed=1))
    page = load_page("runs/alone", "results/alone.json", "results/mine.json", *MINE, "base.json")
    assert page.headings[0] == (1, "Report: alone, mine-1, base, mine")
    assert list(table_of(page, "model"))[1:] == ["alone", "mine-1", "base"]
    assert "runs/alone:" not in page.text
    page = load_page("results/alone.json", "again/alone.json", "runs/alone")
    assert page.headings[0] == (1, "Report: alone")
    assert list(table_of(page, "model"))[1:] == ["alone (results/alone.json)", "alone (again/alone.json)"]


@pytest.mark.long
def test_fine_tuned_models_are_shown(workspace: Path, no_charts: None) -> None:
    rows = [f"{('red', 'blue')[n % 2]} dog {'a ' * (n % 7)}\t{('warm', 'cold')[n % 2]}" for n in range(60)]
    Path("mine.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    shared = {"model": str(save_tiny_for_pairs(Path("tiny"))), "task": "mine.tsv", "validation_rows": 10}
    for name, weight in (("both", 0.9), ("ce", 0.0)):
        settings = {"scl_weight": weight, "learning_rate": 1e-3, "evaluate_every": 2, **shared}
        finished = finetune(FinetuneConfig(output=f"tuned/{name}", **settings))  # type: ignore[arg-type]
    page = load_page("tuned/both", "tuned/ce", "tuned/ce/result.json", "runs/alone")
    assert (2, "Fine-tuned classifiers") in page.headings
    assert "Accuracy × 100 of fine-tuned classifiers" in page.text
    assert "Fine-tuned, task mine.tsv (accuracy × 100): " in page.text
    scores = table_of(page, "model")
    assert list(scores) == ["model", "both", "ce"]  # named like their runs
    entry = finished.result.transfer.tasks["mine.tsv"]
    assert scores["ce"][0].startswith(f"{entry.accuracy.score:.2f} ")
    trained = table_of(page, "run")
    assert trained["ce"][0] == "scl-finetune"
    assert trained["ce"][4:6] == [f"{100 * finished.start_score:.2f}", f"{100 * finished.best_score:.2f}"]
    assert not [row for table in page.tables for row in table if "probes" in " ".join(row)]


@pytest.mark.long
def test_the_test_result_of_a_run_is_shown(workspace: Path, no_charts: None) -> None:
    sides = [side(name, evaluation(name, {})) for name in ("runs/alone", "start")]
    entry = row_of(81.59, 79.43, separable=False, p=0.06) | {"kind": "retrieval", "measure": "mrr@10", "pairs": 76}
    write_json(Path("runs/alone/held_out/before-after.json"), comparison(*sides, {"held-out": entry}))
    write_json(Path("runs/alone/held_out/held_out.json"), {"digest": "d"})
    page = load_page("runs/alone")
    assert (
        "79.43 before training, 81.59 after, +2.16 [+1.16, +3.16]: cannot tell: about 1,500 more queries would."
        in page.text
    )
    assert table_of(page, "run")["alone"][:2] == ["MRR@10", "76"]
    Path("runs/alone/held_out/before-after.json").write_text("{}")
    with pytest.raises(NearfarError, match=r"before-after\.json: is not a result file of nearfar"):
        load_page("runs/alone")


def test_a_folder_with_several_settings_gives_several_sides(workspace: Path) -> None:
    for seed in (1, 2):
        write_json(Path(f"results/sbert-{seed}.json"), evaluation(f"sbert-{seed}", TASKS, seed=seed))
    page = load_page("results")
    assert [row[0] for row in page.tables[0][1:]] == ["sbert 2 seeds: 1, 2", "scl 2 seeds: 1, 2"]
    write_json(Path("mixed/a.json"), evaluation("a", TASKS, seed=1))
    write_json(Path("mixed/b.json"), evaluation("b", TASKS, seed=2))
    assert [row[0] for row in load_page("mixed").tables[0][1:]] == ["mixed 2 seeds: 1, 2"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("f.json", "{", r"f\.json: is not a complete JSON file"),
        ("run/config.toml", "a = ", r"run/config\.toml: cannot be read as TOML"),
        ("run/metrics.jsonl", '{"step": 1\n{"step": 2, "loss": 1}\n', r"run/metrics\.jsonl, line 1: is not valid JSON"),
        ("run/metrics.jsonl", '{"step": 2}\n', r"run/metrics\.jsonl, line 1: is damaged, .*: it lacks 'loss'"),
        ("run/run.json", '{"config": {}, "metric": 1}', r"run/run\.json: is damaged, .*: metric = 1: must be text"),
        ("model/modules.json", "[]", r"model: holds no run and .* nearfar evaluate model --output RESULT\.json"),
    ],
)
def test_damaged_or_unknown_files_are_named(workspace: Path, name: str, text: str, message: str) -> None:
    file = Path(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NearfarError, match=message):
        load_page(file.parts[0])
    assert not Path("out.html").exists()


def test_unusable_settings(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, message in (
        ([], "nothing to report on"),
        (["base.json", "--output", "page.txt"], "--output page.txt: a report ends in .html"),
        (["base.json", "--output", "geo/geometry.json/x.html"], "cannot be made"),
    ):
        arguments = ["report", *flags, *([] if "--output" in flags else ["--output", "x.html"])]
        assert main(arguments) == 2
        assert message in re.sub(r"\s+", " ", capsys.readouterr().err)
    Path("folder.html").mkdir()
    with pytest.raises(NearfarError, match=r"folder\.html: is a folder"):
        report("base.json", output="folder.html")
