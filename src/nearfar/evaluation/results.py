"""Result files: a number is a JSON file that says where it came from, and that other numbers can be tested against.

Schema 1. Scores are correlations x 100. An *estimate* is ``{"score", "low", "high"}``, the last two the 95%
bootstrap interval; where a correlation is undefined all three are null and ``"reason"`` says why. ::

    {
      "schema": 1,
      "kind": "evaluation", in older files "sts",
      "model": name or folder,
      "config": {"tasks": [...], "pooling", "max_length", "precision", "resamples", "seed", "training_seed",
                 "transductive": fitted on the texts of each task},
      "provenance": {"date", "command", "commit", "versions": {...}, "hardware": {...},
                     "kernels": {"used": [names], and how they were built, or "why_not"}, where an encoder was loaded},
      "texts": distinct texts encoded, "dim": width of an embedding,
      "unavailable": {task: why it has no score},
      "averages": {name: {"tasks": [...], "spearman": {"all", "mean", "wmean": estimates}, "pearson": the same}},
      "tasks": {task: {
        "pairs": number, "zero_vectors": pairs with a zero vector, whose cosine is taken as 0,
        "spearman": {"all", "mean", "wmean": estimates}, "pearson": the same,
        "subsets": {subset: {
          "pairs": number, "digest": of texts and gold scores in order,
          "spearman": estimate, "pearson": estimate,
          "gold": [scores], "cosines_e6": [cosines in millionths, whole numbers]
        }}
      }},
      "transfer": {                           where transfer tasks were evaluated, or a classifier was fine-tuned
        "protocol": "senteval", "exact" or "finetune", "nhid", "folds",
        "averages": {name: {"tasks": [...], "accuracy": estimate}},
        "tasks": {task:
          {"kind": "classification", "protocol", "rows": rows tested, "classes": [names], "digest",
           "accuracy": estimate, "f1": estimate (mrpc), "matthews": estimate (fine-tuned, two labels),
           "dev_accuracy", "grid", "chosen",
           "gold": [labels], "predicted": [labels]}
          or {"kind": "relatedness", "pairs", "digest", "pearson": estimate, "spearman": estimate, "mse",
              "gold": [scores], "predicted_e6": [predictions in millionths]}
        }
      }
    }

Six decimals are what float32 embeddings carry. The scores are computed from the cosines as they are written, so that
a file alone gives its scores again, and two files a paired test. A comparison's file (``"kind": "comparison"``) is
described in :mod:`nearfar.commands.compare`; it has the same ``schema`` and ``provenance``.
"""

import hashlib
import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from nearfar.disk import (
    check_output_path,
    path_errors,
    read_json,
    refuse_existing,
    refuse_overwriting_inputs,
    write_text,
)
from nearfar.evaluation.correlation import AGGREGATES
from nearfar.runtime import machine
from nearfar.types import NearfarError, ScoredPair

SCHEMA = 1
KINDS = ("evaluation", "sts", "comparison", "comparisons", "geometry")
"""What a result file can be."""
_STORED_KEYS = {"classification": ("accuracy", "predicted"), "relatedness": ("spearman", "predicted_e6")}
Result: TypeAlias = dict[str, Any]

_PACKAGES = ("nearfar", "numpy", "scipy", "torch", "transformers", "tokenizers", "sentence-transformers")


