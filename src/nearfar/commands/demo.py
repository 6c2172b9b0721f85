"""The main job on a small generated world, offline: ``make demo``, or ``python -m nearfar.commands.demo``.

Generate NLI rows and scored pairs, score an encoder, train it by sbert and by scl, score again on pairs whose words,
and most of whose sentence patterns, were never trained on, compare, plot, and search with the new encoder.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from nearfar.config import SbertConfig, SclConfig, TrainConfig
from nearfar.runtime import threads
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nearfar.commands.demo", description=(__doc__ or "").strip().splitlines()[0]
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder to write (an old demo is replaced)")
    parser.add_argument("--model", default=MODEL, help="encoder to start from")
    parser.add_argument("--max-steps", type=int, default=None, help="stop each run early, for a quick look")
    options = parser.parse_args(arguments)
    threads.set_up()
    console = Console(soft_wrap=True)
    try:
        demo(options.output, options.model, options.max_steps, console)
    except NearfarError as error:
        Console(stderr=True, soft_wrap=True).print(f"nearfar: {error}", markup=False, highlight=False, style="red")
        return 2
    return 0


def demo(folder: Path, model: str, max_steps: int | None, console: Console) -> None:
    """Do all of it, and leave ``report.md``, the plots, the models and the result files in ``folder``."""
    from nearfar.commands.compare import compare
    from nearfar.commands.evaluate import evaluate
    from nearfar.commands.train.command import train
    from nearfar.data.microworld import generate
    from nearfar.encoder.encoder import Encoder
    from nearfar.evaluation.plots import training_curves, tsne

    started = time.perf_counter()
    _clear(folder)
    console.rule("1. a small world")
    world = generate()
    world.write(folder / "data")
    console.print(
        f"{len(world.nli):,} NLI rows to train on; {len(world.sts_test):,} scored pairs to test on, which share no "
        f"content word with them. For example:\n  {world.nli[0].premise} / {world.nli[0].hypothesis}\n"
        f"  {world.sts_test[0].first} / {world.sts_test[0].second}: {world.sts_test[0].score:g} of 5",
        highlight=False,
    )

    console.rule("2. train")
    configs = {config.output.rsplit("/", 1)[-1]: config for config in _configs(folder, model, max_steps)}
    for config in configs.values():
        console.print((config.__doc__ or "").strip(), highlight=False)
        train(config, console=console)

    console.rule("3. prove")
    places: dict[str, Any] = {"before": model} | {name: config.output for name, config in configs.items()}
    results = {
        name: evaluate(place, tasks=(TASK,), name=name, output=folder / f"{name}.json", progress=console.is_terminal)
        for name, place in places.items()
    }
    comparisons = [
        compare(results[first], results[second], output=folder / f"{first}-{second}.json", progress=False)
        for first, second in (("sbert", "before"), ("scl", "before"), ("scl", "sbert"))
    ]
    scores, differences = _tables(results, comparisons)
    console.print(_rich(scores), soft_wrap=False)
    console.print(_rich(differences), soft_wrap=False)

    console.rule("4. look and search")
    encoders = {"before": Encoder.from_pretrained(model)}
    encoders |= {name: Encoder.from_pretrained(Path(config.output) / "model") for name, config in configs.items()}
    shown = world.labelled[:400]
    vectors = {
        name: encoder.encode([text for text, _ in shown], precision="fp32") for name, encoder in encoders.items()
    }
    tsne(vectors, [label for _, label in shown], folder / "tsne.png")
    training_curves({name: Path(c.output) / "metrics.jsonl" for name, c in configs.items()}, folder / "training.png")
    found = [line for query in QUERIES for line in _search(query, encoders)]
    console.print("\n".join(found), highlight=False)

    _write_report(folder, scores, differences, found, results["scl"]["provenance"])
    minutes = (time.perf_counter() - started) / 60
    console.rule()
    console.print(
        f"Done in {minutes:.1f} minutes. Read {folder / 'report.md'}; the new encoder is {folder / 'scl/model'}"
    )


def _configs(folder: Path, model: str, max_steps: int | None) -> tuple[TrainConfig, ...]:
    """The same rows, batches and steps for both; from a trained encoder, so cosine in place of Liao's dot product."""
    shared: dict[str, Any] = {
        "model": model,
        "pooling": "own",
        "data": (TASK,),
        "evaluate_on": f"{TASK}:dev",
        "evaluate_every": 35,
        "checkpoint_every": 200,
        "learning_rate": 5e-5,
        "epochs": 2,
        "max_steps": max_steps,
        "precision": "fp32",  # on any processor, as the scores are
    }
    return (
        SbertConfig(output=f"{folder}/sbert", **shared),
        SclConfig(output=f"{folder}/scl", similarity="cosine", temperature=0.05, **shared),
    )


def _clear(folder: Path) -> None:
    """Make way for a new demo, but never remove a folder that is something else."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "data" / "sts" / TASK).is_dir():
            raise NearfarError(f"{folder}: is not a demo's folder; choose another --output.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


Grid = tuple[str, list[str], list[list[str]]]


def _tables(results: dict[str, Any], comparisons: list[Any]) -> tuple[Grid, Grid]:
    rows = []
    for name, result in results.items():
        spearman, pearson = (result["tasks"][TASK][metric]["all"] for metric in ("spearman", "pearson"))
        rows.append([name, *(f"{e['score']:.2f} [{e['low']:.1f}, {e['high']:.1f}]" for e in (spearman, pearson))])
    scores = ("Held-out pairs: correlation x 100 [95% interval]", ["encoder", "Spearman", "Pearson"], rows)
    rows = []
    for comparison in comparisons:
        row = comparison["tasks"][TASK]
        interval = f"{row['difference']:+.2f} [{row['low']:+.1f}, {row['high']:+.1f}]"
        rows.append([f"{comparison['first']['name']} - {comparison['second']['name']}", interval, f"{row['p']:.4f}"])
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
    """The best three of the library before and after, side by side."""
    lines = [f"query: {query}"]
    for name in ("before", "scl"):
        vectors = encoders[name].encode([query, *LIBRARY], normalize=True, precision="fp32")
        cosines = vectors[1:] @ vectors[0]
        lines += [f"  {name:<7}{cosines[place]:.2f}  {LIBRARY[place]}" for place in cosines.argsort()[::-1][:3]]
    return lines


def _write_report(folder: Path, scores: Grid, differences: Grid, found: list[str], provenance: dict[str, Any]) -> None:
    from nearfar.disk import write_text

    lines = ["# What training did", "", (__doc__ or "").split("\n\n")[1].replace("\n", " ").strip()]
    for title, header, rows in (scores, differences):
        lines += ["", f"## {title}", ""]
        lines += [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    lines += ["", "## Training", "", "![Loss and dev score by step](training.png)"]
    lines += ["", "## The space before and after", "", "![t-SNE of sentences by activity](tsne.png)"]
    lines += ["", "Sentences of the training vocabulary, coloured by activity; no label was seen in training."]
    lines += ["", "## Search", "", "```", *found, "```", "", "## Where this comes from", ""]
    lines += [f"- {key}: {value}" for key, value in provenance.items()]
    write_text(folder / "report.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
