"""The pages and tables that are generated are those of the committed results, and every table is on one of them."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from nearfar.studies.papers import table_names
from tests.docs.pages import ROOT, docs_script, study_script, text_of

TRAIN = "docs/guides/train.md"
FILLED = {"readme": "README.md", "recommended": TRAIN, "own_data": TRAIN, "thresholds": "docs/guides/use.md"}
"""Script that fills tables -> the page."""
LEFT_OUT = ("stsb-regression",)
"""Studies without a result."""
SPEED = {
    "training": "training-speed", "recipe": "training-speed", "encoding": "encoding-speed", "export": "encoding-speed",
    "encode_file": "encoding-speed", "gpu": "gpu-speed", "shards": "costs",
    **dict.fromkeys(
        ("evaluation", "mining", "search", "losses", "finetune", "scaling", "side_by_side", "compiled_kernels", "help"),
        "costs",
    ),
}  # fmt: skip
"""Benchmark -> the page that has its tables."""


@contextmanager
def filling(script: str) -> Iterator[Callable[[str], str]]:
    if script in ("own_data", "thresholds"):
        with study_script(script) as study:
            yield study.fill
    else:
        yield docs_script(script).fill


@pytest.mark.long
@pytest.mark.parametrize("script", FILLED)
def test_its_tables_are_up_to_date(script: str) -> None:
    text = text_of(ROOT / FILLED[script])
    with filling(script) as fill:
        assert fill(text) == text, f"run {script}.py"
        with pytest.raises((ValueError, SystemExit), match="block"):
            fill("# Title\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "cell"), [("readme", r"(\+)8(\.41)"), ("own_data", r"(\| TREC.*?\| \d+\.\d+ \| )\d()")]
)
def test_a_changed_figure_is_noticed(script: str, cell: str) -> None:
    text = text_of(ROOT / FILLED[script])
    changed, count = re.subn(cell, r"\g<1>0\g<2>", text)
    assert count >= 1
    assert changed != text
    with filling(script) as fill:
        assert fill(changed) == text


def test_a_claim_is_a_row_with_its_interval_and_verdict() -> None:
    """Over the peer, or where the peer had fewer settings, so that its difference has no verdict, over no training."""
    readme, page = docs_script("readme"), "docs/measured/pairs.md"
    gain = {"difference": 1.75, "low": 1.0, "high": 2.5, "verdict": "better"}
    claim = {"rows": "pairs", "metric": "MRR@10", "start": 60.0, "peer": 61.5, "ours": 61.75, "difference": 0.25}
    claim |= {"low": -0.125, "high": 0.4, "settings_ours": 12, "looks": 3, "versus_start": gain, "page": page}
    for settings, verdict, lead in (
        (14, "level", "+0.25 [−0.12, +0.40] level"),
        (11, None, "over no training +1.75 [+1.00, +2.50] better"),
    ):
        *_, line = readme.claims([claim | {"settings_peer": settings, "verdict": verdict}])
        assert line == f"| [pairs]({page}) | MRR@10 | 60.00 | 61.50 | 61.75 | {lead} | {settings}, 12 | 3 |"


def test_the_commands_on_own_data_were_measured() -> None:
    with study_script("own_data") as study:
        commands = [one["command"] for one in study.load(study.file_of("captions"))["commands"]]
    assert len(commands) == 4
    for command in commands:
        assert command.replace(" --texts-limit 1000", "").replace("'", '"') in text_of(ROOT / TRAIN)


def test_the_page_of_intervals_is_up_to_date() -> None:
    with study_script("coverage") as study:
        assert study.page() == text_of(ROOT / "docs/coverage.md"), "run: python studies/coverage.py report"


@pytest.mark.long
def test_the_tables_of_results_are_up_to_date() -> None:
    """And each study and each table of a paper is named by a page."""
    results, places = docs_script("results"), ""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = text_of(page)
        places += "\n".join(found[0].partition("\n")[0] for found in results.PLACE.finditer(text)) + text
        assert results.fill(text) == text, f"{page}: run docs/results.py"
    names = {file.parent.name for file in (ROOT / "studies/results").glob("*/*/study.json")}
    names |= {*table_names(), *pd.read_csv(results.CHOICES).study}
    assert [name for name in sorted(names) if name not in places and name not in LEFT_OUT] == []


@pytest.mark.long
def test_what_is_seen_of_a_paper_follows_from_its_tests() -> None:
    results = docs_script("results")
    shown = results.paper("kim-figure-4")
    for told in (
        "**Seen**: Flow, STS-B above Flow, NLI; SG-OPT, NLI above Flow, NLI; SG-OPT, STS-B above Flow, STS-B.",
        "**Same direction, which chance could give too**: SG-OPT, STS-B above SG-OPT, NLI.",
        "Pairs of lines in the paper's order, tested or not: Avg. 6 of 6.",
        "Made 2026-11-23 at `658afa3f` on AMD EPYC (avx2 avx512f avx512_vnni avx512_bf16); trained in bf16.",
    ):
        assert told in shown
    assert results.paper("liao-table-1").startswith("Not run yet: `nearfar reproduce liao-table-1 ")


@pytest.mark.long
@pytest.mark.parametrize("name", SPEED)
def test_the_tables_of_benchmarks_are_up_to_date(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.delitem(sys.modules, "common", raising=False)
    common = importlib.import_module("common")
    module = importlib.import_module("gpu_page" if name == "gpu" else name)
    page = common.Page(name, "") if name in ("search", "shards") else module.PAGE
    content = common.load(page.files()[0])
    text = text_of(ROOT / "docs" / f"{SPEED[name]}.md")
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    common.fill_page(tmp_path / "page.md", page, content, module.body(content))
    assert text_of(tmp_path / "page.md") == text, f"run benchmarks/{name}.py report"
    with pytest.raises(SystemExit, match="no place"):
        common.fill_page(ROOT / "README.md", page, content, [])
    for script in (*SPEED, "common", "gpu_page"):
        sys.modules.pop(script, None)