def provenance() -> dict[str, Any]:
    """Date, command line, commit of this package, versions and hardware, as a result file tells them."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([_program(), *sys.argv[1:]]),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "hardware": {
            "machine": platform.machine(),
            "processor": machine.processor(),
            "instruction_sets": " ".join(machine.instruction_sets()),
            "cores": os.cpu_count(),
            "threads": _threads(),
            "accelerator": _accelerator(),
        },
        **machine.provenance_info(),
    }


def digest(pairs: Iterable[ScoredPair]) -> str:
    """Fingerprint of texts and gold scores in their order; equal digests make two files comparable pair by pair."""
    lines = (json.dumps([first, second, float(score)]) for first, second, score in pairs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@path_errors()
def check_output(output: str | Path, *, inputs: Iterable[object] = (), overwrite: bool = False) -> Path:
    """Refuse a result file that could not or should not be written, before hours are spent on what it would hold.

    A result of nearfar's is replaced by the next one; any other file, or a Markdown file that has no result of
    nearfar's beside it, is replaced only with ``overwrite``, and none of the ``inputs`` ever.

    Raises:
        NearfarError: the name does not end in .json; it or the Markdown file beside it is a folder, one of the inputs
            or something else's file; or its folder cannot be made or written to.
    """
    file, inputs = Path(output), list(inputs)
    if file.suffix != ".json":
        raise NearfarError(f"{file}: a result file ends in .json (its Markdown table is written beside it).")
    make_folder(file)
    for written in (file, file.with_suffix(".md")):
        check_output_path(written)
        refuse_overwriting_inputs(written, inputs)
    if not is_result(file):
        _refuse_part_of(file, inputs)
        refuse_existing([file], overwrite=overwrite, what="is there and is no result of nearfar's")
        refuse_existing([file.with_suffix(".md")], overwrite=overwrite, what="is there, and no result beside it")
    return file


def _refuse_part_of(file: Path, inputs: Iterable[object]) -> None:
    """Refuse a file of a folder that is an input, as is the config.json of a model."""
    for given in inputs:
        if not isinstance(given, str | Path) or not Path(given).is_dir() or not file.exists():
            continue
        if file.resolve().is_relative_to(Path(given).resolve()):
            raise NearfarError(f"--output {file}: is a file of the input {given}; choose another --output.")


def make_folder(file: Path) -> None:
    """Make the folder of an output file.

    Raises:
        NearfarError: it cannot be made.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NearfarError(f"--output {file}: its folder {file.parent}: cannot be made ({error.strerror}).") from error


def is_result(file: Path) -> bool:
    """Whether it is a result file, of any kind."""
    try:
        result = read_json(file) if file.is_file() else None
    except NearfarError:
        return False
    return isinstance(result, dict) and type(result.get("schema")) is int and result.get("kind") in KINDS


