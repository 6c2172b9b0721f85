"""``nearfar demo``: from a file of pairs to a trained encoder that is tested and in use, offline.

It writes generated paraphrase pairs, trains on them with rows held out, compares the held-out search before and after,
shows hits of five queries, writes a page to explore the texts, and opens the model in sentence-transformers. Each step
is a command that works the same way on other rows; the demo prints it and runs its function.
"""

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from nearfar.commands.demo.queries import PERCENTS, choose_queries, describe_changes, describe_query
from nearfar.commands.demo.report import Report, command_line
from nearfar.config import DemoConfig
from nearfar.config.calls import accepts_settings
from nearfar.data.catalog import find
from nearfar.data.hold_out import TEST
from nearfar.disk import path_errors, write_text
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.data.retrieval import RetrievalTask

PAIRS = 3000
HOLD_OUT = 800
"""Number of pairs that are held out: half choose the best step, half test the result."""
RUN = "trained"
"""Name of the run folder."""
SETTINGS_FILE = "demo.json"
"""The first file of the folder; without it, the folder is not replaced."""


@accepts_settings(DemoConfig)
@path_errors()
def demo(config: DemoConfig, *, console: "Console | None" = None) -> Path:
    """Run the demo and write ``report.md``, the rows, the model, the hits and the explorer page to ``config.output``.

    Settings can be given by name: ``demo(output="demo")``; see :class:`nearfar.DemoConfig`.

    Returns:
        The report.

    Raises:
        NearfarError: the folder exists and is not a demo's, a file cannot be written, or the model is not found.
        nearfar.training.trainer.Interrupted: Ctrl-C during training.
    """
    from nearfar.encoder.encoder import Encoder

    started, worked = time.perf_counter(), time.process_time()
    folder = Path(config.output)
    _check_folder(folder)
    Encoder.from_pretrained(config.model)  # a missing model is reported before anything is generated
    _clear(folder)
    write_text(folder / SETTINGS_FILE, json.dumps(asdict(config), indent=1) + "\n")
    report = Report(console or Console(quiet=True))

    pairs = _pairs()
    _show_pairs(pairs, folder, report)
    trained = _train(config, folder, report)
    task = _write_test_rows(trained, pairs, folder)
    _search(config, task, trained, folder, report)
    _explore(config, trained, folder, report)
    _open_elsewhere(task.queries, trained / "model", report)

    minutes, processor_minutes = (time.perf_counter() - started) / 60, (time.process_time() - worked) / 60
    report.finish(folder / "report.md", minutes=minutes, processor_minutes=processor_minutes)
    return folder / "report.md"


class ParaphrasePair(NamedTuple):
    """Two sentences with the same meaning."""

    anchor: str
    positive: str
    topic: str
    """The kind of activity."""


def _pairs() -> list[ParaphrasePair]:
    """The pairs of ``microworld-paraphrases``."""
    rows = find("microworld-paraphrases")[0].table.rows(ParaphrasePair._fields)
    return [ParaphrasePair(*map(str, values)) for _, values in islice(rows, PAIRS)]


