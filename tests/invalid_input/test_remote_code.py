"""Custom code of a model never runs, without a question on the terminal; the error is one sentence."""

import builtins
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nearfar import Encoder, NearfarError
from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.tiny_seq2seq import save_tiny_seq2seq

CODE = """from pathlib import Path
Path({marker!r}).touch()
from torch.nn import Identity as Act
from transformers import BertConfig, BertModel, BertTokenizerFast
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
class EvilConfig(BertConfig): model_type = "evil"
class EvilModel(BertModel): config_class = EvilConfig
"""
NEVER_RUNS = "never runs code from a model folder"
NEEDS_CODE = "the model needs custom code"


def edit_json(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def config(folder: Path, auto: str = "AutoConfig", name: str = "EvilConfig", kind: str = "evil") -> None:
    edit_json(folder / "config.json", model_type=kind, auto_map={auto: f"evil.{name}"})


def edit_module_entry(folder: Path, index: int, **changes: object) -> None:
    """An entry of modules.json, changed."""
    entries = json.loads((folder / "modules.json").read_text())
    entries[index] |= changes
    (folder / "modules.json").write_text(json.dumps(entries))


def set_config_and_model_code(folder: Path) -> None:
    known = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    edit_json(folder / "config.json", model_type="evil", auto_map=known)


@pytest.fixture(scope="module")
def saved(valid_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid models: ``plain``, ``modules`` (with a Dense and a Normalize), ``classifier``, ``translator``."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(valid_workspace / "tiny", folder / "plain")
    shutil.copytree(valid_workspace / "classifier" / "model", folder / "classifier")
    save_tiny_seq2seq(folder / "translator")
    encoder = Encoder.from_pretrained(folder / "plain")
    encoder.add_dense()
    encoder.normalizes = True
    encoder.save_pretrained(folder / "modules")
    return folder


@pytest.fixture
def model_with_code(saved: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Copies a model to the folder ``evil``, with custom code next to its files; the code is also importable."""

    def prompt(*_: object) -> str:
        raise AssertionError("a question was asked on the terminal")

    monkeypatch.setattr(builtins, "input", prompt)
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n" * 20))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(workspace / "cache"))
    monkeypatch.syspath_prepend(str(workspace / "evil"))
    shutil.copytree(saved / "translator", workspace / "translator")

    def make(kind: str) -> Path:
        shutil.copytree(saved / kind, workspace / "evil")
        (workspace / "evil" / "evil.py").write_text(CODE.format(marker=str(workspace / "RAN")))
        return workspace / "evil"

    return make


FILES = "--data nli.tsv --evaluate-on pairs.tsv --batch-size 10 --max-steps 1 --output fresh"
ENCODE = "encode evil --input texts.txt --output out.npy"
SETS = "--pairs pairs.tsv --task pairs.tsv --labelled labelled.tsv --positive-above 0.5"
COMMANDS = {
    "encode": ("plain", ENCODE),
    "encode in processes": ("plain", f"{ENCODE} --processes 2"),
    "train": ("plain", f"train scl --model evil {FILES}"),
    "train, dry run": ("plain", f"train scl --model evil {FILES} --dry-run"),
    "finetune": ("plain", "finetune labelled.tsv --model evil --validation-rows 20 --max-steps 1 --output fresh"),
    "finetune a classifier": ("classifier", "finetune labelled.tsv --model evil --validation-rows 20 --output fresh"),
    "predict": ("classifier", "predict evil --input texts.txt --output out.tsv"),
    "search": ("plain", "search dog --model evil --input texts.txt --output out.tsv"),
    "evaluate": ("plain", "evaluate evil --tasks pairs.tsv"),
    "evaluate wk": ("plain", "evaluate wk:evil --tasks pairs.tsv"),
    "evaluate whitening": ("plain", "evaluate whitening:evil --tasks pairs.tsv"),
    "evaluate flow": ("plain", "evaluate flow:evil --tasks pairs.tsv"),
    "compare": ("plain", "compare evil result.json --output out.json"),
    "geometry": ("plain", f"geometry evil {SETS} --output fresh"),
    "translate there": ("translator", "back-translate --forward evil --backward translator --input texts.txt"),
    "translate back": ("translator", "back-translate --forward translator --backward evil --input texts.txt"),
}
OPENED_AS = {"plain": "AutoModel", "classifier": "AutoModelForSequenceClassification"}


@pytest.mark.long
@pytest.mark.parametrize("component", ["an unknown type", "the model", "the tokenizer"])
@pytest.mark.parametrize("command", COMMANDS)
def test_by_command(model_with_code: Callable[[str], Path], workspace: Path, command: str, component: str) -> None:
    kind, argv = COMMANDS[command]
    folder = model_with_code(kind)
    if component == "an unknown type":
        config(folder)
    elif component == "the model":
        auto = OPENED_AS.get(kind, "AutoModelForSeq2SeqLM")
        config(folder, auto, "EvilModel", json.loads((folder / "config.json").read_text())["model_type"])
    else:
        edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.EvilTokenizer", None]})
    file = "tokenizer_config.json" if component == "the tokenizer" else "config.json"
    output = "" if "--output" in argv or argv.startswith("evaluate") else " --output out.tsv"
    assert_refused((argv + output).split(), f"evil/{file}: {NEEDS_CODE}", NEVER_RUNS)
    assert not (workspace / "RAN").exists()


REFUSED: dict[str, tuple[str, Callable[[Path], None], tuple[str, ...]]] = {
    "config and model": ("plain", set_config_and_model_code, ("config.json", NEEDS_CODE)),
    "config of a known type": (
        "plain",
        lambda f: config(f, kind="bert"),
        ("config.json", NEEDS_CODE, "evil.EvilConfig"),
    ),
    "code of another repository": (
        "plain",
        lambda f: edit_json(f / "config.json", auto_map={"AutoModel": "someone/code--evil.EvilModel"}),
        ("config.json", NEEDS_CODE, "someone/code--evil.EvilModel"),
    ),
    "tokenizer, one class": (
        "plain",
        lambda f: edit_json(f / "tokenizer_config.json", auto_map={"AutoTokenizer": "evil.BertTokenizerFast"}),
        ("tokenizer_config.json", NEEDS_CODE),
    ),
    "tokenizer, an early layout": (
        "plain",
        lambda f: edit_json(f / "tokenizer_config.json", auto_map=["evil.BertTokenizerFast", None]),
        ("tokenizer_config.json", NEEDS_CODE),
    ),
    "tokenizer, by config.json": (
        "plain",
        lambda f: edit_json(f / "config.json", auto_map={"AutoTokenizer": ["evil.BertTokenizerFast", None]}),
        ("config.json", NEEDS_CODE),
    ),
    "attention of the hub": (
        "plain",
        lambda f: edit_json(f / "config.json", attn_implementation="someone/attention"),
        ("config.json", "attn_implementation is 'someone/attention'", "code from the hub"),
    ),
    "attention of the hub, in a part": (
        "plain",
        lambda f: edit_json(f / "config.json", text_config={"_attn_implementation": "someone/attention"}),
        ("config.json", "_attn_implementation is 'someone/attention'"),
    ),
    "transformer": (
        "modules",
        lambda f: edit_module_entry(f, 0, type="evil.Transformer"),
        ("'evil.Transformer'", NEVER_RUNS),
    ),
    "pooling": ("modules", lambda f: edit_module_entry(f, 1, type="evil.Pooling"), ("'evil.Pooling'", NEVER_RUNS)),
    "dense": (
        "modules",
        lambda f: edit_module_entry(f, 2, type="evil.Dense"),
        ("modules.json", "'evil.Dense'", NEVER_RUNS),
    ),
    "a name that only begins well": (
        "modules",
        lambda f: edit_module_entry(f, 2, type="sentence_transformers_evil.Dense"),
        ("modules.json", "'sentence_transformers_evil.Dense'", NEVER_RUNS),
    ),
    "a name alone": (
        "modules",
        lambda f: edit_module_entry(f, 1, type="Pooling"),
        ("modules.json", "'Pooling'", NEVER_RUNS),
    ),
    "a module that nearfar lacks": (
        "modules",
        lambda f: edit_module_entry(f, 2, type="sentence_transformers.models.CNN"),
        ("modules.json", "'CNN', which nearfar does not support"),
    ),
    "activation": (
        "modules",
        lambda f: edit_json(f / "2_Dense" / "config.json", activation_function="evil.Act"),
        ("2_Dense/config.json", "'evil.Act'", "torch.nn"),
    ),
    "activation by way of torch": (
        "modules",
        lambda f: edit_json(f / "2_Dense" / "config.json", activation_function="torch.hub.load"),
        ("2_Dense/config.json", "'torch.hub.load'", "torch.nn"),
    ),
    "pickled weights of a dense": (
        "modules",
        lambda f: (f / "2_Dense" / "model.safetensors").rename(f / "2_Dense" / "pytorch_model.bin") and None,
        ("2_Dense", "pickled, which nearfar does not open"),
    ),
    **{
        f"a path that leaves the folder: {path}": (
            "modules",
            lambda f, path=path: edit_module_entry(f, 1, path=path),
            ("modules.json", "Pooling", "points outside the model folder"),
        )
        for path in ("/etc", "../..", "..", "1_Pooling/../../other", "..\\other", "C:\\other", "\\other")
    },
    "a transformer elsewhere": (
        "modules",
        lambda f: edit_module_entry(f, 0, path="../tiny"),
        ("modules.json", "Transformer", "points outside the model folder"),
    ),
}


@pytest.mark.parametrize("row", REFUSED)
def test_by_kind_of_code(model_with_code: Callable[[str], Path], workspace: Path, row: str) -> None:
    kind, damage, mentions = REFUSED[row]
    damage(model_with_code(kind))
    assert_refused(ENCODE.split(), *mentions)
    assert not (workspace / "RAN").exists()


@pytest.mark.long
def test_a_class_that_transformers_has_is_taken_from_transformers(
    model_with_code: Callable[[str], Path], workspace: Path
) -> None:
    expected = Encoder.from_pretrained("tiny").encode(["a dog"])
    known = {"AutoConfig": "evil.BertConfig", "AutoModel": "evil.BertModel", "AutoModelForMaskedLM": "evil.EvilModel"}
    edit_json(model_with_code("plain") / "config.json", auto_map=known)
    assert run_cli(ENCODE.split()).status == 0
    encoder = Encoder.from_pretrained("evil")
    assert (encoder.encode(["a dog"]) == expected).all()
    encoder.save_pretrained("again")
    assert "auto_map" not in json.loads(Path("again/config.json").read_text())
    assert not (workspace / "RAN").exists()


@pytest.mark.parametrize("kind", ["models.Pooling", "models.pooling.Pooling", "sentence_transformer.modules.Pooling"])
def test_other_module_names_are_supported(model_with_code: Callable[[str], Path], kind: str) -> None:
    edit_module_entry(model_with_code("modules"), 1, type=f"sentence_transformers.{kind}")
    assert Encoder.from_pretrained("evil").pooling == "mean"


def test_the_code_would_run(model_with_code: Callable[[str], Path], workspace: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    from transformers import AutoModel

    set_config_and_model_code(model_with_code("plain"))
    with pytest.raises(NearfarError, match=NEEDS_CODE):
        Encoder.from_pretrained("evil")
    assert not (workspace / "RAN").exists()
    AutoModel.from_pretrained("evil", trust_remote_code=True)
    assert (workspace / "RAN").exists()
