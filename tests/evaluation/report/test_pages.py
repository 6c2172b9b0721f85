"""Pages: the HTML against a parser and against the Markdown, and protection against injected markup."""

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from markupsafe import escape

from nearfar.evaluation.render import Cell, Table
from nearfar.evaluation.report import compose, held_out_tests
from nearfar.evaluation.report.blocks import (
    Bars,
    Code,
    Figure,
    Page,
    Section,
    to_html,
    to_markdown,
)
from nearfar.evaluation.report.inputs import ReportInputs, TrainingRun
from nearfar.evaluation.results import ComparisonResult, GeometryResult, TrainingRecord, TrainingStep
from tests.evaluation.report.cases import (
    ParsedPage,
    comparison,
    evaluation,
    geometry,
    queries,
    row_of,
    side,
    training_run,
    transfer,
)
from tests.hostile_text import HOSTILE, active_parts

UNSAFE = '<script>alert("x")</script> & a|b *c* [d](javascript:e)'


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    """Inputs of every kind, with a name that contains markup and scripts."""
    unsafe = evaluation(UNSAFE, {"one": 70.0, "two": None}) | {"transfer": transfer({"mr": 80.0, "cr": 70.0})}
    unsafe |= {"unavailable": {"sts12": "no such <folder>."}}
    other = evaluation("other", {"one": 60.0, "two": 50.0}) | {"transfer": transfer({"mr": 90.0, "cr": None})}
    sides = [side(UNSAFE, unsafe), side("other", other)]
    row = row_of(70.0, 60.0, separable=True)
    tested = comparison(sides[0], sides[1], {"one": row}, overall={"tasks": ["one"]} | row)
    runs = [
        training_run(UNSAFE)._replace(files={"config.toml": f"method = {UNSAFE!r}\n"}),
        training_run("group/seed-1")._replace(group_name="group"),
        training_run("group/seed-2", seed=2)._replace(group_name="group"),
        training_run("going on", finished=False),
        training_run("bare", steps=[], evaluations=[])._replace(
            record=TrainingRecord.from_dict({"config": {}, "history": [[3, 0.5], [6, 0.4]]})
        ),
    ]
    return ReportInputs(
        sides=sides,
        comparisons=[("c.json", ComparisonResult.from_dict(tested))],
        geometries=[("g.json", GeometryResult.from_dict(geometry(UNSAFE, "other")))],
        runs=runs,
        missing=["x has no <y>."],
    )


@pytest.fixture(scope="module")
def html(inputs: ReportInputs) -> str:
    return to_html(compose(inputs, title=UNSAFE, computed=inputs.comparisons[0][1]))


@pytest.fixture(scope="module")
def markdown(inputs: ReportInputs) -> str:
    return to_markdown(compose(inputs, title=UNSAFE, computed=inputs.comparisons[0][1]))


def markdown_tables(text: str) -> list[list[list[str]]]:
    tables: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("| "):
            inside = inside and line.startswith("|")
            continue
        if not inside:
            tables.append([])
        inside = True
        parts = re.split(r"(?<!\\)\|", line)[1:-1]
        tables[-1].append([re.sub(r"\\(.)", r"\1", part.replace("**", "")) for part in parts])
    return tables


def strip_markup(cell: str) -> str:
    return re.sub(r"[\s*]", "", cell)  # * marks the best in HTML, where Markdown has it in bold


@pytest.mark.long
def test_a_page_loads_and_executes_nothing(html: str) -> None:
    page = ParsedPage(html)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form", "image", "svg"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("srcset", "data", "xlink:href", "action")
            assert name != "src" or str(value).startswith("data:image/svg+xml,")
            assert name != "href" or (tag == "a" and str(value).startswith("#"))
    assert "http://" not in html
    assert "https://" not in html
    assert "url(" not in html
    assert "@import" not in html
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")


def hostile_inputs() -> ReportInputs:
    """Inputs of every kind; each name, task, reason, setting and file is one of the hostile texts."""
    names = iter([*HOSTILE] * 3)
    tasks = dict.fromkeys(HOSTILE[:8], 70.0)
    first = evaluation(next(names), tasks) | {"transfer": transfer(dict.fromkeys(HOSTILE[8:14], 80.0))}
    first |= {"unavailable": {text: text for text in HOSTILE}}
    first["config"] |= {"pooling": next(names), next(names): next(names)}
    first["provenance"] = first["provenance"] | {"command": HOSTILE[1], "commit": HOSTILE[2], "date": HOSTILE[0]}
    second = evaluation(next(names), tasks) | {"transfer": transfer(dict.fromkeys(HOSTILE[8:14], 90.0))}
    sides = [side(HOSTILE[1], first), side(HOSTILE[2], second)]
    row = row_of(70.0, 60.0, separable=True)
    tested = comparison(sides[0], sides[1], {HOSTILE[0]: row}, overall={"tasks": [HOSTILE[0]]} | row)
    before_after = ComparisonResult.from_dict(tested | {"queries": queries(*HOSTILE)})
    runs = [
        training_run(text, tested=before_after)._replace(files={text: text, "config.toml": text}, group_name=text)
        for text in HOSTILE[:9]
    ]
    return ReportInputs(
        sides=sides,
        comparisons=[(text, ComparisonResult.from_dict(tested)) for text in HOSTILE[:2]],
        geometries=[(HOSTILE[1], GeometryResult.from_dict(geometry(HOSTILE[2], HOSTILE[3])))],
        runs=runs,
        missing=list(HOSTILE),
    )


