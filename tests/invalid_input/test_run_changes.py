"""Run folders: changed data, two processes at once, kills while a run starts, and missing permissions."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.disk import apply_umask, flush, folder_lock, folders, write_text, writing
from nearfar.types import NearfarError
from tests.encode_helpers import Killed
from tests.invalid_input.cli_runner import assert_refused, drop_repeated_flags, run_cli
from tests.invalid_input.conftest import FINETUNE, TRAIN
from tests.invalid_input.runs import STOPPED, STOPPED_FINETUNE
from tests.tiny import save_tiny

pytestmark = pytest.mark.long


def new_text(file: str, old: str, new: str) -> None:
    """Replace the first ``old`` in a file, writing a new file."""
    text = Path(file).read_text(encoding="utf-8")
    assert old in text
    Path(file).unlink()
    Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")


def other_weights(folder: str = "tiny") -> None:
    shutil.rmtree(folder)
    save_tiny(Path(folder), seed=1)


def other_vocabulary() -> None:
    new_text("tiny/tokenizer.json", '"dogs"', '"cats"')


CHANGES = {
    "a label": (lambda: new_text("nli.tsv", "entailment", "neutral"), "--data nli.tsv"),
    "a word": (lambda: new_text("nli.tsv", " dog", " cat"), "--data nli.tsv"),
    "a row less": (
        lambda: new_text("nli.tsv", Path("nli.tsv").read_text().splitlines()[-1] + "\n", ""),
        "--data nli.tsv",
    ),
    "a score": (lambda: new_text("pairs.tsv", "\n0.", "\n1."), "--evaluate-on pairs.tsv"),
    "weights": (other_weights, "--model tiny"),
    "tokenizer": (other_vocabulary, "--model tiny"),
}


@pytest.mark.parametrize(("change", "mention"), CHANGES.values(), ids=CHANGES)
def test_training_resumes_only_with_the_same_inputs(runs: Path, change, mention: str) -> None:
    before = {file.name: file.read_bytes() for file in Path("stopped").iterdir() if file.is_file()}
    change()
    mention = f"stopped: {mention} changed since this run started"
    assert_refused([*STOPPED, "--resume"], mention, "choose another --output, or remove stopped")
    assert {file.name: file.read_bytes() for file in Path("stopped").iterdir() if file.is_file()} == before


def test_rows_beyond_the_limit_may_change(runs: Path) -> None:
    limited = [*STOPPED[:-1], "limited", "--limit", "60"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearfar.runs.folder.RunFolder.finish", _stop)
        with pytest.raises(Killed):
            run_cli(limited)
    Path("limited/run.json").unlink()
    rows = Path("nli.tsv").read_text(encoding="utf-8").splitlines()
    Path("nli.tsv").unlink()
    Path("nli.tsv").write_text("\n".join([*rows[:-1], "a dog\ta cat\tneutral"]) + "\n", encoding="utf-8")
    assert run_cli([*limited, "--resume"]).status == 0


def _stop(_: object) -> None:
    raise Killed


def test_the_data_of_a_second_objective_counts(runs: Path) -> None:
    Path("second.toml").write_text('method = "simcse-unsup"\ndata = ["texts.txt"]\n', encoding="utf-8")
    argv = [*STOPPED[:-1], "mixed", "--second", "second.toml"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nearfar.runs.folder.RunFolder.finish", _stop)
        with pytest.raises(Killed):
            run_cli(argv)
    Path("mixed/run.json").unlink()
    new_text("texts.txt", "\n", " dog\n")
    assert_refused([*argv, "--resume"], "the data of --second second.toml changed since this run started")


def change_labelled() -> None:
    new_text("labelled.tsv", "\tcold\n", "\twarm\n")


@pytest.mark.parametrize(
    ("argv", "change", "mention"),
    [
        ([*STOPPED_FINETUNE, "--resume"], change_labelled, "labelled.tsv (the training rows) changed"),
        ([*STOPPED_FINETUNE, "--resume"], other_weights, "--model tiny changed"),
    ],
    ids=["finetune, rows", "finetune, weights"],
)
def test_fine_tuning_resumes_only_with_the_same_inputs(runs: Path, argv: list[str], change, mention: str) -> None:
    change()
    assert_refused(argv, mention, "choose another --output, or remove")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([*TRAIN, "--output", "run", "--resume"], "run: this run is already finished; nothing to do."),
        ([*FINETUNE, "--output", "classifier", "--resume"], "classifier: this run is already finished; nothing to do."),
    ],
    ids=["train", "finetune"],
)
def test_resuming_a_finished_run_reports_it(runs: Path, argv: list[str], expected: str) -> None:
    folder = Path(argv[argv.index("--output") + 1])
    names = {"metrics.jsonl", "run.json", "result.json", "model.safetensors"}
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.name in names}
    assert before
    result = run_cli(argv)
    assert result.status == 0, result.err
    assert expected in result.out
    assert {file: file.read_bytes() for file in before} == before


# --- two processes at once ---

HOLD_LOCK_SCRIPT = "import sys; from pathlib import Path; from nearfar.disk import folder_lock\n"
HOLD_LOCK_SCRIPT += "with folder_lock(Path(sys.argv[1])):\n    print('in', flush=True)\n    sys.stdin.read()\n"


@pytest.mark.parametrize(
    ("folder", "argv"),
    [
        ("stopped", [*STOPPED, "--resume"]),
        ("stopped", STOPPED),
        ("tuning", [*STOPPED_FINETUNE, "--resume"]),
        ("v.npy.partial", "encode tiny --input texts.txt --output v.npy".split()),
        ("new", [*TRAIN, "--output", "new"]),
    ],
    ids=["train", "train without --resume", "finetune", "encode", "a new run"],
)
def test_a_folder_has_one_process_at_a_time(runs: Path, folder: str, argv: list[str]) -> None:
    before = {file: file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}
    with folder_lock(Path(folder)):
        name = "v.npy" if folder.startswith("v.") else folder
        assert_refused(argv, f"{name}: another process is using it now; wait until it ends")
    assert {file: file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()} == before


def test_a_process_that_was_killed_holds_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK_SCRIPT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        with pytest.raises(NearfarError, match="another process is using it now"), folder_lock(tmp_path):
            pass
        process.kill()
        process.wait()
    with folder_lock(tmp_path):
        pass
    assert tmp_path.is_dir()


def test_a_lock_leaves_nothing(tmp_path: Path) -> None:
    with folder_lock(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run").is_dir()
    assert not list(tmp_path.iterdir())
    with folder_lock(tmp_path / "new" / "run"):
        (tmp_path / "new" / "run" / "file").touch()
    assert (tmp_path / "new" / "run" / "file").exists()


class Msvcrt:
    """Emulates the locks of Windows with flock."""

    LK_NBLCK = 2

    @staticmethod
    def locking(descriptor: int, mode: int, size: int) -> None:
        import fcntl

        assert (mode, size) == (2, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_without_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_fcntl", None)
    monkeypatch.setattr(folders, "_msvcrt", Msvcrt)
    folder = tmp_path / "run"
    with folder_lock(folder):
        assert [file.name for file in folder.iterdir()] == [".lock"]
        with pytest.raises(NearfarError, match="run: another process is using it now"), folder_lock(folder):
            pass
        (folder / "file").touch()
    assert [file.name for file in folder.iterdir()] == ["file"]
    monkeypatch.setattr(folders, "_msvcrt", None)
    with folder_lock(folder), folder_lock(folder):  # a system without locks
        pass


def test_the_package_needs_no_fcntl() -> None:
    code = "import sys; sys.modules['fcntl'] = None\n"
    code += "from nearfar.commands.train import command\n"
    code += "from nearfar.commands.finetune import command\n"
    code += "from nearfar.commands.encode import command\n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_folders_that_cannot_be_opened_are_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    real = os.open

    def opening(path: Path, flags: int, mode: int = 0o777) -> int:
        opened.append(Path(path))
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, mode)

    monkeypatch.setattr(writing, "_CAN_OPEN_FOLDERS", False)
    monkeypatch.setattr(os, "open", opening)
    write_text(tmp_path / "file", "text")
    flush(tmp_path)
    assert (tmp_path / "file").read_text() == "text"
    assert set(opened) == {tmp_path / "file", tmp_path / "file.new"}


# --- killed while the run folder was created ---

PARTIAL_RUN_FOLDERS = {
    "an empty folder": (),
    "inputs half written": ("inputs.json.new",),
    "inputs alone": ("inputs.json",),
    "settings half written": ("inputs.json", "config.toml.new"),
    "the second objective's settings": ("inputs.json", "second.toml", "config.toml.new"),
}


@pytest.mark.parametrize("resume", [False, True], ids=["new", "resume"])
@pytest.mark.parametrize("leftover", PARTIAL_RUN_FOLDERS)
def test_leftover_files_of_a_killed_run_have_no_effect(runs: Path, leftover: str, resume: bool) -> None:
    Path("half").mkdir()
    for name in PARTIAL_RUN_FOLDERS[leftover]:
        Path("half", name).write_text('{"--model', encoding="utf-8")
    result = run_cli(drop_repeated_flags([*TRAIN, "--max-steps", "1", "--output", "half", *["--resume"] * resume]))
    assert result.status == 0, result.err
    assert Path("half/model").is_dir()
    assert not list(Path("half").glob("*.new"))


@pytest.mark.parametrize("argv", [TRAIN, FINETUNE], ids=["train", "finetune"])
def test_a_folder_with_other_files_is_refused(runs: Path, argv: list[str]) -> None:
    Path("half").mkdir()
    Path("half/config.toml.new").touch()
    Path("half/thesis.txt").touch()
    assert_refused([*argv, "--output", "half"], "half: already exists and holds no run")


def test_nothing_to_resume(runs: Path) -> None:
    for argv in ([*TRAIN, "--output", "none"], [*FINETUNE, "--output", "none"]):
        assert_refused([*argv, "--resume"], "none: there is no ", " to resume")
        assert not Path("none").exists()


# --- permissions ---


def modes(folder: Path) -> dict[str, int]:
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_output_files_have_the_permissions_of_the_umask(runs: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert run_cli([*STOPPED, "--resume"]).status == 0
        assert run_cli([*STOPPED_FINETUNE, "--resume"]).status == 0
        assert run_cli("encode tiny --input texts.txt --output vectors.parquet".split()).status == 0
        assert run_cli("evaluate tiny --tasks pairs.tsv --output scores.json".split()).status == 0
    finally:
        os.umask(before)
    found = modes(Path("stopped/model")) | modes(Path("tuning/model"))
    found |= {file: stat.S_IMODE(Path(file).stat().st_mode) for file in ("vectors.parquet", "scores.json", "scores.md")}
    found |= {file: stat.S_IMODE(Path(file).stat().st_mode) for file in ("stopped/run.json", "stopped/metrics.jsonl")}
    assert "stopped/model/model.safetensors" in found
    for name, mode in found.items():
        assert mode == (0o777 if Path(name).is_dir() else 0o666) & ~umask, name


def test_a_checkpoint_has_the_permissions_of_the_umask(runs: Path) -> None:
    before = os.umask(0)
    os.umask(before)
    found = modes(Path("stopped/checkpoint")) | {"best": stat.S_IMODE(Path("stopped/best.safetensors").stat().st_mode)}
    assert len(found) == 5
    for name, mode in found.items():
        assert mode == (0o777 if name.endswith("checkpoint") else 0o666) & ~before, name


def test_other_permission_bits_and_links_are_kept(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").chmod(0o600)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2700)
    (folder / "link").symlink_to(tmp_path / "outside")
    before = os.umask(0o027)
    try:
        apply_umask(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o2750
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o600


UNREADABLE = {
    "config.toml": ([*STOPPED, "--resume"], "stopped/config.toml"),
    "inputs.json": ([*STOPPED, "--resume"], "stopped/inputs.json"),
    "progress.json": ([*STOPPED, "--resume"], "stopped/checkpoint/progress.json"),
    "metrics.jsonl": ([*STOPPED, "--resume"], "stopped/metrics.jsonl"),
    "data": ([*STOPPED, "--resume"], "nli.tsv"),
    "dev pairs": ([*STOPPED, "--resume"], "pairs.tsv"),
    "model": ([*STOPPED, "--resume"], "tiny/tokenizer.json"),
    "run.json": ("evaluate run --tasks pairs.tsv".split(), "run/run.json"),
    "run.json of a finished run": ([*TRAIN, "--output", "run", "--resume"], "run/run.json"),
    "result": ("compare result.json result.json".split(), "result.json"),
    "result of a report": ("report result.json --output r.html".split(), "result.json"),
}


@pytest.mark.parametrize("row", UNREADABLE)
def test_files_that_cannot_be_read_are_named(runs: Path, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is simulated, because the superuser may read everything."""
    argv, file = UNREADABLE[row]
    real = Path.open

    def opening(self: Path, *args, **settings):
        if self == Path(file):
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *args, **settings)

    def reading(self: Path, **settings: str) -> str:
        with opening(self, **settings) as stream:
            return stream.read()

    monkeypatch.setattr(Path, "open", opening)
    monkeypatch.setattr(Path, "read_text", reading)
    output = assert_refused(argv, file, "Permission denied")
    assert "damaged" not in output


def test_a_folder_that_cannot_be_created(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert_refused([*TRAIN, "--output", "closed/run"], "closed/run: cannot be written (Permission denied)")


def test_a_folder_that_cannot_be_listed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat

    def refuse_stat(self: Path, **settings: bool) -> os.stat_result:
        if self.parent.name == "run":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **settings)

    monkeypatch.setattr(Path, "stat", refuse_stat)
    for argv in (
        [*TRAIN, "--output", "run"],
        "evaluate run --tasks pairs.tsv".split(),
        "encode run --input texts.txt --output v.npy".split(),
        "report run --output r.html".split(),
    ):
        assert_refused(argv, "run/", "Permission denied")