def _check_folder(folder: Path) -> None:
    """Refuse a folder that is not an earlier demo's."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / SETTINGS_FILE).is_file()):
        raise NearfarError(f"{folder}: exists and is not the folder of a demo; choose another --output.")


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _show_pairs(pairs: Sequence[ParaphrasePair], folder: Path, report: Report) -> None:
    file = folder / "pairs.tsv"
    _write_table(file, ("anchor", "positive"), [pair[:2] for pair in pairs])
    report.step("Pairs")
    report.text(
        f"`{file}` has {len(pairs):,} pairs of generated sentences with the same meaning, and no scores or labels. "
        "Sentences with similar words mean different things: who does what to whom, negation, numbers. The first pairs:"
    )
    report.code([f"{pair.anchor}  |  {pair.positive}" for pair in pairs[:6]])


def _train(config: DemoConfig, folder: Path, report: Report) -> Path:
    """Train, show the table on the held-out test rows, and return the run folder."""
    from nearfar.commands.train.after import before_after
    from nearfar.commands.train.command import train

    run = folder / RUN
    settings: dict[str, Any] = {
        "data": folder / "pairs.tsv",
        "output": run,
        "hold_out": HOLD_OUT,
        "precision": config.precision,
        "seed": config.seed,
    }
    if config.model != DemoConfig.model:
        settings["model"] = config.model
    if config.max_steps is not None:
        settings["max_steps"] = config.max_steps
    report.step("Train, and test on held-out rows", command_line("train", **settings))
    trained = train(**settings, console=report.console)
    assert trained.comparison is not None
    assert trained.metric is not None
    report.text(
        f"The columns choose the method, info-nce. {HOLD_OUT} pairs are held out: half of them choose the best step, "
        f"half test the result. Each test query is searched for among all {PAIRS:,} second sentences of the pairs. "
        "MRR@10 is the mean of 1 / rank of the right one, 0 if it is not among the first 10."
    )
    report.table(before_after(trained.comparison, trained.metric))
    return run


def _write_test_rows(run: Path, pairs: Sequence[ParaphrasePair], folder: Path) -> "RetrievalTask":
    """Write the held-out test queries, the documents, and the texts of the explorer page; return queries and documents.

    The documents are the second sentences of all pairs.
    """
    from nearfar.runs.held_out import load_held_out

    task = load_held_out(run).retrieval(TEST)
    _write_table(folder / "queries.tsv", ("query",), [(text,) for text in task.queries])
    _write_table(folder / "documents.tsv", ("text",), [(text,) for text in task.documents])
    tested = set(task.queries)
    texts = [
        (text, other, pair.topic) for pair in pairs if pair.anchor in tested for text, other in (pair[:2], pair[1::-1])
    ]
    _write_table(folder / "texts.tsv", ("text", "paraphrase", "topic"), texts)
    return task


def _search(config: DemoConfig, task: "RetrievalTask", run: Path, folder: Path, report: Report) -> None:
    """Search for all test queries before and after training, and show five of them."""
    from nearfar.commands.search.command import search

    sides: dict[str, dict[str, Any]] = {
        name: {
            "model": model,
            "input": folder / "documents.tsv",
            "queries": folder / "queries.tsv",
            "index": folder / "index" / name,
            "precision": "fp32",  # as in the table
            "output": folder / f"hits-{name}.tsv",
        }
        for name, model in (("before", config.model), ("after", run))
    }
    (folder / "index").mkdir()
    report.step("Search before and after", *(command_line("search", **settings) for settings in sides.values()))
    before, after = (search(**settings, progress=report.console.is_terminal) for settings in sides.values())
    positives = [task.documents[next(iter(relevant))] for relevant in task.relevant]
    chosen = choose_queries(task.queries, positives, before, after)
    report.text(
        f"{describe_changes(positives, before, after)} The queries below are chosen by rule: all test queries are "
        f"sorted by the change of their reciprocal rank, equal ones in the order of `queries.tsv`, and those at "
        f"{', '.join(map(str, PERCENTS[:-1]))} and {PERCENTS[-1]} percent are shown, from the largest loss to the "
        "largest gain. `*` marks the right hit."
    )
    report.code([line for query in chosen for line in describe_query(query)])


def _explore(config: DemoConfig, run: Path, folder: Path, report: Report) -> None:
    from nearfar.commands.geometry.command import geometry
    from nearfar.evaluation.results import ExplorerPage
    from nearfar.evaluation.tables.pages import explorer_notes

    models = [config.model, str(run)]
    file = folder / "explorer.html"
    settings: dict[str, Any] = {"texts": folder / "texts.tsv", "color_by": "topic", "page": file}
    report.step("Explore", command_line("geometry", *models, **settings))
    page = geometry(models, **settings, progress=report.console.is_terminal)
    assert isinstance(page, ExplorerPage)
    report.text(
        "The page shows the texts of the held-out test pairs before and after training, with the nearest and farthest "
        "texts of each one, and lists the texts that moved most. Training used no topics."
    )
    report.text(" ".join(explorer_notes(page)))
    report.link(file.name)


def _open_elsewhere(texts: Sequence[str], model: Path, report: Report) -> None:
    """Open the model in sentence-transformers, and compare the embeddings of ``texts``."""
    import numpy as np

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.pretrained import encode_with_sentence_transformers

    report.step("Use it in sentence-transformers")
    report.code(
        [
            "from sentence_transformers import SentenceTransformer",
            f'model = SentenceTransformer("{model.as_posix()}")',
            'vectors = model.encode(["A man is reading.", "Nobody is reading."])',
        ],
        language="python",
    )
    encoder = Encoder.from_pretrained(model)
    own = encoder.encode(texts, precision="fp32")
    theirs = encode_with_sentence_transformers(model, texts, device=str(encoder.device))
    largest = float(np.abs(own - theirs).max())
    report.text(
        f"The embeddings of the {len(texts):,} test queries are those of nearfar: the largest difference of any number "
        f"is {largest:.1e}."
    )


def _write_table(file: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    write_text(file, "".join("\t".join(row) + "\n" for row in (header, *rows)))
