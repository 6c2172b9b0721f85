"""Command lines that the declarations of the settings alone do not refuse: each error is raised before a model or file
is opened, without torch, and leaves no files."""

import json
from pathlib import Path

import pytest

from tests.child_programs import output_of
from tests.invalid_input.cli_runner import assert_refused

TRAIN, ORDER = "train scl --output x", "train nli-order --output x"
REGRESSION, EVALUATE = "train regression --output x", "evaluate m"
ENCODE, SOUP = "encode m --input t.txt --output x.npy", "soup a b --output x"
MINE = "mine --model m --data p.tsv --output t.tsv"
SEARCH = "search q --model m --input t.txt"

ROWS: dict[str, tuple[str, str]] = {
    # id: command, expected message
    "no command": ("trian", "no command is called 'trian'. Did you mean 'train'?"),
    "method in capitals": ("train SCL --output x", "Did you mean 'scl'?"),
    "method that is fine-tuning": ("train scl-finetune --output x", "nearfar finetune"),
    "no method": ("train --output x", "name your rows by --data FILE, or a method first"),
    "unknown method": ("train qqq --output x", "There are: sbert, scl"),
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
    # flags
    "unknown flag": (f"{TRAIN} --temprature 0.1", "no flag is called '--temprature'. Did you mean '--temperature'?"),
    "unknown flag with a value": ("evaluate m --sede=3", "'--sede'. Did you mean '--seed'?"),
    "flag of another command": (f"{ENCODE} --epochs 3", "no flag is called '--epochs'"),
    "flag of another method": ("train sbert --output x --scl-weight 0.3", "no flag is called '--scl-weight'"),
    "flag that is on already": ("train sg --output x --freeze-embeddings", "Did you mean '--no-freeze-embeddings'?"),
    "flag without its value": ("train scl --output", "--output"),
    "number flag without its value": (f"{TRAIN} --epochs", "--epochs"),
    "list without a value": (f"{TRAIN} --data", "--data: needs a value"),
    "required flag missing": ("train scl", "--output"),
    "model missing": ("encode --input t.txt --output x.npy", "MODEL"),
    "value of a flag that takes none": ("env --json=no", "--json=no: this flag takes no value; write --json alone"),
    "flag twice": (f"{TRAIN} --epochs 2 --epochs 3", "--epochs: is given twice"),
    "flag twice, spelt differently": (f"{TRAIN} --batch_size 2 --batch-size=3", "--batch-size: is given twice"),
    "minus one": (f"{TRAIN} --seed -1", "--seed -1: must be at least 0"),
    # lists of numbers and of names
    "widths: one is zero": (f"{TRAIN} --matryoshka 8,0", "--matryoshka 8,0: must be at least 1"),
    "widths: a trailing comma": (f"{TRAIN} --matryoshka 8,", "--matryoshka 8,: must be a whole number."),
    "weights of no widths": (f"{TRAIN} --matryoshka-weights 1", "width of --matryoshka (which is not given)"),
    "fewer weights than widths": (
        f"{TRAIN} --matryoshka 8 4 --matryoshka-weights 1",
        "--matryoshka-weights 1: must be one weight for each width of --matryoshka (8 4)",
    ),
    "trackers: one is unknown": (f"{TRAIN} --track wandb,neptune", "--track wandb,neptune: must be mlflow, tensorb"),
    "penalties: a word": (f"{EVALUATE} --probe-l2 0.1 small", "--probe-l2 0.1 small: must be a number"),
    "weights of models: not finite": (f"{SOUP} --weights=1,nan", "--weights 1,nan: each must be a finite number"),
    "weights of models: a word": (f"{SOUP} --weights=two,1", "--weights two,1: each must be a number"),
    # settings that do not go together, or need another
    "linear head with a ranking": (
        f"{REGRESSION} --objective cosent --head linear",
        "--head linear: needs --objective mse",
    ),
    "no part of the loss": (
        f"{REGRESSION} --objective angle --cosine-weight 0 --in-batch-weight 0 --angle-weight 0",
        "--cosine-weight, --in-batch-weight and --angle-weight are all 0",
    ),
    "adapters and the start": (
        f"{TRAIN} --start-weight 0.5 --lora-rank 4",
        "--start-weight 0.5 and --lora-rank: adapters have no weights before training",
    ),
    "hold out and a dev set": (f"{TRAIN} --hold-out 0.1 --evaluate-on d.tsv", "--evaluate-on and --hold-out: held-out"),
    "query and queries": (f"{SEARCH} --queries q.txt", "not both"),
    "no query": ("search --model m --input t.txt", "no query given"),
    "two ways to search": (f"{SEARCH} --approximate --quantize int8", "--approximate and --quantize int8: are two"),
    "candidates of exact search": (f"{SEARCH} --rescore 4", "--rescore 4: needs --quantize"),
    "evaluate nothing": ("evaluate", "no model given: nearfar evaluate"),
    "one result of two models": ("evaluate a b --output x.json", "--output is for the result of one model"),
    "greedy without a dev set": (f"{SOUP} --greedy", "--greedy: needs --evaluate-on"),
    "a dev set without greedy": (f"{SOUP} --evaluate-on d.tsv", "--evaluate-on d.tsv: needs --greedy"),
    "greedy with weights": (f"{SOUP} --greedy --evaluate-on d.tsv --weights 1,2", "--greedy and --weights: a greedy"),
    "lowest above highest": (f"{MINE} --min-score 0.9 --max-score 0.1", "--min-score 0.9: must not be above"),
    "page of another format": ("geometry m --texts t.txt --page p.pdf", "--page p.pdf: must end in .html"),
    "geometry of nothing": ("geometry --output x", "no model given: nearfar geometry"),
    "geometry into nothing": ("geometry m", "Name what to write: --output FOLDER"),
    "page without texts": ("geometry m --page x.html", "--page x.html: needs --texts"),
    "page of three models": ("geometry a b c --texts t.txt --page x.html", "--page shows one model, or two"),
}
WORDS: dict[str, tuple[list[str], str]] = {
    # id: words, one of which is empty or no valid name, and the expected message
    "no command": ([""], "no command is called ''"),
    "no method": (["train", ""], "no method is called ''"),
    "no model to encode by": (["encode", "", "--input", "a", "--output", "x.npy"], "MODEL '': must not be empty"),
    "one of two models to average": (["soup", "a", "", "--output", "x"], "MODEL a '': must not be empty"),
    "one of two sides": (["compare", "a", ""], "SIDE a '': must not be empty"),
    "one of the data": (["train", "scl", "--output", "x", "--data", "a", ""], "--data a '': must not be empty"),
    "method of a long name": (["train", "m" * 300], "no method is called"),
    "flag of a long name": (["evaluate", "m", "--" + "x" * 5000], "no flag is called"),
    "file of a long name": (["train", "m" * 300 + ".toml"], "cannot be read as TOML"),
    "file with NUL": (["train", "m\0.toml"], "cannot be read as TOML"),
    "method that is not UTF-8": (["train", "\udcff"], "no method is called '\\udcff'"),
}
COMMANDS = {name: (command.split(), message) for name, (command, message) in ROWS.items()}
COMMANDS |= {f"empty or long: {name}": row for name, row in WORDS.items()}
WITHOUT_TORCH = """if True:
    import json, sys
    from nearfar.cli import main
    for argv in json.loads(sys.argv[1]):
        try:
            status = main(argv)
        except SystemExit as left:
            status = left.code
        assert status == 2, argv
        loaded = {"torch", "transformers", "numpy", "datasets"} & set(sys.modules)
        assert not loaded, (argv, loaded)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_line_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv, message = COMMANDS[name]
    assert_refused(argv, message)
    assert not any(tmp_path.iterdir())


@pytest.mark.long
def test_errors_in_flags_do_not_load_torch(tmp_path: Path) -> None:
    plain = [argv for argv, _ in COMMANDS.values() if all(word.isprintable() and len(word) < 200 for word in argv)]
    output_of(WITHOUT_TORCH, json.dumps(plain[::6]), folder=tmp_path)
