"""``--precision``: how auto resolves, what files record, what a resumed run keeps, and errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from nearfar.commands.geometry.command import _open
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.encoder import Encoder
from nearfar.training import gradients
from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN
from tests.precision_mocks import WARNING, machine

EVALUATE = "evaluate tiny --tasks pairs.tsv --resamples 0 --output e.json --overwrite".split()
ENCODE = "encode tiny --input texts.txt --output v.npy --overwrite".split()
PREDICT = "predict classifier --input texts.txt --output l.tsv --overwrite".split()
TRAINED, TUNED = [*TRAIN, "--output", "new"], [*FINETUNE, "--output", "new"]
VERBS = {
    "train": TRAINED,
    "finetune": TUNED,
    "evaluate": EVALUATE,
    "encode": ENCODE,
    "predict": PREDICT,
}
NO_NATIVE_BF16 = (
    "was started in bf16, which this machine does not compute natively. Resume it on a machine with native bfloat16"
)


def read(file: str) -> Any:
    return json.loads(Path(file).read_text(encoding="utf-8"))


def replace_file(file: str, text: str) -> None:
    Path(file).unlink()
    Path(file).write_text(text, encoding="utf-8")


def set_recorded_precision(folder: str, record: str) -> None:
    """Change the recorded precision of an unfinished run."""
    file = f"{folder}/inputs.json"
    inputs = read(file)
    assert inputs["precision"] == "fp32"
    replace_file(file, json.dumps(inputs | {"precision": record}))


def run_ok(argv: list[str]) -> str:
    result = run_cli(argv)
    assert result.status == 0, result.err
    return result.err


@pytest.fixture
def used_precisions(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The precisions that encoders, classifiers and heads have computed in."""
    found = set()
    for model_class, name in ((Encoder, "encode"), (Classifier, "predict")):
        original = getattr(model_class, name)

        def spy(self: Any, *args: Any, original: Any = original, precision: str = "auto", **settings: Any) -> Any:
            found.add(precision)
            return original(self, *args, precision=precision, **settings)

        monkeypatch.setattr(model_class, name, spy)
    initialise = gradients.Gradients.__init__

    def record_precision(self: Any, *args: Any, bf16: bool = False) -> None:
        found.add("bf16" if bf16 else "fp32")
        initialise(self, *args, bf16=bf16)

    monkeypatch.setattr(gradients.Gradients, "__init__", record_precision)
    return found


# --- the precision used, and where it is recorded ---

PRECISION_CASES = [([], True, "bf16"), ([], False, "fp32"), (["--precision", "fp32"], True, "fp32")]


@pytest.mark.long
@pytest.mark.parametrize(("flags", "native", "expected"), PRECISION_CASES)
@pytest.mark.parametrize("verb", ["train", "finetune"])
def test_a_run_records_its_precision(
    verb: str, flags: list[str], native: bool, expected: str, used_precisions: set[str], workspace: Path, monkeypatch
) -> None:
    machine(monkeypatch, native=native)
    assert "bfloat16" not in run_ok([*VERBS[verb], *flags])
    run_info = read("new/run.json")
    assert run_info["precision"] == run_info["config"]["precision"] == run_info["inputs"]["precision"] == expected
    assert f'precision = "{flags[-1] if flags else "auto"}"' in Path("new/config.toml").read_text()
    assert used_precisions == {expected}
    if verb == "finetune":
        assert read("new/result.json")["config"]["precision"] == expected


@pytest.mark.long
def test_a_report_distinguishes_the_precisions_of_auto(workspace: Path, monkeypatch) -> None:
    machine(monkeypatch, native=True)
    run_ok(TRAINED)
    run_ok("report run new --output r.html".split())  # both with auto in config.toml
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in Path("r.md").read_text().splitlines()]
    assert ["run", "fp32"] in rows
    assert ["new", "bf16"] in rows


@pytest.mark.parametrize(
    ("flags", "native", "expected"),
    [
        ([], True, "fp32"),
        ([], False, "fp32"),
        (["--precision", "auto"], True, "fp32"),
        (["--precision", "bf16"], True, "bf16"),
    ],
)
def test_evaluation_uses_fp32_by_default(
    flags: list[str], native: bool, expected: str, used_precisions: set[str], workspace: Path, monkeypatch
) -> None:
    machine(monkeypatch, native=native)
    run_ok([*EVALUATE, *flags])
    assert read("e.json")["config"]["precision"] == expected
    assert used_precisions == {expected}


def test_geometry_uses_fp32(workspace: Path, monkeypatch) -> None:
    machine(monkeypatch, native=True)
    encode_tokens, bf16 = Encoder.encode_tokens, set()
    monkeypatch.setattr(
        Encoder, "encode_tokens", lambda self, *args, **how: bf16.add(how["bf16"]) or encode_tokens(self, *args, **how)
    )
    encode, _ = _open("tiny", {}, workspace / "kept", progress=False)
    encode(["a dog"])
    assert bf16 == {False}


@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS)
def test_emulated_bf16_always_warns(verb: str, workspace: Path, monkeypatch) -> None:
    machine(monkeypatch, native=False)
    assert run_ok([*VERBS[verb], "--precision", "bf16"]).count(WARNING) == 1
    files = {"train": "new/run.json", "finetune": "new/result.json", "evaluate": "e.json"}
    if verb in files:
        assert read(files[verb])["config"]["precision"] == "bf16"


# --- what a resumed run keeps ---

RESUMED = {
    "train": ([*STOPPED, "--resume"], "stopped", "stopped/run.json"),
    "finetune": ([*STOPPED_FINETUNE, "--resume"], "tuning", "tuning/run.json"),
}


