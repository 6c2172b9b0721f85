"""Flags: each error names its flag, is raised before a model or file is opened, and leaves no files."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import nearfar
from tests.invalid_input.cli_runner import assert_refused

HUGE = "1" + "0" * 30
TRAIN, SIMCSE, KIM = "train scl --output x", "train simcse-unsup --output x", "train sg-opt --output x"
ORDER, REGRESSION = "train nli-order --output x", "train regression --output x"
FINETUNE, EVALUATE, COMPARE = "finetune rows.tsv --output x", "evaluate m", "compare a b"
ENCODE, PREDICT = "encode m --input t.txt --output x.npy", "predict m --input t.txt --output x.tsv"
GEOMETRY, PAGE, REPORT, BACK = (
    "geometry m --output x",
    "geometry m --texts t.txt --page x.html",
    "report m --output x.html",
    "back-translate --input t.txt --output x.tsv",
)

MINE, DEDUP = "mine --model m --data p.tsv --output t.tsv", "dedup --model m --input t.txt"
SEARCH = "search q --model m --input t.txt"
DEMO = "demo"
SOUP = "soup a b --output x"

COUNTS = {
    TRAIN: "--batch-size --epochs --max-steps --accumulate --limit --evaluate-every --patience --checkpoint-every "
    "--micro-batch --micro-batch-tokens --lora-rank --max-positives --max-negatives --matryoshka",
    KIM: "--projection",
    EVALUATE: "--probe-batch-size --probe-epoch-size --probe-max-epochs --dimensions",
    COMPARE: "--resamples",
    REPORT: "--resamples",
    ENCODE: "--processes --dimensions",
    SEARCH: "--top --rescore --dimensions",
    BACK: "--beams --batch-size",
    MINE: "--negatives --range-max --limit",
    DEMO: "--max-steps",
}
"""Command -> flags that take integers of at least 1."""
FROM = {
    TRAIN: {"--max-length": 3, "--train-max-length": 3, "--seed": 0},
    FINETUNE: {"--validation-rows": 2, "--sample-size": 2, "--sample-seed": 0, "--seed": 0},
    EVALUATE: {"--resamples": 0, "--nhid": 0, "--folds": 2, "--seed": 0, "--max-length": 3}
    | {"--probe-tenacity": 0, "--probe-seed": 0, "--fold-seed": 0},
    COMPARE: {"--seed": 0},
    ENCODE: {"--max-length": 3},
    PREDICT: {"--max-length": 3},
    SEARCH: {"--max-length": 3},
    GEOMETRY: {"--labelled-limit": 4, "--seed": 0, "--max-length": 3},
    PAGE: {"--texts-limit": 2},
    REPORT: {"--seed": 0},
    BACK: {"--max-length": 3, "--seed": 0},
    MINE: {"--range-min": 0, "--max-length": 3, "--seed": 0},
    DEDUP: {"--max-length": 3},
    DEMO: {"--seed": 0},
}
"""Command -> flags that take integers, and their minimum."""
ABOVE_ZERO = {
    TRAIN: "--learning-rate --head-learning-rate --lora-alpha --matryoshka-weights",
    EVALUATE: "--probe-learning-rate",
    BACK: "--temperature",
}
TEMPERATURES = {
    TRAIN: "--temperature",
    ORDER: "--temperature --order-temperature",
    REGRESSION: "--temperature --angle-temperature",
}
AT_LEAST_ZERO = {
    TRAIN: "--weight-decay --max-grad-norm --second-weight --false-negative-margin",
    SIMCSE: "--mlm-weight",
    ORDER: "--order-weight --order-margin --false-negative-margin",
    REGRESSION: "--cosine-weight --in-batch-weight --angle-weight",
    EVALUATE: "--probe-l2",
    KIM: "--drift-weight",
}
SHARES = {
    TRAIN: {"--warmup": "between 0 and 1", "--scl-weight": "between 0 and 1", "--beta2": "in [0, 1)"}
    | {"--start-weight": "in [0, 1)"}
    | {"--ema": "in (0, 1)", "--layer-decay": "in (0, 1]", "--adam-epsilon": "in (0, 1]"},
    SIMCSE: {"--mlm-probability": "in (0, 1)"},
    REGRESSION: {"--in-batch-threshold": "between 0 and 1"},
    FINETUNE: {"--dropout": "in [0, 1)", "--noise-rate": "between 0 and 1"}
    | {"--ema": "in (0, 1)", "--layer-decay": "in (0, 1]"},
    MINE: {"--relative-margin": "in [0, 1)"},
}
UNBOUNDED = {"train simcse-sup --output x": "--hard-negative-weight", GEOMETRY: "--positive-above"}
"""Command -> flags that take any number within very wide bounds."""
CHOICES = {
    TRAIN: {
        "--precision": "auto, fp32 or bf16",
        "--schedule": "linear, cosine or constant",
        "--keep": "best or last",
        "--track": "tensorboard, wandb or mlflow",
        "--order": "premise, file or rows",
        "--head-layers": "1 or 2",
        "--similarity": "dot or cosine",
        "--hard-negatives": "all, contradiction or none",
        "--max-positives": "a whole number or all",
    },
    ORDER: {
        "--directions": "query_to_doc, doc_to_query, both or all",
        "--order-pairs": "within-premise or batch",
        "--similarity": "cosine or dot",
    },
    REGRESSION: {"--objective": "mse, cosent or angle"},
    EVALUATE: {
        "--suite": "sts, transfer, all or none",
        "--protocol": "senteval or exact",
        "--probe-preset": "senteval, liao or kim",
        "--probe-optimiser": "adam, rmsprop or none",
        "--metric": "spearman or pearson",
        "--quantize": "float16, int8, binary or none",
    },
    FINETUNE: {
        "--splits": "auto, few-shot, full, held-out or 10-90",
        "--metric": "accuracy, f1, matthews, pearson, spearman or none",
        "--noise-mode": "replace or add",
        "--track": "tensorboard, wandb or mlflow",
    },
    COMPARE: {"--aggregate": "all, mean or wmean"},
    ENCODE: {"--dtype": "float32 or float16", "--quantize": "float16, int8, binary or none"},
    SEARCH: {"--precision": "auto, fp32 or bf16", "--quantize": "int8, binary or none"},
    REPORT: {"--compare": "auto, yes or no"},
    MINE: {"--sampling": "top or random"},
    DEDUP: {"--keep": "first or longest"},
    DEMO: {"--precision": "auto, fp32 or bf16"},
    SOUP: {"--precision": "auto, fp32 or bf16"},
}
TEXTS = {
    TRAIN: "--model --evaluate-on --pooling --device --second --premise-column",
    FINETUNE: "--validation --test --label-column --noise",
    EVALUATE: "--output --name",
    GEOMETRY: "--pairs --task --labelled",
    PAGE: "--column --color-by",
    REPORT: "--title",
    BACK: "--forward --backward --column",
    MINE: "--anchor-column --positive-column --corpus-column --pooling",
    DEDUP: "--column --pooling",
    SEARCH: "--column --query-column --pooling --device",
    SOUP: "--device --weights",
}
FILES = {
    "train scl": "--output --model --evaluate-on --data",
    "finetune": "--output --validation --test",
    EVALUATE: "--tasks --pairs --labelled --output",
    "encode m --output x.npy": "--input",
    "encode m --input t.txt": "--output",
    f"{ENCODE} --quantize int8": "--calibrate",
    "predict m --input t.txt": "--output",
    "search q --model m": "--input",
    "search q --input t.txt": "--model",
    SEARCH: "--queries --output --index",
    "geometry m": "--output --page --texts",
    "report m": "--output",
    "back-translate --input t.txt": "--output",
    "mine --model m --data p.tsv": "--output --corpus",
    "mine --model m --output t.tsv": "--data",
    DEDUP: "--output --groups",
    DEMO: "--output --model",
    "soup a b": "--output --evaluate-on",
}
OTHER: dict[str, tuple[str, str]] = {
    # id: command, expected message
    "no command": ("trian", "no command is called 'trian'. Did you mean 'train'?"),
    "command in capitals": ("TRAIN scl", "Did you mean 'train'?"),
    "method in capitals": ("train SCL --output x", "Did you mean 'scl'?"),
    "method that is fine-tuning": ("train scl-finetune --output x", "nearfar finetune"),
    "no method": ("train --output x", "name your rows by --data FILE, or a method first"),
    "splits and validation rows of a file": (
        "finetune sst2 --splits few-shot --validation v.tsv --output x",
        "--splits few-shot and --validation: each chooses the validation rows; give one of them",
    ),
    "splits with a number of rows": (
        "finetune rte --splits 10-90 --validation-rows 30 --output x",
        "--validation-rows: --splits 10-90 sets the number of validation rows; leave one out",
    ),
    "settings of back-translation in a text file": (
        "back-translate t.txt --output x.tsv",
        "t.txt: a file of settings ends in .toml; name the sentences by --input t.txt",
    ),
    "unknown method": ("train qqq --output x", "There are: sbert, scl"),
    "unknown flag": (f"{TRAIN} --temprature 0.1", "no flag is called '--temprature'. Did you mean '--temperature'?"),
    "unknown flag, required one missing": ("train scl --outptu x", "'--outptu'. Did you mean '--output'?"),
    "unknown flag with a value": ("evaluate m --sede=3", "'--sede'. Did you mean '--seed'?"),
    "flag of another command": (f"{ENCODE} --epochs 3", "no flag is called '--epochs'"),
    "flag of another method": ("train sbert --output x --scl-weight 0.3", "no flag is called '--scl-weight'"),
    "flag that is on already": ("train sg --output x --freeze-embeddings", "Did you mean '--no-freeze-embeddings'?"),
    "order of rows in place of the loss": (f"{ORDER} --order batch", "no flag is called '--order'"),
    "linear head with a ranking": (
        f"{REGRESSION} --objective cosent --head linear",
        "--head linear and --objective cosent: cosent ranks cosines; leave out --head",
    ),
    "no part of the loss": (
        f"{REGRESSION} --objective angle --cosine-weight 0 --in-batch-weight 0 --angle-weight 0",
        "--cosine-weight, --in-batch-weight and --angle-weight are all 0",
    ),
    "short flag": (f"{TRAIN} -q", "-q"),
    "flag without its value": ("train scl --output", "--output"),
    "flag without its value before another": ("train scl --output --epochs 3", "--output"),
    "number flag without its value": (f"{TRAIN} --epochs", "--epochs"),
    "list without a value": (f"{TRAIN} --data", "--data: needs a value"),
    "list without a value before another flag": (f"{TRAIN} --data --epochs 2", "--data: needs a value"),
    "required flag missing": ("train scl", "--output"),
    "required flags missing": ("encode m", "--input"),
    "model of search missing": ("search q --input t.txt", "--model"),
    "hits of another kind": (f"{SEARCH} --output hits.csv", "must end in .tsv or .jsonl"),
    "column without queries": (f"{SEARCH} --query-column c", "--query-column c: needs a file, --queries FILE"),
    "overwrite without output": (f"{SEARCH} --overwrite", "--overwrite: needs a file to replace"),
    "query and queries": (f"{SEARCH} --queries q.txt", "not both"),
    "no query": ("search --model m --input t.txt", "no query given"),
    "model missing": ("encode --input t.txt --output x.npy", "MODEL"),
    "two models": (f"encode m n {ENCODE[8:]}", "n"),
    "words too many": (f"{TRAIN} more", "more"),
    "value for a switch": (f"{TRAIN} --resume yes", "yes"),
    "flag twice": (f"{TRAIN} --epochs 2 --epochs 3", "--epochs: is given twice"),
    "flag twice, spelt differently": (f"{TRAIN} --batch_size 2 --batch-size=3", "--batch-size: is given twice"),
    "list twice": (f"{TRAIN} --data a --data b", "--data: is given twice"),
    "required flag twice": (f"{TRAIN} --output y", "--output: is given twice"),
    "minus infinity": (f"{TRAIN} --learning-rate -inf", "--learning-rate -inf: must be a finite number"),
    "minus one, with =": (f"{TRAIN} --seed=-1", "--seed -1: must be at least 0"),
    "minus one": (f"{TRAIN} --seed -1", "--seed -1: must be at least 0"),
    "seed over 63 bits": (f"{TRAIN} --seed {2**63}", "must be at most 9,223,372,036,854,775,807"),
    "seed over 32 bits": (f"{EVALUATE} --seed {2**32}", "must be at most 4,294,967,295"),
    "number of 5,000 digits": (f"{TRAIN} --epochs {'9' * 5000}", "--epochs '999"),
    "negative number of 5,000 digits": (f"{TRAIN} --epochs -{'9' * 5000}", "must be at least 1"),
    "learning rate that diverges": (f"{TRAIN} --learning-rate 1e30", "--learning-rate 1e30: must be at most 10"),
    "two ways to say how much": (f"{TRAIN} --micro-batch 4 --micro-batch-tokens 9", "--micro-batch-tokens: each"),
    "widths: twice the same": (f"{TRAIN} --matryoshka 8,8", "--matryoshka 8 8: give one or more widths, each once"),
    "widths: one is zero": (f"{TRAIN} --matryoshka 8,0", "--matryoshka 8,0: must be at least 1"),
    "widths: a trailing comma": (f"{TRAIN} --matryoshka 8,", "--matryoshka 8,: must be a whole number or none"),
    "trackers: one is unknown": (f"{TRAIN} --track wandb,neptune", "--track wandb,neptune: must be tensorboard, wandb"),
    "trackers: a trailing comma": (f"{TRAIN} --track wandb,", "--track wandb,: must be tensorboard, wandb or mlflow"),
    "trackers: none": (f"{TRAIN} --track", "--track: needs a value"),
    "weights of no widths": (f"{TRAIN} --matryoshka-weights 1", "width of --matryoshka (which is not given)"),
    "fewer weights than widths": (
        f"{TRAIN} --matryoshka 8 4 --matryoshka-weights 1",
        "--matryoshka-weights 1: must be one weight for each width of --matryoshka (8 4)",
    ),
    "two data types": (f"{ENCODE} --dtype float16 --quantize int8", "--dtype float16 and --quantize int8: each sets"),
    "ranges of no int8": (f"{ENCODE} --calibrate r.npy", "--calibrate r.npy: is for int8 embeddings"),
    "two ways to search": (f"{SEARCH} --approximate --quantize int8", "--approximate and --quantize int8: are two"),
    "candidates of exact search": (f"{SEARCH} --rescore 4", "--rescore 4: is for quantized search"),
    "evaluate nothing": ("evaluate", "no model given: nearfar evaluate"),
    "penalties: a word": (f"{EVALUATE} --probe-l2 0.1 small", "--probe-l2 0.1 small: must be a number"),
    "projection: a word": ("train sg --output x --projection wide", "must be a whole number or none"),
    "compare one": ("compare a", "two sides are needed"),
    "average one": ("soup a --output x", "two models or more are needed: nearfar soup MODEL MODEL ..."),
    "average nothing": ("soup --output x", "two models or more are needed"),
    "average into nothing": ("soup a b", "--output"),
    "greedy without a dev set": (f"{SOUP} --greedy", "--greedy: needs a dev set to choose models by; name it by"),
    "a dev set without greedy": (f"{SOUP} --evaluate-on d.tsv", "--evaluate-on: chooses the models of --greedy; add"),
    "greedy with weights": (f"{SOUP} --greedy --evaluate-on d.tsv --weights 1,2", "--greedy and --weights: a greedy"),
    **{
        f"weights of models: {value}": (f"{SOUP} --weights={value}", f"--weights {value}: each must be {bounds}")
        for value, bounds in {
            "1,0": "above 0",
            "-1,2": "above 0",
            "1,nan": "a finite number",
            "inf,1": "a finite number",
            "1,1e30": "at most 1,000,000",
            "1,": "a number",
            "two,1": "a number",
        }.items()
    },
    "no average at all": (f"{TRAIN} --ema 0", "--ema 0: must be in (0, 1)"),
    "an average of nothing": (f"{TRAIN} --ema 1", "--ema 1: must be in (0, 1)"),
    "nothing but the start": (f"{TRAIN} --start-weight 1", "--start-weight 1: must be in [0, 1)"),
    "adapters and the start": (
        f"{TRAIN} --start-weight 0.5 --lora-rank 4",
        "--start-weight 0.5 and --lora-rank: adapters have no weights before training",
    ),
    "lower layers do not learn": (f"{TRAIN} --layer-decay 0", "--layer-decay 0: must be in (0, 1]"),
    **{
        f"hold out {value}": (f"{TRAIN} --hold-out={value}", f"--hold-out {value}: must be {bounds}")
        for bounds, values in {
            "0, a share of at most 0.5, or a whole number from 2": ("0.51", "1", "1.5", "-1"),
            "a finite number": ("nan", "inf"),
            "at most 1,000,000,000": ("1e30",),
            "a number": ("some",),
        }.items()
        for value in values
    },
    "hold out and a dev set": (f"{TRAIN} --hold-out 0.1 --evaluate-on d.tsv", "--evaluate-on and --hold-out: held-out"),
    **{
        f"{flag} {value}": (f"{command} {flag}={value}", f"{flag} {value}: must be {bounds}")
        for command, flag, bounds, values in (
            (DEDUP, "--threshold", "between -1 and 1", ("1.01", "-1.01", "1e30")),
            (DEDUP, "--threshold", "a finite number", ("nan", "inf")),
            (MINE, "--absolute-margin", "between 0 and 2", ("-0.1", "2.1")),
            (MINE, "--max-score", "between -1 and 1", ("1.1",)),
            (MINE, "--min-score", "a finite number", ("nan",)),
        )
        for value in values
    },
    "a range without candidates": (f"{MINE} --range-min 5 --range-max 5", "--range-max 5: leaves 0 candidates"),
    "one column for both": (f"{MINE} --anchor-column a --positive-column a", "--positive-column a: is also"),
    "lowest above highest": (f"{MINE} --min-score 0.9 --max-score 0.1", "--min-score 0.9: must not be above"),
    "groups without a threshold": (f"{DEDUP} --groups g.tsv", "--groups: needs --threshold"),
    "a prompt beside a query prompt": (f"{SEARCH} --prompt a: --query-prompt b:", "--prompt: is for queries and texts"),
    "page of another format": ("geometry m --texts t.txt --page p.pdf", "--page p.pdf: must end in .html"),
    "geometry of nothing": ("geometry --output x", "no model given: nearfar geometry"),
    "geometry into nothing": ("geometry m", "Name what to write: --output FOLDER"),
    "page without texts": ("geometry m --page x.html", "--page needs --texts"),
    "texts without a page": (f"{GEOMETRY} --texts t.txt", "--texts needs --page FILE"),
    "pairs without a folder": (f"{PAGE} --pairs p.tsv", "--pairs needs --output FOLDER"),
    "page of three models": ("geometry a b c --texts t.txt --page x.html", "--page shows one model, or two"),
    "too many texts for a page": (f"{PAGE} --texts-limit 50001", "--texts-limit 50001: must be at most 50,000"),
    "one result of two models": ("evaluate a b --output x.json", "--output is for the result of one model"),
}
EMPTY: dict[str, tuple[list[str], str]] = {
    # id: words, one of which is empty or not a valid name, and the expected message
    "no command": ([""], "no command is called ''"),
    "no method": (["train", ""], "no method is called ''"),
    "no task": (["finetune", "", "--output", "x"], "task = ''"),
    "no model to encode by": (["encode", "", "--input", "a", "--output", "x.npy"], "MODEL '': must not be empty"),
    "no model to evaluate": (["evaluate", ""], "MODEL '': must not be empty"),
    "one of two models": (["evaluate", "m", " "], "must not be empty"),
    "one of two models to average": (["soup", "a", "", "--output", "x"], "MODEL a '': must not be empty"),
    "one of two sides": (["compare", "a", ""], "SIDE a '': must not be empty"),
    "no run to report": (["report", "", "--output", "x.html"], "must not be empty"),
    "one of the data": (["train", "scl", "--output", "x", "--data", "a", ""], "--data a '': must not be empty"),
    "no number": (["train", "scl", "--output", "x", "--epochs", ""], "--epochs '': must be a whole number"),
    "no float": (["train", "scl", "--output", "x", "--warmup", ""], "--warmup '': must be a number"),
    "no choice": (["train", "scl", "--output", "x", "--keep", ""], "--keep '': must be best or last"),
    "model of a long name": (["evaluate", "m" * 300], "has a name of over 255 bytes"),
    "method of a long name": (["train", "m" * 300], "no method is called"),
    "command of a long name": (["t" * 5000], "no command is called"),
    "flag of a long name": (["evaluate", "m", "--" + "x" * 5000], "no flag is called"),
    "file of a long name": (["train", "m" * 300 + ".toml"], "cannot be read as TOML"),
    "file with NUL": (["train", "m\0.toml"], "cannot be read as TOML"),
    "method that is not UTF-8": (["train", "\udcff"], "no method is called '\\udcff'"),
}


class Row(NamedTuple):
    """Name, command and expected messages."""

    name: str
    argv: list[str]
    messages: tuple[str, ...]


def rows() -> Iterator[Row]:
    """All rows."""
    for command, flags in COUNTS.items():
        for flag in flags.split():
            yield from numbers(command, flag, 1)
    for command, least in FROM.items():
        for flag, number in least.items():
            yield from numbers(command, flag, number)
    tables = (
        (ABOVE_ZERO, ("0", "must be above 0")),
        (TEMPERATURES, ("9e-9", "must be at least 1e-08")),
        (AT_LEAST_ZERO, ("-0.1", "must be at least 0")),
    )
    for table, smallest in tables:
        for command, flags in table.items():
            for flag in flags.split():
                pairs = (smallest, ("nan", "must be a finite number"), ("1e30", "must be at most"))
                for text, message in (*pairs, ("fast", "must be a number")):
                    yield row(command, f"{flag}={text}", f"{flag} {text}: {message}")
    for command, shares in SHARES.items():
        for flag, bounds in shares.items():
            for text, message in (("-0.1", bounds), ("1.5", bounds), ("nan", "a finite number")):
                yield row(command, f"{flag}={text}", f"{flag} {text}: must be {message}")
    for command, flag in UNBOUNDED.items():
        for text in ("nan", "inf", "-inf", "1e400"):
            yield row(command, f"{flag}={text}", f"{flag} {text}: must be a finite number")
        yield row(command, f"{flag}=-1e30", f"{flag} -1e30: must be at least")
    for command, choices in CHOICES.items():
        for flag, known in choices.items():
            yield row(command, f"{flag}=nonsense", f"{flag} nonsense: must be {known}")
    for command, flags in TEXTS.items():
        for flag in flags.split():
            for text in ("", "  "):
                yield row(command, f"{flag}={text}", f"{flag} ", "must not be empty")
    for command, flags in FILES.items():
        for flag in flags.split():
            output = [] if "--output" in (*command.split(), flag) or command == EVALUATE else ["--output", "x"]
            for text, message in (
                ("", "must not be empty"),
                ("a\0b", "NUL"),
                ("x" * 300, "has a name of over"),
                ("a/" * 2500, "is a path of over 4,095 bytes"),
                ("\udcff", "must be UTF-8"),
            ):
                one = row(command, f"{flag}={text}", flag, message)
                yield one._replace(argv=[*one.argv, *output])
    for name, (command, message) in OTHER.items():
        yield Row(name, command.split(), (message,))
    for name, (words, message) in EMPTY.items():
        yield Row(f"empty or long: {name}", words, (message,))


def numbers(command: str, flag: str, least: int) -> Iterator[Row]:
    """Invalid values of a flag that takes integers of at least ``least``."""
    not_an_integer = "must be a whole number"
    for text, message in (
        (str(least - 1), f"must be at least {least}"),
        (HUGE, "must be at most"),
        ("2.0", not_an_integer),
        ("true", not_an_integer),
    ):
        yield row(command, f"{flag}={text}", f"{flag} {text}: {message}")


def row(command: str, word: str, *messages: str) -> Row:
    """A command with one more word."""
    verb, *rest = command.split()
    name = f"{verb} {word}".encode("ascii", "backslashreplace").decode()
    return Row(name[:60], [verb, *rest, word], messages)


TABLE = list(rows())


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory: no model, no file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("row", TABLE, ids=[one.name for one in TABLE])
def test_an_error_in_a_flag(empty_folder: Path, row: Row) -> None:
    assert_refused(row.argv, *row.messages)
    assert not any(empty_folder.iterdir())


@pytest.mark.long
def test_errors_in_flags_do_not_load_torch() -> None:
    code = f"""if True:
        import sys
        from nearfar.cli import main
        for argv in {[one.argv for one in TABLE]!r}:
            try:
                status = main(argv)
            except SystemExit as left:
                status = left.code
            assert status == 2, argv
            loaded = {{"torch", "transformers", "numpy", "datasets"}} & set(sys.modules)
            assert not loaded, (argv, loaded)
    """
    source = {**os.environ, "PYTHONPATH": str(Path(nearfar.__file__).parents[1])}
    completed = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, check=False, env=source
    )
    assert completed.returncode == 0, completed.stderr[-2000:]


@pytest.mark.parametrize("value", ["true", "", "no-such", "\0", "x" * 100_000])
def test_a_value_of_a_flag_that_takes_none(value: str) -> None:
    output = assert_refused(["env", "--offline", f"--json={value}"], "--json=", "this flag takes no value")
    assert len(output) < 1000


def test_a_long_device_is_not_printed_whole() -> None:
    output = assert_refused(
        ["encode", "m", "--input", "t.txt", "--output", "x.npy", f"--device={'x' * 9999}"], "--device"
    )
    assert len(output) < 1000


def test_long_names_of_columns_are_not_printed_whole(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(f"anchor\t{'x' * 9999}\na\tb\n")
    argv = ["train", "--data", str(tmp_path / "t.tsv"), "--output", str(tmp_path / "new")]
    assert len(assert_refused(argv, "its columns (anchor, xxx")) < 2000
