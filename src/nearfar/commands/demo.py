"""``nearfar demo``: from a file of pairs to a trained encoder that is tested and in use, offline.

It writes generated paraphrase pairs, trains on them with rows held out, compares the held-out search before and after,
shows hits of five queries, writes a page to explore the texts, and opens the model in sentence-transformers. Each step
is a command that works the same way on other rows; the demo prints it and runs its function. The report's template is
``demo.md``.
"""

import json
import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from nearfar.config.calls import accepts_settings
from nearfar.config.values import flag
from nearfar.config.verbs import DemoConfig
from nearfar.data.catalog import find
from nearfar.data.hold_out import TEST
from nearfar.disk import write_table, write_text
from nearfar.disk.checks import path_errors
from nearfar.evaluation.render import fill_template, to_markdown
from nearfar.evaluation.results import provenance
from nearfar.evaluation.tables.comparison import queries_in_words
from nearfar.types import NearfarError

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
        nearfar.training.Interrupted: Ctrl-C during training.
    """
    from nearfar.encoder.encoder import Encoder
    from nearfar.runs.held_out import load_held_out

    started, worked = time.perf_counter(), time.process_time()
    folder, console = Path(config.output), console or Console(quiet=True)
    others = not folder.is_dir() or (any(folder.iterdir()) and not (folder / SETTINGS_FILE).is_file())
    if folder.exists() and others:
        raise NearfarError(f"{folder}: exists and is not the folder of a demo; choose another --output.")
    Encoder.from_pretrained(config.model)  # a missing model is reported before anything is generated
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_text(folder / SETTINGS_FILE, json.dumps(asdict(config), indent=1) + "\n")

    table = find("microworld-paraphrases")[0]
    rows: list[Any] = [values for _, values in islice(table.rows(("anchor", "positive", "topic")), PAIRS)]
    write_table(folder / "pairs.tsv", ("anchor", "positive"), [row[:2] for row in rows])
    shown: dict[str, Any] = {"file": folder / "pairs.tsv", "count": len(rows), "held_out": HOLD_OUT}
    shown["pairs"] = [f"{anchor}  |  {positive}" for anchor, positive, _ in rows[:6]]
    shown |= _train(config, folder, console)
    task = load_held_out(folder / RUN).retrieval(TEST)
    write_table(folder / "queries.tsv", ("query",), [(text,) for text in task.queries])
    write_table(folder / "documents.tsv", ("text",), [(text,) for text in task.documents])
    shown |= _search(config, folder, console)
    tested = [row for row in rows if row[0] in set(task.queries)]
    texts = [(*pair, topic) for anchor, positive, topic in tested for pair in ((anchor, positive), (positive, anchor))]
    write_table(folder / "texts.tsv", ("text", "paraphrase", "topic"), texts)
    shown |= _explore(config, folder, console)
    shown |= _open_elsewhere(task.queries, folder / RUN / "model")

    minutes, processor_minutes = (time.perf_counter() - started) / 60, (time.process_time() - worked) / 60
    took = f"{minutes:.1f} minutes ({processor_minutes:.1f} minutes of processor time)"
    shown["provenance"] = {"time": took, **provenance().to_dict()}
    text = fill_template(Path(__file__).with_suffix(".md"), **shown)
    write_text(folder / "report.md", text)
    console.print(Markdown(text))
    console.print(f"Done in {took}. Report: {folder / 'report.md'}", markup=False, highlight=False)
    return folder / "report.md"


def _train(config: DemoConfig, folder: Path, console: Console) -> dict[str, Any]:
    """Train; the command, the table on the held-out test rows, and which queries changed."""
    from nearfar.commands.train import train
    from nearfar.runs.held_out import before_after

    settings: dict[str, Any] = {"data": folder / "pairs.tsv", "output": folder / RUN, "hold_out": HOLD_OUT}
    settings |= {"precision": config.precision, "seed": config.seed}
    settings |= {"model": config.model} if config.model != DemoConfig.model else {}
    settings |= {"max_steps": config.max_steps} if config.max_steps is not None else {}
    command = _announce(console, "train", **settings)
    comparison = train(**settings, console=console).comparison
    assert comparison is not None
    queries = queries_in_words(comparison, trained=True)
    return {"train": [command], "scores": to_markdown(before_after(comparison)), "queries": queries}


def _search(config: DemoConfig, folder: Path, console: Console) -> dict[str, Any]:
    """Search for all test queries before and after training; the commands."""
    from nearfar.commands.search import search

    (folder / "index").mkdir()
    both: dict[str, Any] = {"input": folder / "documents.tsv", "queries": folder / "queries.tsv"}
    lines = []
    for name, model in (("before", config.model), ("after", folder / RUN)):
        settings = {"model": model, **both, "index": folder / "index" / name, "precision": "fp32"}  # as in the table
        settings["output"] = folder / f"hits-{name}.tsv"
        lines.append(_announce(console, "search", **settings))
        search(**settings, progress=console.is_terminal)
    return {"search": lines}


def _explore(config: DemoConfig, folder: Path, console: Console) -> dict[str, Any]:
    """Write the page of the texts before and after training; the command, and what it says of the page."""
    from nearfar.commands.geometry import geometry
    from nearfar.evaluation.render import notes
    from nearfar.evaluation.results import ExplorerPage

    models = [config.model, str(folder / RUN)]
    settings: dict[str, Any] = {"texts": folder / "texts.tsv", "color_by": "topic", "page": folder / "explorer.html"}
    command = _announce(console, "geometry", *models, **settings)
    page = geometry(models, **settings, progress=console.is_terminal)
    assert isinstance(page, ExplorerPage)
    return {"explore": [command], "notes": " ".join(notes("explorer", page))}


def _open_elsewhere(texts: Sequence[str], model: Path) -> dict[str, Any]:
    """Open the model in sentence-transformers, and compare the embeddings of ``texts``."""
    import numpy as np

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.pretrained import encode_with_sentence_transformers

    encoder = Encoder.from_pretrained(model)
    own = encoder.encode(texts, precision="fp32")
    theirs = encode_with_sentence_transformers(model, texts, device=str(encoder.device))
    return {"model": model.as_posix(), "difference": f"{float(np.abs(own - theirs).max()):.1e}"}


def _announce(console: Console, verb: str, *arguments: str, **settings: str | PathLike[str] | float) -> str:
    """Print the command line of a verb with these settings, and return it."""
    flags = [word for name, value in settings.items() for word in (flag(name), str(value))]
    line = shlex.join(["nearfar", verb, *arguments, *flags])
    console.print(f"$ {line}", markup=False, highlight=False)
    return line
