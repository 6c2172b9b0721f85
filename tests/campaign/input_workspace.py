"""The valid files that cases of the part inputs change, made once by small runs of the commands."""

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from tests.campaign.server import Server
from tests.invalid_input.runs import FINETUNE, STOPPED, STOPPED_FINETUNE, TRAIN
from tests.invalid_input.tables import ROWS, rows_of, write_rows

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet", "tsv.gz", "csv.gz", "jsonl.gz")
BEIR = {
    "corpus.jsonl": [
        {"_id": f"d{number}", "title": f"title {number}" if number % 2 else "", "text": f"the dog runs {number}"}
        for number in range(12)
    ],
    "queries.jsonl": [{"_id": f"q{number}", "text": f"who runs {number}"} for number in range(6)],
}


def workspace(server: Server, shared: Path) -> Path:
    """The folder of the valid files; the first case that needs it makes it."""
    folder = shared / "valid"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(prefix="making-", dir=shared))
        done = server.function("tests.campaign.doors:prepare", {"folder": str(fresh.resolve())}, cwd=fresh)
        if done.status != 0:
            raise RuntimeError(f"The valid files could not be made: {done.last_line}")
        try:
            fresh.rename(folder)
        except OSError:  # another thread was faster
            shutil.rmtree(fresh)
    return folder.resolve()


def build(folder: Path) -> None:
    """Write all valid files to ``folder``; runs in a fork."""
    from nearfar.cli import main
    from nearfar.training.display import MetricsFile
    from tests.campaign import input_unfinished
    from tests.evaluation.report.cases import geometry
    from tests.invalid_input.model_folders import save_model_variants
    from tests.tiny import make_workspace, sentences, write_colours

    os.chdir(folder)
    os.environ.pop("NEARFAR_DATA", None)
    os.environ["NEARFAR_PRECISION"] = "fp32"
    make_workspace(folder)
    write_tables(folder / "tables")
    save_model_variants(folder / "models")
    write_colours(folder / "labelled.tsv")
    texts = sentences(60, longest=5)
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    write_rows(folder / "texts.parquet", [{"text": text, "id": number} for number, text in enumerate(texts)])
    write_rows(folder / "anchors.tsv", rows_of("pairs"))

    def run(words: str) -> None:
        if main(words.split()) != 0:
            raise RuntimeError(f"nearfar {words} failed.")

    run(" ".join([*TRAIN, "--output run"]))
    run(" ".join([*FINETUNE, "--output classifier"]))
    run("evaluate tiny --tasks pairs.tsv --labelled labelled.tsv --retrieval tables/beir --output scores.json")
    run("evaluate tiny --pooling cls --tasks pairs.tsv --output other.json")
    run("compare scores.json other.json --resamples 9 --output two.json")
    run("compare scores.json other.json scores.json --resamples 9 --output three.json")
    shutil.copy("classifier/result.json", "tuned.json")
    shutil.copy("run/run.json", "record.json")
    (folder / "space.json").write_text(json.dumps(geometry("base")))
    run("search dog --model tiny --input texts.txt --index index --top 3")
    run("encode tiny --input texts.parquet --column text --output vectors.npy")
    (folder / "shards").mkdir()
    for number in range(3):
        write_rows(folder / f"shards/{number}.parquet", [{"text": f"{text} {number}"} for text in texts[:20]])
    run("encode tiny --input shards/*.parquet --column text --output encoded")
    on_step = MetricsFile.on_step
    for words in (STOPPED, STOPPED_FINETUNE):
        MetricsFile.on_step = _stop_at_step(on_step)  # type: ignore[method-assign]
        with contextlib.suppress(_StoppedError):
            main(words)
        MetricsFile.on_step = on_step  # type: ignore[method-assign]
    (folder / input_unfinished.FOLDER).mkdir()
    os.chdir(folder / input_unfinished.FOLDER)
    input_unfinished.build(folder / input_unfinished.FOLDER)


class _StoppedError(BaseException):
    """Ends a run as if it were killed."""


def _stop_at_step(on_step):  # type: ignore[no-untyped-def]
    def stop(self, report) -> None:  # type: ignore[no-untyped-def]
        on_step(self, report)
        if report.step == 3:
            raise _StoppedError

    return stop


def write_tables(folder: Path) -> None:
    """Rows of each kind in each format, texts, and a folder in BEIR's layout."""
    import gzip

    folder.mkdir()
    for kind in ROWS:
        for extension in FORMATS:
            name = "jsonl" if extension == "json" else extension
            write_rows(folder / f"{kind}.{name}", rows_of(kind))
            if extension == "json":
                shutil.copy(folder / f"{kind}.jsonl", folder / f"{kind}.json")
    text = "".join(f"{row['text']}\n" for row in rows_of("sentences"))
    (folder / "texts.txt").write_text(text)
    (folder / "texts.txt.gz").write_bytes(gzip.compress(text.encode(), 1))
    (folder / "beir/qrels").mkdir(parents=True)
    for name, records in BEIR.items():
        (folder / "beir" / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    judged = "".join(f"q{number % 6}\td{number}\t{number % 3}\n" for number in range(12))
    (folder / "beir/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
