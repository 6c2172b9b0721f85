"""``nearfar demo``: from a file of pairs to a trained encoder that is tested and in use, offline.

It writes generated paraphrase pairs, trains on them with rows held out, compares the held-out search before and after,
shows hits of five queries, writes a page to explore the texts, and opens the model in sentence-transformers. Each step
is a command that works the same way on other rows; the demo prints it and runs its function.
"""

import json
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from nearfar.config.calls import accepts_settings
from nearfar.config.values import flag
from nearfar.config.verbs import DemoConfig
from nearfar.data.catalog import find
from nearfar.data.hold_out import TEST
from nearfar.disk import path_errors, write_table, write_text
from nearfar.evaluation.examples import describe_queries
from nearfar.evaluation.render import Table, to_markdown, to_rich
from nearfar.evaluation.results import QueryChanges, provenance
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
INTRODUCTION = (
    "Written by `nearfar demo`: a pretrained sentence encoder is trained on pairs of generated sentences and tested on "
    "held-out pairs. Each command works the same way on other rows."
)


@accepts_settings(DemoConfig)
@path_errors()
def demo(config: DemoConfig, *, console: "Console | None" = None) -> Path:
    """Run the demo and write ``report.md``, the rows, the model, the hits and the explorer page to ``config.output``.

    Settings can be given by name: ``demo(output="demo")``; see :class:`nearfar.DemoConfig`.

    Returns:
        The report.

    Raises:
        NearfarError: the folder exists and is not a demo's, a file cannot be written, or the model is not found.
        nearfar.training.Interrupted: Ctrl-C during training.
    """
    from nearfar.encoder.encoder import Encoder

    started, worked = time.perf_counter(), time.process_time()
    folder = Path(config.output)
    others = not folder.is_dir() or (any(folder.iterdir()) and not (folder / SETTINGS_FILE).is_file())
    if folder.exists() and others:
        raise NearfarError(f"{folder}: exists and is not the folder of a demo; choose another --output.")
    Encoder.from_pretrained(config.model)  # a missing model is reported before anything is generated
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_text(folder / SETTINGS_FILE, json.dumps(asdict(config), indent=1) + "\n")
    report = Report(console or Console(quiet=True))

    rows = islice(find("microworld-paraphrases")[0].rows(("anchor", "positive", "topic")), PAIRS)
    pairs = [ParaphrasePair(*map(str, values)) for _, values in rows]
    file, trained = folder / "pairs.tsv", folder / RUN
    write_table(file, ("anchor", "positive"), [pair[:2] for pair in pairs])
    report.step("Pairs")
    report.text(
        f"`{file}` has {len(pairs):,} pairs of generated sentences with the same meaning, and no scores or labels. "
        "Sentences with similar words mean different things: who does what to whom, negation, numbers. The first pairs:"
    )
    report.code([f"{pair.anchor}  |  {pair.positive}" for pair in pairs[:6]])
    queries = _train(config, trained, report)
    task = _write_test_rows(trained, pairs, folder)
    _search(config, queries, folder, report)
    _explore(config, trained, folder, report)
    _open_elsewhere(task.queries, trained / "model", report)

    minutes, processor_minutes = (time.perf_counter() - started) / 60, (time.process_time() - worked) / 60
    report.finish(folder / "report.md", f"{minutes:.1f} minutes ({processor_minutes:.1f} minutes of processor time)")
    return folder / "report.md"


class ParaphrasePair(NamedTuple):
    """Two sentences with the same meaning: a row of ``microworld-paraphrases``."""

    anchor: str
    positive: str
    topic: str
    """The kind of activity."""


def _train(config: DemoConfig, run: Path, report: "Report") -> QueryChanges:
    """Train, show the table on the held-out test rows, and return which queries changed."""
    from nearfar.commands.train import train
    from nearfar.runs.held_out import before_after

    settings: dict[str, Any] = {"data": run.parent / "pairs.tsv", "output": run, "hold_out": HOLD_OUT}
    settings |= {"precision": config.precision, "seed": config.seed}
    settings |= {"model": config.model} if config.model != DemoConfig.model else {}
    settings |= {"max_steps": config.max_steps} if config.max_steps is not None else {}
    report.step("Train, and test on held-out rows", command_line("train", **settings))
    trained = train(**settings, console=report.console)
    assert trained.comparison is not None
    assert trained.comparison.queries is not None
    report.text(
        f"The columns choose the method, info-nce. {HOLD_OUT} pairs are held out: half of them choose the best step, "
        f"half test the result. Each test query is searched for among all {PAIRS:,} second sentences of the pairs. "
        "MRR@10 is the mean of 1 / rank of the right one, 0 if it is not among the first 10."
    )
    report.table(before_after(trained.comparison))
    return trained.comparison.queries


