"""``nearfar demo``: the whole workflow on generated data, offline.

It generates NLI rows and scored pairs, evaluates an encoder, trains it with the methods sbert and scl, and evaluates
again on pairs with words, and mostly sentence patterns, that do not occur in training. Then it compares the models,
plots their embeddings, and searches with the trained encoder.
"""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from nearfar.commands.compare import compare
from nearfar.commands.evaluate.command import evaluate
from nearfar.commands.train.command import train
from nearfar.config import DemoConfig, SbertConfig, SclConfig, TrainConfig
from nearfar.config.calls import accepts_settings
from nearfar.data.microworld import generate
from nearfar.disk import write_text
from nearfar.evaluation.plots import training_curves, tsne
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

TASK = "microworld"
LIBRARY = (
    "A lawyer is chasing a burglar.",
    "A burglar is chasing a lawyer.",
    "The burglar is being chased by the lawyer.",
    "Nobody is chasing the burglar.",
    "A doctor is asleep.",
    "Three doctors are asleep.",
    "A musician plays a tune at the harbor.",
    "Someone opens a gate.",
)
QUERIES = ("An attorney chases a thief.", "A physician is not awake.", "The gate is being opened.")


@accepts_settings(DemoConfig)
def demo(config: DemoConfig, *, console: "Console | None" = None) -> Path:
    """Run the demo and write ``report.md``, the plots, the models and the result files to ``config.output``.

    Settings can be given by name: ``demo(output="demo")``; see :class:`nearfar.DemoConfig`.

    Returns:
        The report.

    Raises:
        NearfarError: the folder exists and is not a demo's, a file cannot be written, or the model is not found.
    """
    from nearfar.encoder.encoder import Encoder

    started = time.perf_counter()
    folder = Path(config.output)
    console = console or Console(quiet=True)
    _clear(folder)
    console.rule("1. generate data")
    world = generate()
    world.write(folder / "data")
    console.print(
        f"{len(world.nli):,} NLI rows for training; {len(world.sts_test):,} scored test pairs, which share no content "
        f"word with them. For example:\n  {world.nli[0].premise} / {world.nli[0].hypothesis}\n"
        f"  {world.sts_test[0].first} / {world.sts_test[0].second}: {world.sts_test[0].score:g} of 5",
        highlight=False,
    )

    console.rule("2. train")
    runs = {run.output.rsplit("/", 1)[-1]: run for run in _configs(config)}
    for run in runs.values():
        console.print((run.__doc__ or "").strip(), highlight=False)
        train(run, console=console)

    console.rule("3. evaluate and compare")
    models: dict[str, Any] = {"before": config.model} | {name: run.output for name, run in runs.items()}
    results = {
        name: evaluate(model, tasks=(TASK,), name=name, output=folder / f"{name}.json", progress=console.is_terminal)
        for name, model in models.items()
    }
    comparisons = [
        compare(results[first], results[second], output=folder / f"{first}-{second}.json", progress=False)
        for first, second in (("sbert", "before"), ("scl", "before"), ("scl", "sbert"))
    ]
    scores, differences = _tables(results, comparisons)
    console.print(_rich(scores), soft_wrap=False)
    console.print(_rich(differences), soft_wrap=False)

    console.rule("4. plot and search")
    encoders = {"before": Encoder.from_pretrained(config.model)}
    encoders |= {name: Encoder.from_pretrained(Path(run.output) / "model") for name, run in runs.items()}
    shown = world.labelled[:400]
    vectors = {
        name: encoder.encode([text for text, _ in shown], precision="fp32") for name, encoder in encoders.items()
    }
    tsne(vectors, [label for _, label in shown], folder / "tsne.png")
    training_curves({name: Path(run.output) / "metrics.jsonl" for name, run in runs.items()}, folder / "training.png")
    found = [line for query in QUERIES for line in _search(query, encoders)]
    console.print("\n".join(found), highlight=False)

    _write_report(folder, scores, differences, found, results["scl"].provenance.to_dict())
    minutes = (time.perf_counter() - started) / 60
    console.rule()
    console.print(
        f"Done in {minutes:.1f} minutes. Report: {folder / 'report.md'}. Trained encoder: {folder / 'scl/model'}",
        highlight=False,
    )
    return folder / "report.md"


