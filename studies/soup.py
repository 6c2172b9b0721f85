"""Trains the same setting with several seeds, and averages the weights of the models into one (Wortsman et al. 2022).

A script step of nearfar study:

    script = { file = "../soup.py", members = 3, method = "nli-order", data = "snli:dev+test", learning_rate = 2e-4 }

Each member is a run of `nearfar train METHOD`, or of a peer: `trainer = "peers/losses.py"` in place of `method`. All
flags that are not listed below go to it. Model number s has the seeds N(s - 1) + 1 to Ns of N members, so models with
different numbers share no run. The members are removed afterwards; `soup.json` in the model folder lists them.
`numbers.json` has the seconds of all members' training, with loading and saving, and `average` and `members`: the mean
score over --tasks and --retrieval (Spearman, MRR@10) of the average, and the mean of its members' ones.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nearfar

HERE = Path(__file__).parent


def main() -> None:
    """Train the members one after the other; write their average to OUTPUT/model, and numbers.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1, help="number of the soup, from 1")
    parser.add_argument("--members", type=int, required=True, help="models in the average, 2 or more")
    parser.add_argument("--tasks", nargs="+", default=[], help="similarity tasks")
    parser.add_argument("--retrieval", nargs="+", default=[], help="retrieval tasks")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16", help="of training and evaluation")
    parser.add_argument("--beside", help="a further set of rows with its weight, as in sentences=0.3")
    trainer = parser.add_mutually_exclusive_group(required=True)
    trainer.add_argument("--method", help="of nearfar train")
    trainer.add_argument("--trainer", help="script in the folder of this file")
    options, forwarded = parser.parse_known_args()
    if options.members < 2:
        parser.error(f"--members {options.members}: must be at least 2")
    if options.seed < 1:
        parser.error(f"--seed {options.seed}: must be at least 1")
    if options.method is not None:
        command = [sys.executable, "-m", "nearfar", "train", options.method]
    elif (script := HERE / options.trainer).is_file():
        command = [sys.executable, str(script)]
    else:
        parser.error(f"--trainer {options.trainer}: there is no such file in {HERE}")
    forwarded += ["--precision", options.precision, *(["--data", options.beside] if options.beside else [])]
    folders, started = [], time.perf_counter()
    for seed in member_seeds(options.seed, options.members):
        folder = options.output / f"member-{seed}"
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was stopped
        words = ["--model", options.model, "--output", str(folder), "--seed", str(seed), *forwarded]
        if (done := subprocess.run([*command, *words], check=False)).returncode:
            raise SystemExit(f"seed {seed} failed with exit status {done.returncode}")
        folders.append(folder)
    models = [folder / "model" for folder in folders]
    average = options.output / "model"
    nearfar.soup(*models, output=average)
    numbers = {"seconds": time.perf_counter() - started}
    if options.tasks or options.retrieval:
        score, *members = (mean_score(model, options) for model in (average, *models))
        numbers |= {"average": score, "members": sum(members) / len(members)}
    (options.output / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    for folder in folders:
        shutil.rmtree(folder)


def mean_score(model: Path, options: argparse.Namespace) -> float:
    """The mean x 100 over the tasks of --tasks and --retrieval."""
    measured = nearfar.evaluate(
        str(model),
        tasks=options.tasks,
        retrieval=options.retrieval,
        precision=options.precision,
        resamples=0,
        progress=False,
    )
    scores = [task.spearman.all.score for task in measured.tasks.values()]
    scores += [task.compared.score for task in measured.retrieval.values()]
    if None in scores:
        raise SystemExit(f"{model}: a task has no score")
    return sum(map(float, scores)) / len(scores)


def member_seeds(number: int, members: int) -> range:
    """The seeds of the members of a soup: those of no other soup with as many members."""
    return range(members * (number - 1) + 1, members * number + 1)


if __name__ == "__main__":
    main()