def write_result(result: Result, file: Path, *, markdown: str) -> None:
    """Write ``file`` and, beside it, its Markdown table; each whole or not at all.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    write_text(file, _json(result) + "\n")
    write_text(file.with_suffix(".md"), markdown)


def read_result(file: str | Path) -> Result:
    """Read back an evaluation that :func:`write_result` wrote.

    Raises:
        NearfarError: no such file, no JSON, another kind of file, or one that is damaged; it names file and place.
    """
    result = read_json(Path(file), otherwise="Evaluate again to replace it.")
    validate(result, source=file)
    return result


def validate(result: object, *, source: str | Path) -> None:
    """Check that ``result`` holds what a comparison reads of it.

    Raises:
        NearfarError: it does not; says what is missing where.
    """

    def demand(condition: bool, problem: str) -> None:
        if not condition:
            raise NearfarError(f"{source}: is not a result file of nearfar evaluate: {problem}.")

    demand(isinstance(result, dict) and "schema" in result, "it has no 'schema'")
    assert isinstance(result, dict)
    if result["schema"] != SCHEMA:
        raise NearfarError(f"{source}: has schema {result['schema']!r}; this version of nearfar reads {SCHEMA}.")
    demand(result.get("kind") in ("evaluation", "sts"), f"its kind is {result.get('kind')!r}, not 'evaluation'")
    demand(isinstance(result.get("model"), str), "it names no model")
    demand(isinstance(result.get("config"), dict), "it has no config")
    seed = result["config"].get("training_seed")
    demand(seed is None or type(seed) is int, f"its config's training_seed is {str(seed)[:40]!r}, not a whole number")
    demand(isinstance(result.get("tasks"), dict), "it has no tasks")
    transfer = result.get("transfer", {"tasks": {}})
    demand(isinstance(transfer, dict) and isinstance(transfer.get("tasks"), dict), "its transfer has no tasks")
    for task, scored in transfer["tasks"].items():
        demand(isinstance(scored, dict) and isinstance(scored.get("digest"), str), f"task {task} has no digest")
        kind = scored.get("kind")
        demand(isinstance(kind, str) and kind in _STORED_KEYS, f"task {task} is of the kind {kind!r}")
        metric, predicted = _STORED_KEYS[kind]
        size = "rows" if kind == "classification" else "pairs"
        demand(type(scored.get(size)) is int, f"task {task} does not say how many {size} it has")
        named = kind != "classification" or isinstance(scored.get("protocol"), str)
        demand(named, f"task {task} does not name its protocol")
        demand(isinstance(scored.get(metric), dict), f"task {task} has no {metric} estimate")
        if "reason" in scored[metric]:
            demand(isinstance(scored[metric]["reason"], str), f"task {task}: the reason of its {metric} is no text")
            continue
        demand(_are_numbers([scored[metric].get("score")]), f"task {task}: the score of its {metric} is no number")
        for key in ("gold", predicted):
            demand(_are_numbers(scored.get(key)), f"task {task}: {key!r} is no list of numbers")
        demand(len(scored["gold"]) == len(scored[predicted]), f"task {task}: not a prediction for each gold value")
    for task, scored in result["tasks"].items():
        subsets = scored.get("subsets") if isinstance(scored, dict) else None
        demand(isinstance(subsets, dict) and bool(subsets), f"task {task} has no subsets")
        demand(type(scored.get("pairs")) is int, f"task {task} does not say how many pairs it has")
        spearman = scored.get("spearman")
        estimates = [spearman.get(kind) for kind in AGGREGATES] if isinstance(spearman, dict) else []
        whole = bool(estimates) and all(isinstance(estimate, dict) for estimate in estimates)
        demand(whole, f"task {task} has no Spearman estimates")
        reasons = [estimate.get("reason", "") for estimate in estimates if isinstance(estimate, dict)]
        demand(all(isinstance(reason, str) for reason in reasons), f"task {task}: the reason of a score is no text")
        for subset, held in scored["subsets"].items():
            where = f"task {task}, subset {subset}"
            demand(isinstance(held, dict) and isinstance(held.get("digest"), str), f"{where} has no digest")
            for key in ("gold", "cosines_e6"):
                numbers = held.get(key)
                demand(_are_numbers(numbers), f"{where}: {key!r} is no list of numbers")
                demand(len(numbers) == held.get("pairs"), f"{where}: {key!r} has {len(numbers)} numbers, not 'pairs'")


def _json(value: object, indent: str = "") -> str:
    """JSON with nested objects on lines of their own, and what holds only scalars (an estimate, an array) on one."""
    if not isinstance(value, dict) or not any(isinstance(item, dict | list) for item in value.values()):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    deeper = indent + " "
    items = (f"\n{deeper}{json.dumps(key, ensure_ascii=False)}: {_json(item, deeper)}" for key, item in value.items())
    return "{" + ",".join(items) + f"\n{indent}}}"


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(
        type(item) in (int, float) and abs(item) < 1e100 and math.isfinite(item) for item in value
    )


def _program() -> str:
    """What was run, without the folder that it is installed in."""
    name = Path(sys.argv[0]).name
    return "nearfar" if name == "__main__.py" else name


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


GENERATED_PATHS = (":(top,exclude)docs", ":(top,exclude,glob)**/results/**")
"""What git is not to call a change of the checkout: files that are made from results, or are results."""


def _commit() -> str | None:
    """The commit of the checkout that this file is tracked in, with -dirty where its code was changed; else None."""
    here = Path(__file__)
    git = ["git", "--no-optional-locks", "-C", str(here.parent)]
    answers = []
    for arguments in (
        ["ls-files", "--error-unmatch", here.name],
        ["rev-parse", "HEAD"],
        ["status", "--porcelain", "--untracked-files=no", "--", ":(top)", *GENERATED_PATHS],
    ):
        try:
            answer = subprocess.run([*git, *arguments], capture_output=True, text=True, check=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return None
        answers.append(answer.stdout.strip())
    return answers[1] + ("-dirty" if answers[2] else "")


def _threads() -> int | None:
    torch = sys.modules.get("torch")  # what was never imported was not computed with
    return torch.get_num_threads() if torch else None


def _accelerator() -> str | None:
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
