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
    # flags
    "unknown flag": (f"{TRAIN} --temprature 0.1", "no flag is called '--temprature'. Did you mean '--temperature'?"),
    "flag of another command": (f"{ENCODE} --epochs 3", "no flag is called '--epochs'"),
    "flag without its value": ("train scl --output", "--output"),
    "required flag missing": ("train scl", "--output"),
    "model missing": ("encode --input t.txt --output x.npy", "MODEL"),
    "flag twice": (f"{TRAIN} --epochs 2 --epochs 3", "--epochs: is given twice"),
    "flag twice, spelt differently": (f"{TRAIN} --batch_size 2 --batch-size=3", "--batch-size: is given twice"),
    # lists of numbers and of names
    "weights of no widths": (f"{TRAIN} --matryoshka-weights 1", "width of --matryoshka (which is not given)"),
    # settings that do not go together, or need another
    "hold out and a dev set": (f"{TRAIN} --hold-out 0.1 --evaluate-on d.tsv", "--evaluate-on and --hold-out: held-out"),
    "query and queries": (f"{SEARCH} --queries q.txt", "not both"),
    "one result of two models": ("evaluate a b --output x.json", "--output is for the result of one model"),
    "greedy without a dev set": (f"{SOUP} --greedy", "--greedy: needs --evaluate-on"),
    "a dev set without greedy": (f"{SOUP} --evaluate-on d.tsv", "--evaluate-on d.tsv: needs --greedy"),
    "lowest above highest": (f"{MINE} --min-score 0.9 --max-score 0.1", "--min-score 0.9: must not be above"),
    "page of another format": ("geometry m --texts t.txt --page p.pdf", "--page p.pdf: must end in .html"),
}
WORDS: dict[str, tuple[list[str], str]] = {
    # id: words, one of which is empty or no valid name, and the expected message
    "no command": ([""], "no command is called ''"),
    "no method": (["train", ""], "no method is called ''"),
    "one of two models to average": (["soup", "a", "", "--output", "x"], "MODEL a '': must not be empty"),
    "flag of a long name": (["evaluate", "m", "--" + "x" * 5000], "no flag is called"),
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