def _configs(config: DemoConfig) -> tuple[TrainConfig, ...]:
    """Two runs with the same rows, batches and steps.

    The encoder is already trained, so scl uses the cosine instead of the dot product of Liao (2021).
    """
    shared: dict[str, Any] = {
        "model": config.model,
        "pooling": "own",
        "data": (TASK,),
        "evaluate_on": f"{TASK}:dev",
        "evaluate_every": 35,
        "checkpoint_every": 200,
        "learning_rate": 5e-5,
        "epochs": 2,
        "max_steps": config.max_steps,
        "precision": "fp32",  # on any processor, like the scores
    }
    return (
        SbertConfig(output=f"{config.output}/sbert", **shared),
        SclConfig(output=f"{config.output}/scl", similarity="cosine", temperature=0.05, **shared),
    )


def _clear(folder: Path) -> None:
    """Remove the folder of an earlier demo, but never another folder."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "data" / "sts" / TASK).is_dir():
            raise NearfarError(f"{folder}: exists and is not the folder of a demo; choose another --output.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


Grid = tuple[str, list[str], list[list[str]]]


def _tables(results: dict[str, Any], comparisons: list[Any]) -> tuple[Grid, Grid]:
    rows = []
    for name, result in results.items():
        spearman, pearson = (result.tasks[TASK].metric(metric).all for metric in ("spearman", "pearson"))
        rows.append([name, *(f"{e.score:.2f} [{e.low:.1f}, {e.high:.1f}]" for e in (spearman, pearson))])
    scores = ("Held-out pairs: correlation x 100 [95% interval]", ["encoder", "Spearman", "Pearson"], rows)
    rows = []
    for comparison in comparisons:
        row = comparison.tasks[TASK]
        interval = f"{row.difference:+.2f} [{row.low:+.1f}, {row.high:+.1f}]"
        rows.append([f"{comparison.first.name} - {comparison.second.name}", interval, f"{row.p:.4f}"])
    return scores, ("Differences in Spearman: paired bootstrap over pairs", ["pair", "difference", "p"], rows)


def _rich(grid: Grid) -> Table:
    title, header, rows = grid
    table = Table(title=title)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    return table


def _search(query: str, encoders: "dict[str, Encoder]") -> list[str]:
    """The three best matches in the library, before and after training."""
    lines = [f"query: {query}"]
    for name in ("before", "scl"):
        vectors = encoders[name].encode([query, *LIBRARY], normalize=True, precision="fp32")
        cosines = vectors[1:] @ vectors[0]
        lines += [f"  {name:<7}{cosines[place]:.2f}  {LIBRARY[place]}" for place in cosines.argsort()[::-1][:3]]
    return lines


def _write_report(folder: Path, scores: Grid, differences: Grid, found: list[str], provenance: dict[str, Any]) -> None:
    lines = ["# Before and after training", "", (__doc__ or "").split("\n\n")[1].replace("\n", " ").strip()]
    for title, header, rows in (scores, differences):
        lines += ["", f"## {title}", ""]
        lines += [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    lines += ["", "## Training", "", "![Loss and dev score by step](training.png)"]
    lines += ["", "## Embedding space before and after training", "", "![t-SNE of sentences by activity](tsne.png)"]
    lines += ["", "Sentences of the training vocabulary, coloured by activity. Training used no activity labels."]
    lines += ["", "## Search", "", "```", *found, "```", "", "## Provenance", ""]
    lines += [f"- {key}: {value}" for key, value in provenance.items()]
    write_text(folder / "report.md", "\n".join(lines) + "\n")
