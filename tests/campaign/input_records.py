"""Cases of the files that nearfar writes and users edit: TOML, results, run folders, indexes, encoded shards."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.campaign import verdicts
from tests.campaign.case import Case
from tests.campaign.input_files import CHANGES, LIMITS, Call, changed_file, replaced_file
from tests.campaign.mutations import BYTES, Change
from tests.campaign.mutations_json import JSON, SAFETENSORS
from tests.campaign.mutations_toml import TOML
from tests.campaign.no_files import KINDS_OF_FILE
from tests.campaign.server import Server
from tests.child_programs import ROOT
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN

LINES = CHANGES["jsonl"]
RESULTS = {"scores": 200, "two": 120, "three": 40, "space": 80, "tuned": 60}
"""Result file -> number of cases of its reader."""
REPORT = "report {file} scores.json --output new.html --resamples 9"
COMPARE = "compare {file} other.json --resamples 9"
ENCODE = "encode tiny --input shards/*.parquet --column text --output encoded"
SEARCH = "search dog --model tiny --input texts.txt --index index --top 3"
EVALUATE_RUN = "evaluate run --tasks pairs.tsv --resamples 0"
RUNS: Sequence[tuple[str, str, str, Mapping[str, Change], int]] = (
    ("resume of a run", " ".join([*STOPPED, "--resume"]), "stopped/config.toml", TOML, 60),
    ("resume of a run", " ".join([*STOPPED, "--resume"]), "stopped/inputs.json", JSON, 50),
    ("resume of a run", " ".join([*STOPPED, "--resume"]), "stopped/metrics.jsonl", LINES, 60),
    ("checkpoint", " ".join([*STOPPED, "--resume"]), "stopped/checkpoint/progress.json", JSON, 80),
    ("checkpoint", " ".join([*STOPPED, "--resume"]), "stopped/checkpoint/weights.safetensors", SAFETENSORS, 60),
    ("checkpoint", " ".join([*STOPPED, "--resume"]), "stopped/checkpoint/optimiser.safetensors", SAFETENSORS, 60),
    ("checkpoint", " ".join([*STOPPED, "--resume"]), "stopped/best.safetensors", SAFETENSORS, 40),
    ("resume of a classifier", " ".join([*STOPPED_FINETUNE, "--resume"]), "tuning/config.toml", TOML, 30),
    ("resume of a classifier", " ".join([*STOPPED_FINETUNE, "--resume"]), "tuning/checkpoint/progress.json", JSON, 30),
    ("resume of a finished run", " ".join([*TRAIN, "--output run --resume"]), "run/run.json", JSON, 40),
    (
        "resume of a finished run",
        " ".join([*FINETUNE, "--output classifier --resume"]),
        "classifier/result.json",
        JSON,
        30,
    ),
    ("report of a run", "report run --output new.html", "run/run.json", JSON, 80),
    ("report of a run", "report run --output new.html", "run/metrics.jsonl", LINES, 80),
    ("report of a run", "report run --output new.html", "run/config.toml", TOML, 60),
    ("evaluation of a run", EVALUATE_RUN, "run/run.json", JSON, 40),
    ("evaluation of a run", EVALUATE_RUN, "run/nearfar_seen.safetensors", SAFETENSORS, 50),
    ("prediction of a run", "predict classifier --input texts.txt --output new.tsv", "classifier/run.json", JSON, 30),
    ("search index", SEARCH, "index/manifest.json", JSON, 120),
    ("search index", SEARCH, "index/rows.jsonl", LINES, 80),
    ("search index", SEARCH, "index/rows.npy", BYTES, 60),
    ("search index", SEARCH, "index/texts.npy", BYTES, 60),
    ("search index", SEARCH, "index/vectors.npy", BYTES, 60),
    ("shards", ENCODE, "encoded/_manifest.json", JSON, 60),
    ("shards", f"{ENCODE}-again", "shards/1.parquet", BYTES, 60),
)
"""Group, command, the file that is changed, how, and the number of cases."""


def cases(seed: int) -> Iterator[Case]:
    """Cases of TOML files, results, run folders, indexes and shards."""
    configs = sorted((ROOT / "configs").glob("*.toml"))
    tables = sorted((ROOT / "src/nearfar/studies/tables").glob("*.toml"))
    tables += sorted((ROOT / "studies/tables").glob("*.toml"))
    for number in range(350):
        yield _of_repository(
            seed, "TOML of train and finetune", number, configs[number % len(configs)], "read_run_config"
        )
    for number in range(200):
        yield _of_repository(seed, "TOML of study", number, tables[number % len(tables)], "read_study")
    for name, count in RESULTS.items():
        for number in range(count):
            yield changed_file(seed, "result file", number, f"{name}.json", JSON, _reader("read_result"), note=name)
    for number in range(120):
        words = REPORT if number % 2 else COMPARE
        verb = words.partition(" ")[0]
        yield changed_file(seed, f"{verb} of results", number, "scores.json", JSON, command(words), linked=True)
    for name in ("two", "space", "three"):
        for number in range(50):
            yield changed_file(
                seed, "report of results", number, f"{name}.json", JSON, command(REPORT), note=name, linked=True
            )
    for group, words, file, changes, count in RUNS:
        inside = file.partition("/")[0]
        for number in range(count):
            yield changed_file(
                seed, group, number, file, changes, command(words), inside=inside, note=file, linked=True
            )
    for kind in KINDS_OF_FILE:
        yield replaced_file(kind, "scores.json", command(COMPARE), linked=True)
        seen = set()
        for _, words, file, _, _ in RUNS:
            if file not in seen and not file.startswith("shards"):
                seen.add(file)
                yield replaced_file(kind, file, command(words), inside=file.partition("/")[0], linked=True)


def _reader(function: str) -> Call:
    def call(server: Server, path: Path, draw: Random) -> str:
        done = server.function(f"tests.campaign.doors:{function}", {"file": path.name}, cwd=path.parent, **LIMITS)
        return verdicts.of_reader(done, [path.name])

    return call


def _of_repository(seed: int, group: str, number: int, file: Path, function: str) -> Case:
    """A case of a file of the repository."""
    kind = list(TOML)[number % len(TOML)]
    name = f"{group} {number} {file.stem}: {kind}"

    def check(server: Server, shared: Path, folder: Path) -> str:
        draw = Random(f"{seed} {name}")
        changed = folder / file.name
        changed.write_bytes(TOML[kind](file.read_bytes(), draw))
        return _reader(function)(server, changed, draw)

    return Case(group, name, check)


def command(words: str, *, names: Sequence[str] = ()) -> Call:
    """Runs a command in the folder of the case; ``{file}`` is the changed file."""

    def call(server: Server, path: Path, draw: Random) -> str:
        folder = next(place for place in path.parents if (place / "CASE").exists())
        file = str(path.relative_to(folder))
        done = server.command(words.replace("{file}", file).split(), cwd=folder, **LIMITS)
        return verdicts.of_command(done, [path.name, file.partition("/")[0], *names])

    return call
