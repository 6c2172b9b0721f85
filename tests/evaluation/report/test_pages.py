"""Pages: the HTML against a parser and against the Markdown, and protection against injected markup."""

import math
from itertools import pairwise

import pytest
from markupsafe import escape

from nearfar.evaluation.report import compose, held_out_tests
from nearfar.evaluation.report.blocks import Figure, to_html, to_markdown
from nearfar.evaluation.report.inputs import ReportInputs
from nearfar.evaluation.results import ComparisonResult, GeometryResult, TrainingStep
from tests.evaluation.pages import UNSAFE, report_inputs, run_with_test, runs_with_tests
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


@pytest.fixture(scope="module")
def html() -> str:
    inputs = report_inputs()
    return to_html(compose(inputs, title=UNSAFE, computed=inputs.comparisons[0][1]))


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


def test_sentences_of_the_summary() -> None:
    """Those that the committed pages do not have."""
    equal = [side(name, evaluation(name, {"one": 1.0})) for name in "AB"]
    good = run_with_test("good", row_of(81.5, 79.0, separable=True))
    for inputs, sentence in (
        (ReportInputs(sides=equal), "A and B have the same highest score"),
        (ReportInputs(sides=equal[:1]), "Similarity, task one (Spearman × 100, all): A with 1.00"),
        (ReportInputs(runs=[good, good._replace(name="again")]), "The runs hold out the same rows"),
    ):
        assert sentence in to_markdown(compose(inputs, title="t"))


def test_the_queries_of_a_run_in_html() -> None:
    html = to_html(compose(runs_with_tests(), title="t"))
    assert f"  right: {escape(UNSAFE)}\n\n+0.500  query 0.5" in html
    assert '<pre tabindex="0"><code>+1.000  query 1.0' in html
    assert (3, "Queries before and after the training of good") in ParsedPage(html).headings


def test_layers_are_a_coloured_table(html: str) -> None:
    shades = [a["style"] for tag, a in ParsedPage(html).tags if tag == "td" and "style" in a]
    assert shades[:5] == ["--shade:0.25", "--shade:1.00", "--shade:0.00", "--shade:0.75", "--shade:0.50"]


def test_dots_before_and_after_training() -> None:
    """The line through the second dot is the interval of the difference, from the first."""
    tests = {"a": row_of(81.5, 79.0, separable=True), "b": row_of(90.0, 91.0, separable=True)}
    figure = held_out_tests([run_with_test(name, row) for name, row in tests.items()])[1]
    assert isinstance(figure, Figure)
    (chart,) = figure.charts
    assert chart.labels == ["a, MRR@10", "b, MRR@10"]
    before, after = chart.lines
    assert before.x == [79.0, 91.0]
    assert (after.x, after.spans) == ([81.5, 90.0], [(80.5, 82.5), (89.0, 91.0)])


@pytest.mark.long
def test_the_size_of_a_page_is_bounded() -> None:
    """Ten thousand steps of each of ten runs take as many points as fit on a screen."""
    steps = [TrainingStep(step=step, loss=2 / step + 0.1 * math.sin(step)) for step in range(1, 10_001)]
    runs = [training_run(f"run {n}", steps=steps) for n in range(10)]
    size = len(to_html(compose(ReportInputs(runs=runs), title="t")).encode())
    assert size < 150_000