@pytest.mark.long
@pytest.mark.parametrize("verb", RESUMED)
def test_a_run_resumes_in_fp32_where_bf16_is_native(
    verb: str, used_precisions: set[str], runs: Path, monkeypatch
) -> None:
    machine(monkeypatch, native=True)
    argv, _, file = RESUMED[verb]
    run_ok(argv)
    assert read(file)["config"]["precision"] == "fp32"
    assert used_precisions <= {"fp32"}


@pytest.mark.parametrize("verb", RESUMED)
def test_a_run_in_bf16_does_not_resume_where_it_is_emulated(verb: str, runs: Path, monkeypatch) -> None:
    machine(monkeypatch, native=False)
    argv, folder, file = RESUMED[verb]
    set_recorded_precision(folder, "bf16")
    assert_refused(argv, f"{folder}: this run {NO_NATIVE_BF16}", "or start again with --precision fp32")
    assert not Path(file).exists()


def test_a_dry_run_refuses_runs_that_cannot_resume(runs: Path, monkeypatch) -> None:
    machine(monkeypatch, native=False)
    set_recorded_precision("stopped", "bf16")
    assert_refused([*STOPPED, "--resume", "--dry-run"], f"stopped: this run {NO_NATIVE_BF16}")


@pytest.mark.parametrize("verb", RESUMED)
def test_a_damaged_record_is_named(verb: str, runs: Path) -> None:
    argv, folder, _ = RESUMED[verb]
    set_recorded_precision(folder, "fp8")
    assert_refused(argv, f"{folder}/inputs.json: is damaged: the precision is none of fp32, bf16")


@pytest.mark.long
@pytest.mark.parametrize("native", [True, False])
def test_a_run_that_started_emulated_resumes(native: bool, runs: Path, monkeypatch) -> None:
    machine(monkeypatch, native=native)
    set_recorded_precision("stopped", "bf16 emulated")
    assert run_ok([*STOPPED, "--resume"]).count(WARNING) == (not native)
    assert read("stopped/run.json")["precision"] == "bf16"


@pytest.mark.parametrize("requested", ["fp32", "bf16"])
def test_another_precision_counts_as_another_setting(requested: str, runs: Path) -> None:
    assert_refused([*STOPPED, "--resume", "--precision", requested], "stopped", "other settings (--precision)")


# --- encode ---


def record_precision(plan: Path, precision: str) -> None:
    """Change the plan of an unfinished run as if it had started in another precision."""
    content = read(str(plan))
    content["settings"]["precision"] = precision
    plan.write_text(json.dumps(content))


@pytest.fixture
def unfinished(workspace: Path, monkeypatch) -> Path:
    """The settings file of an interrupted run in fp32."""
    from nearfar.commands.encode import parts

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "store_part", killed)
        assert run_cli(ENCODE).status == 130
    file = Path("v.npy.partial/_nearfar/plan.json")
    assert read(str(file))["settings"]["precision"] == "fp32"
    return file


@pytest.mark.long
@pytest.mark.parametrize(
    ("record", "flags", "native", "bf16"),
    [
        ("fp32", [], True, False),
        ("fp32", ["--precision", "fp32"], True, False),
        ("bf16", [], True, True),
        ("bf16", ["--precision", "bf16"], True, True),
        ("bf16 emulated", [], False, True),
        ("bf16 emulated", ["--precision", "bf16"], True, True),
    ],
)
def test_encode_resumes_in_its_recorded_precision(
    record: str, flags: list[str], native: bool, bf16: bool, unfinished: Path, monkeypatch
) -> None:
    machine(monkeypatch, native=native)
    record_precision(unfinished, record)
    found = set()
    original = Encoder.encode_tokens

    def spy(self: Encoder, *args: Any, bf16: bool, **settings: Any) -> Any:
        found.add(bf16)
        return original(self, *args, bf16=bf16, **settings)

    monkeypatch.setattr(Encoder, "encode_tokens", spy)
    assert run_ok([*ENCODE, "--resume", *flags]).count(WARNING) == (bf16 and not native)
    assert found == {bf16}


@pytest.mark.long
@pytest.mark.parametrize(
    ("record", "flags", "message"),
    [
        ("bf16", [], f"v.npy.partial: this run {NO_NATIVE_BF16}"),
        ("bf16", ["--precision", "bf16"], f"v.npy.partial: this run {NO_NATIVE_BF16}"),
        ("bf16", ["--precision", "fp32"], "--precision was bf16, is fp32"),
        ("fp8", [], "is damaged (precision 'fp8' is unknown)"),
    ],
)
def test_encode_does_not_resume_in_another_precision(
    record: str, flags: list[str], message: str, unfinished: Path, monkeypatch
):
    machine(monkeypatch, native=False)
    record_precision(unfinished, record)
    assert_refused([*ENCODE, "--resume", *flags], message)


# --- errors ---


@pytest.mark.parametrize("verb", VERBS)
def test_an_invalid_environment_variable(verb: str, workspace: Path, monkeypatch) -> None:
    monkeypatch.setenv("NEARFAR_PRECISION", "fp8")
    assert_refused(VERBS[verb], "NEARFAR_PRECISION='fp8': must be auto, fp32 or bf16")
    assert not {"new", "v.npy", "l.tsv", "e.json"} & {path.name for path in Path().iterdir()}


@pytest.mark.parametrize("value", ["fp16", "BF16", ""])
@pytest.mark.parametrize("verb", VERBS)
def test_invalid_values(verb: str, value: str, workspace: Path) -> None:
    assert_refused([*VERBS[verb], "--precision", value], "--precision", "must be auto, fp32 or bf16")
