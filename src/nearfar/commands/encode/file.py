"""One file of embeddings: the join of its parts, which are encoded by this process or by workers."""

from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.parts import Parts, Plan, ranges_file, read_plan
from nearfar.commands.encode.run import (
    EncodeResult,
    agreed_parts,
    computes_here,
    jobs_of_parts,
    open_planned,
    run_jobs_of_parts,
)
from nearfar.config.encoding import EncodeConfig
from nearfar.data import lines
from nearfar.data.paths import as_path
from nearfar.disk import remove
from nearfar.disk.checks import check_output_path, refuse_existing, refuse_overwriting_inputs
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import OWN, LocalFolder
from nearfar.disk.work import PLAN
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError


def remove_partial(place: LocalFolder) -> None:
    """Remove the parts of a file; the plan goes first, so that what is left by an interruption is not continued."""
    place.remove(PLAN)
    for path in (*place.shared.glob("part-*"), place.shared / OWN):
        remove(path)


def encode_file(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Write one file: encode the texts into parts, each of a block, and join them.

    The texts are read twice: to count and fingerprint them, and to encode them.
    """
    output, place = Path(config.output), LocalFolder(f"{config.output}.partial")
    files = [output, *([ranges_file(output)] if config.quantize == "int8" else [])]
    if output.suffix not in (".npy", ".parquet"):
        raise NearfarError(
            f"--output {output}: must end in .npy or .parquet. For a folder of parts, give --shard-rows."
        )
    if config.with_texts and output.suffix != ".parquet":
        raise NearfarError(f"--with-texts: --output {output} can only hold embeddings; choose a .parquet file.")
    check_output_path(output)
    for file in files:
        refuse_overwriting_inputs(file, [config.input, config.calibrate])
    with folder_lock(place.shared, what=output, remove_if_empty=True):
        if read_plan(place) is None:
            remove_partial(place)  # what a run left that was killed just before its end
            refuse_existing(files, overwrite=config.overwrite)
        elif not config.resume:
            raise NearfarError(
                f"{place.address}: holds an interrupted run. Continue it with --resume, or remove the folder."
            )
        summary = lines.summarise_source(lines.read_texts(config.input, config.column))
        if summary.empty:
            raise NearfarError(f"{config.input}: holds no texts.")
        source = InputFile(config.input, summary.texts, 0, summary.digest)

        def changes(plan: Plan) -> list[str]:
            return [] if plan.files[0].footer == source.footer else ["the texts of --input changed"]

        def texts() -> Iterator[str]:
            return lines.verify_unchanged(lines.read_texts(config.input, config.column), summary, config.input)

        parts = agreed_parts(model, config, block, read_input=lambda: [source], input_changes=changes)
        done = parts.records(whole=True)
        try:
            if len(done) < parts.plan.parts:
                refuse_existing([output], overwrite=config.overwrite)
                _encode_missing(model, config, parts, done, texts(), progress=progress)
            parts.join(output, texts() if config.with_texts else None)
        except lines.SourceChangedError:
            remove_partial(place)
            raise
        parts.warn_of_truncated()
        remove_partial(place)
    return EncodeResult(parts.plan.rows, parts.plan.dim, parts.plan.parts, complete=True)


def _encode_missing(
    model: str, config: EncodeConfig, parts: Parts, done: Collection[int], texts: Iterator[str], *, progress: bool
) -> None:
    """Encode the texts of the parts that are not done, here or in workers, each of which reads the input for itself.

    Errors say how to continue.
    """
    plan = parts.plan
    if not computes_here(config):
        jobs = jobs_of_parts(parts, config, model, input=str(as_path(config.input).absolute())).items()
        run_jobs_of_parts(parts, {job: part for job, part in jobs if part not in done}, config, progress=progress)
        deque(texts, maxlen=0)  # raises if they changed meanwhile
        return
    opened = open_planned(model, config.device, parts)
    how: dict[str, Any] = {"normalize": plan.settings.normalize, "dimensions": plan.settings.dimensions}
    with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:
        try:
            parts.complete(texts, done, partial(opened.pieces, **how, on_texts=advance))
        except (lines.SourceChangedError, NotFiniteError):
            raise  # another call would fail too
        except NearfarError as error:
            rows = parts.rows_in(parts.records())
            raise NearfarError(f"{error} {rows:,} of {plan.rows:,} texts are done; continue with --resume.") from error