def _write_test_rows(run: Path, pairs: Sequence[ParaphrasePair], folder: Path) -> "RetrievalTask":
    """Write the held-out test queries, the documents, and the texts of the explorer page; return queries and documents.

    The documents are the second sentences of all pairs.
    """
    from nearfar.runs.held_out import load_held_out

    task = load_held_out(run).retrieval(TEST)
    write_table(folder / "queries.tsv", ("query",), [(text,) for text in task.queries])
    write_table(folder / "documents.tsv", ("text",), [(text,) for text in task.documents])
    tested = set(task.queries)
    texts = [
        (text, other, pair.topic) for pair in pairs if pair.anchor in tested for text, other in (pair[:2], pair[1::-1])
    ]
    write_table(folder / "texts.tsv", ("text", "paraphrase", "topic"), texts)
    return task


def _search(config: DemoConfig, changes: QueryChanges, folder: Path, report: "Report") -> None:
    """Search for all test queries before and after training, and show five of them."""
    from nearfar.commands.search import search

    (folder / "index").mkdir()
    both: dict[str, Any] = {"input": folder / "documents.tsv", "queries": folder / "queries.tsv"}
    sides = [
        {"model": model, **both, "index": folder / "index" / name, "precision": "fp32"}  # as in the table
        | {"output": folder / f"hits-{name}.tsv"}
        for name, model in (("before", config.model), ("after", folder / RUN))
    ]
    report.step("Search before and after", *(command_line("search", **settings) for settings in sides))
    for settings in sides:
        search(**settings, progress=report.console.is_terminal)
    queries = describe_queries(changes, start="After training", first="after", second="before")
    report.text(queries.summary)
    report.code(queries.lines)


def _explore(config: DemoConfig, run: Path, folder: Path, report: "Report") -> None:
    from nearfar.commands.geometry import geometry
    from nearfar.evaluation.results import ExplorerPage
    from nearfar.evaluation.tables import explorer_notes

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


def _open_elsewhere(texts: Sequence[str], model: Path, report: "Report") -> None:
    """Open the model in sentence-transformers, and compare the embeddings of ``texts``."""
    import numpy as np

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.pretrained import encode_with_sentence_transformers

    report.step("Use it in sentence-transformers")
    program = [
        "from sentence_transformers import SentenceTransformer",
        f'model = SentenceTransformer("{model.as_posix()}")',
        'vectors = model.encode(["A man is reading.", "Nobody is reading."])',
    ]
    report.code(program, language="python")
    encoder = Encoder.from_pretrained(model)
    own = encoder.encode(texts, precision="fp32")
    theirs = encode_with_sentence_transformers(model, texts, device=str(encoder.device))
    report.text(
        f"The embeddings of the {len(texts):,} test queries are those of nearfar: the largest difference of any number "
        f"is {float(np.abs(own - theirs).max()):.1e}."
    )


def command_line(verb: str, *arguments: str, **settings: str | PathLike[str] | float) -> str:
    """The command line of a verb with these settings.

    >>> command_line("train", data="my pairs.tsv", hold_out=100)
    "nearfar train --data 'my pairs.tsv' --hold-out 100"
    """
    flags = [word for name, value in settings.items() for word in (flag(name), str(value))]
    return shlex.join(["nearfar", verb, *arguments, *flags])


class Report:
    """Steps with their commands and results, printed one by one, and written as Markdown at the end."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._steps = 0
        self._lines = ["# Before and after training", "", INTRODUCTION]

    def step(self, title: str, *commands: str) -> None:
        """Begin a step, with the command lines that a user would type."""
        self._steps += 1
        heading = f"{self._steps}. {title}"
        self.console.rule(heading)
        self._lines += ["", f"## {heading}"]
        if commands:
            self.code(commands, language="sh", prefix="$ ")

    def text(self, paragraph: str) -> None:
        """Add a paragraph; backquotes mark code and are not printed."""
        self._print(paragraph.replace("`", ""))
        self._lines += ["", paragraph]

    def code(self, lines: Sequence[str], *, language: str = "", prefix: str = "") -> None:
        """Add lines as they are; on the console, with a prefix."""
        self._print("\n".join(f"{prefix}{line}".rstrip() for line in lines))
        self._lines += ["", f"```{language}", *lines, "```"]

    def link(self, file: str) -> None:
        """Add a link to a file beside the report; it is not printed."""
        self._lines += ["", f"[{file}]({file})"]

    def table(self, table: Table) -> None:
        """Add a table."""
        self.console.print(to_rich(table), soft_wrap=False)
        self._lines += ["", to_markdown(replace(table, title=f"{table.title}:"))]

    def finish(self, file: Path, took: str) -> None:
        """Write the Markdown file, with the provenance, and print where it is."""
        self._lines += ["", "## Provenance", "", f"- time: {took}"]
        self._lines += [f"- {key}: {value}" for key, value in provenance().to_dict().items()]
        write_text(file, "\n".join(self._lines) + "\n")
        self.console.rule()
        self._print(f"Done in {took}. Report: {file}\nOn your own pairs: nearfar train --data FILE --output RUN")

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)
