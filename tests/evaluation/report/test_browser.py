"""Reports with hostile names in Chromium: nothing runs, nothing is requested, no dialog opens."""

from pathlib import Path
from typing import Any

import pytest

from nearfar.evaluation.report import ReportInputs, compose, to_html, to_markdown
from nearfar.evaluation.results import ComparisonResult, GeometryResult
from tests.evaluation.report.cases import (
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


def opened(browser: Any, html: str, file: Path) -> tuple[list[str], str]:
    """What a page writes to the console, asks in dialogs and requests when it is loaded and clicked, and its title."""
    file.write_text(html, encoding="utf-8")
    context = browser.new_context()
    tab = context.new_page()
    seen: list[str] = []
    tab.on("console", lambda message: seen.append(message.text))
    tab.on("pageerror", lambda error: seen.append(str(error)))
    tab.on("dialog", lambda dialog: (seen.append(f"dialog {dialog.message}"), dialog.dismiss()))
    tab.on("request", lambda request: seen.append(request.url) if request.url != file.as_uri() else None)
    tab.goto(file.as_uri())
    for part in tab.locator("summary, td, th, h1, code").all()[:60]:
        part.hover(timeout=500, force=True, no_wait_after=True) if part.is_visible() else None
    for link in tab.locator("a").all():
        assert str(link.get_attribute("href")).startswith("#part-")
        link.click()
    title = tab.title()
    context.close()
    return seen, title


@pytest.mark.nightly
def test_a_report_of_hostile_results_runs_nothing(browser: Any, tmp_path: Path) -> None:
    page = compose(hostile_inputs(), title=HOSTILE[1])
    seen, title = opened(browser, to_html(page), tmp_path / "report.html")
    assert seen == []
    assert title == HOSTILE[1]
    assert active_parts(to_markdown(page)) == []


@pytest.mark.nightly
def test_the_same_texts_without_escaping_would_run(browser: Any, tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing; and the policy of the page blocks even that."""
    html = to_html(compose(hostile_inputs(), title="report"))
    injected = html.replace("<main>", f"<main>{HOSTILE[0]}")
    seen, title = opened(browser, injected, tmp_path / "injected.html")
    assert title == "report"
    assert any("Content Security Policy" in message for message in seen)
    unprotected = injected.replace('http-equiv="Content-Security-Policy"', "")
    seen, title = opened(browser, unprotected, tmp_path / "unprotected.html")
    assert title == "ran"
    assert "dialog 1" in seen