@pytest.mark.long
def test_a_page_of_hostile_results_has_no_other_tags_and_attributes(html: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the texts of the results are: the page has the same kinds of elements, and shows the texts."""
    monkeypatch.setattr("nearfar.evaluation.report.blocks.svg", lambda chart: chart.title)  # has tests of its own
    page = compose(hostile_inputs(), title=HOSTILE[1])
    hostile = ParsedPage(to_html(page))
    usual = {(tag, name) for tag, found in ParsedPage(html).tags for name in found}
    assert {(tag, name) for tag, found in hostile.tags for name in found} <= usual
    paragraphs = {tag for tag, _ in hostile.tags} - {tag for tag, _ in ParsedPage(html).tags}
    assert paragraphs == {"p"}  # on queries, which the other page does not have
    assert (1, HOSTILE[1]) in hostile.headings
    assert active_parts(to_markdown(page)) == []
    injected = ParsedPage(to_html(page).replace("<main>", f"<main>{HOSTILE[0]}", 1))
    assert {tag for tag, _ in injected.tags} > {tag for tag, _ in hostile.tags}  # what is not escaped is found


def test_the_page_is_accessible(html: str) -> None:
    page = ParsedPage(html)
    assert ("html", {"lang": "en"}) in page.tags
    viewport = next(a["content"] for tag, a in page.tags if a.get("name") == "viewport")
    assert viewport == "width=device-width, initial-scale=1"
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(text.strip() for _, text in page.headings)
    scopes = [attributes.get("scope") for tag, attributes in page.tags if tag == "th"]
    assert set(scopes) == {"row", "col"}
    assert scopes.count("col") == sum(len(table[0]) for table in page.tables)
    assert scopes.count("row") == sum(len(table) - 1 for table in page.tables)
    names = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert len(names) == sum("id" in attributes for _, attributes in page.tags)
    for tag, attributes in page.tags:
        if tag in ("table", "div") and "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in names
        if tag == "a":
            assert str(attributes["href"])[1:] in names
        if tag == "img":
            assert str(attributes["alt"]).strip()
    figures = [tag for tag, _ in page.tags if tag in ("figure", "figcaption")]
    assert figures == ["figure", "figcaption"] * (len(figures) // 2)
    assert all("text" not in a.get("style", "") for _, a in page.tags if a.get("style"))


def test_html_and_markdown_have_the_same_tables(html: str, markdown: str) -> None:
    shown, written = ParsedPage(html).tables, markdown_tables(markdown)
    assert len(shown) >= 12
    assert len(shown) == len(written)
    for left, right in zip(shown, written, strict=True):
        assert [list(map(strip_markup, row)) for row in left] == [
            list(map(strip_markup, row)) for row in right[:1] + right[2:]
        ]


def test_sections_and_missing_parts(html: str) -> None:
    page = ParsedPage(html)
    titles = [text for level, text in page.headings if level == 2]
    scores = ["Similarity", "Comparisons", "Transfer tasks"]
    assert titles == ["Summary", *scores, "Training", "Geometry", "Settings and provenance"]
    assert "x has no <y>." in page.text
    assert f"{UNSAFE}: sts12 was not evaluated. no such <folder>." in page.text
    assert "nearfar evaluate m" in page.text
    assert "python 3.11" in page.text
    assert "nli: 10 rows" in page.text


@pytest.mark.long
def test_the_summary_text(inputs: ReportInputs, markdown: str) -> None:
    lines = ParsedPage(to_html(compose(inputs, title="t", computed=inputs.comparisons[0][1]))).text
    assert f"Similarity, task one (Spearman × 100, all): the best of 2 is {UNSAFE} with 70.00 [68.8, 72.0]." in lines
    assert "It is better than other (by 10.00 [9.00, 11.00])." in lines
    assert "Transfer, task mr (accuracy × 100, protocol senteval): the best of 2 is other with 90.00" in lines
    assert "Not tested against it:" in lines
    assert "5 training runs, 4 of them finished." in lines
    assert f"No test result: {UNSAFE}, group/seed-1" not in lines  # the first run is the side of that name
    assert "No test result: group/seed-1, group/seed-2, bare." in lines
    assert "Similarity, task" in lines.split("No test result")[1].split("5 training runs")[0]  # tests come first
    for score in ("70.00", "50.00"):
        assert f"{score} at step" not in lines  # no dev score outside of the table of runs
    equal = [side(name, evaluation(name, {"one": 1.0})) for name in "AB"]
    assert "A and B have the same highest score" in to_markdown(compose(ReportInputs(sides=equal), title="t"))
    alone = ReportInputs(sides=equal[:1])
    assert "Similarity, task one (Spearman × 100, all): A with 1.00" in to_markdown(compose(alone, title="t"))
    worse = training_run("w", record=TrainingRecord(config={}, start_score=0.5, best_score=0.5, best_step=5))
    assert "No step scored higher on the dev set than the untrained encoder: w." in to_markdown(
        compose(ReportInputs(runs=[worse]), title="t")
    )


def run_with_test(name: str, row: dict[str, Any], *, held_out: str = "rows") -> TrainingRun:
    """A run whose model was compared with its start; its dev score rose from 50 to 70."""
    first, second = side(name, evaluation(name, {})), side("start", evaluation("start", {}))
    entry = {"kind": "retrieval", "measure": "mrr@10", "pairs": 76, **row}
    result = comparison(first, second, {"held-out": entry})
    result["first"]["seen"] = {"held-out": {"pairs": 0.0, "texts": 0.0, "chosen_pairs": 0.0, "chosen_texts": 0.0}}
    result["second"]["seen"] = {"held-out": {"pairs": 0.24, "texts": 0.3, "chosen_pairs": 0.0, "chosen_texts": 0.0}}
    return training_run(name, tested=ComparisonResult.from_dict(result), held_out=held_out)


def test_runs_lead_with_the_test_and_are_not_ranked() -> None:
    good = run_with_test("good", row_of(81.5, 79.0, separable=True))
    other = run_with_test("other", row_of(90.0, 91.0, separable=False), held_out="other rows")
    page = to_markdown(compose(ReportInputs(runs=[good, other]), title="t"))
    first = page.index("good, MRR@10 × 100 on 76 held-out test rows: 79.00 before training, 81.50 after, +2.50")
    assert first < page.index("70.00")
    assert "[+1.50, +3.50]: better." in page
    assert (
        "91.00 before training, 90.00 after, -1.00 [-2.00, +0.00]: cannot tell: about 1,500 more queries would." in page
    )
    assert page.index("## Test on held-out rows") < page.index("## Training")
    assert "| good | MRR@10 | 76 | 79.00 | 81.50 | +2.50 [+1.50, +3.50] | better |" in page
    assert "The runs hold out different rows, so the scores of different runs cannot be compared." in page
    assert "good: Rows that this run neither trained on nor used to choose the step, but earlier training did." in page
    assert "that was seen: before 24% (30%), after 0% (0%)" in page
    assert "other: --hold-out NUMBER holds out more rows to test on." in page
    assert "highest score" not in page
    assert "No test result" not in page
    same = to_markdown(compose(ReportInputs(runs=[good, good._replace(name="again")]), title="t"))
    assert "The runs hold out the same rows" in same
    missing = row_of(1.0, 1.0, separable=False) | dict.fromkeys(("difference", "first", "verdict", "p"))
    undefined = run_with_test("broken", missing | {"reason": "why"})
    page = to_markdown(compose(ReportInputs(runs=[undefined]), title="t"))
    assert "broken, MRR@10 × 100 on 76 held-out test rows: undefined, why." in page
    assert "broken: why." in page


def test_the_queries_of_a_run() -> None:
    run = run_with_test("good", row_of(81.5, 79.0, separable=True))
    assert run.tested is not None
    shown = ComparisonResult.from_dict(run.tested.to_dict() | {"queries": queries(UNSAFE, "<b>wrong</b>")})
    page = compose(ReportInputs(runs=[run._replace(tested=shown)]), title="t")
    lines = [
        "+1.000  query 1.0",
        "  before: not among the first 10",
        "      0.500  <b>wrong</b>",
        "  after: rank 1",
        f"    * 0.500  {UNSAFE}",
        "      0.500  <b>wrong</b>",
        f"  right: {UNSAFE}",
        "",
    ]
    code = "\n".join(
        line.replace("+1.000  query 1.0", f"{change:+.3f}  query {change}")
        for change in (1.0, 0.5, -0.5)
        for line in lines
    )
    summary = "After training, the right hit ranks higher for 3 of 4 test queries, lower for 1, and the same for 0."
    html = to_html(page)
    assert f'<pre tabindex="0"><code>{escape(code)}</code></pre>' in html
    assert f"<p>{summary} Shown by rule: the 2 that gain and the 1 that lose most" in html
    assert f"\n```\n{code.rstrip()}\n" in to_markdown(page)
    assert (3, "Queries before and after the training of good") in ParsedPage(html).headings


def test_the_table_of_runs(html: str) -> None:
    table = next(table for table in ParsedPage(html).tables if table[0][0] == "run" and "state" in table[0])
    rows = {row[0]: row[1:] for row in table[1:]}
    assert rows["group/seed-1"] == ["scl", "m", "1", "10", "50.00", "70.00", "5", "1.5", "finished"]
    assert list(map(strip_markup, rows["group, all 2"])) == ["", "", "", "", "50.00±0.00", "70.00±0.00", "", "", ""]
    assert rows["going on"][3:] == ["10", "50.00", "70.00", "5", "–", "not finished"]
    assert rows["bare"][3:] == ["–", "–", "50.00", "3", "–", "finished"]


@pytest.mark.long
def test_differences_between_runs() -> None:
    first, second = training_run("a"), training_run("b", seed=2)
    second = second._replace(settings={**second.settings, "temperature": 0.1, "lora_rank": 0, "output": "x"})
    html = to_html(compose(ReportInputs(runs=[first, second]), title="t"))
    table = next(table for table in ParsedPage(html).tables if "temperature" in table[0])
    assert table == [["run", "seed", "temperature"], ["a", "1", "0.05"], ["b", "2", "0.1"]]


def test_layers_are_a_coloured_table(html: str) -> None:
    page = ParsedPage(html)
    table = next(table for table in page.tables if table[0][0] == "layer")
    assert table[0] == ["layer", "cls", "mean"]
    assert table[-1] == ["0 (embeddings)", "undefined", "40.0"]
    shades = [a["style"] for tag, a in page.tags if tag == "td" and "style" in a]
    assert shades[:5] == ["--shade:0.25", "--shade:1.00", "--shade:0.00", "--shade:0.75", "--shade:0.50"]


def test_bars_before_and_after_training() -> None:
    """The line on the second bar is the interval of the difference, from the first."""
    tests = {"a": row_of(81.5, 79.0, separable=True), "b": row_of(90.0, 91.0, separable=True)}
    blocks = held_out_tests([run_with_test(name, row) for name, row in tests.items()])
    (figure,) = [block for block in blocks if isinstance(block, Figure)]
    (chart,) = figure.charts
    assert isinstance(chart, Bars)
    assert chart.labels == ["a, MRR@10", "b, MRR@10"]
    before, after = chart.bars
    assert (before.values, before.spans) == ([79.0, 91.0], [None, None])
    assert (after.values, after.spans) == ([81.5, 90.0], [(80.5, 82.5), (89.0, 91.0)])


@pytest.mark.long
def test_the_size_of_a_page_is_bounded() -> None:
    """Ten thousand steps of each of ten runs take as many points as fit on a screen."""
    steps = [TrainingStep(step=step, loss=2 / step + 0.1 * math.sin(step)) for step in range(1, 10_001)]
    runs = [training_run(f"run {n}", steps=steps) for n in range(10)]
    size = len(to_html(compose(ReportInputs(runs=runs), title="t")).encode())
    assert size < 150_000


def test_every_block_in_markdown() -> None:
    cells = ["x\ny", Cell("1", "[0, 2]", "best")]
    table = Table(title="t", columns=["a", "b"], rows=[cells], notes=["n|m"])
    blocks = [
        "1. no list, # no heading, `no code`",
        ["# one", "- two"],
        Code("a ``` b\n<x>"),
        Section("more", [table], folded=True),
    ]
    text = to_markdown(Page("T", [Section("S", [*blocks, Section("deeper", [])])]))
    assert "\n1\\. no list, # no heading, \\`no code\\`\n" in text
    assert "\n- \\# one\n- \\- two\n" in text
    assert "\n````\na ``` b\n<x>\n````\n" in text
    assert "\n**more**\n\nt\n\n| a | b |\n| --- | ---: |\n| x y | **1** [0, 2] |\n\nn\\|m\n" in text
    assert text.startswith("# T\n\n## S\n")
    assert "\n### deeper\n" in text


def test_control_characters_and_very_deep_sections() -> None:
    page = Page("a\x00b", [Section("1", [Section("2", [Section("3", [Section("4", [Section("5", [])])])])])])
    html = to_html(page)
    assert "\x00" not in html
    assert "<h6>5</h6>" in html
