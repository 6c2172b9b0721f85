"""One file of embeddings: the join of its parts, which are encoded in one or several processes."""

from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Any

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.parts import Parts, Piece, Plan, ranges_file, read_plan
from nearfar.commands.encode.run import EncodeResult, agreed_parts, open_planned
from nearfar.commands.encode.vectors import pieces_of
from nearfar.config.encoding import EncodeConfig
from nearfar.data import lines
from nearfar.disk import remove
from nearfar.disk.checks import check_output_path, refuse_existing, refuse_overwriting_inputs
from nearfar.disk.folders import folder_lock
from nearfar.disk.places import OWN, LocalFolder
from nearfar.disk.work import PLAN
from nearfar.encoder.token_batches import NotFiniteError
from nearfar.encoder.weights import locate
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
    """Encode the texts of the parts that are not done, here or in processes whose texts this one tokenises.

    Errors say how to continue.
    """
    from nearfar.encoder import stream

    plan = parts.plan
    processes = min(config.processes, plan.parts - len(done))
    opened = open_planned(model, config.device, parts)
    encoder = opened.of_role(None).encoder
    how: dict[str, Any] = {"normalize": plan.settings.normalize, "dimensions": plan.settings.dimensions}
    with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:

        def encode_blocks(blocks: Iterator[lines.Block]) -> Generator[Piece]:
            if processes == 1:
                return opened.pieces(blocks, **how, on_texts=advance)
            opening = {"pooling": encoder.pooling, "max_length": encoder.max_length}
            worker = stream.WorkerConfig(encoder.source or locate(model), opening, {"bf16": opened.bf16, **how})
            tokens = stream.tokenize_blocks(encoder, blocks)
            devices = stream.assign_devices(config.device, processes)
            return pieces_of(stream.encode_in_processes(tokens, worker, devices, on_batch=advance), advance)

        try:
            parts.complete(texts, done, encode_blocks)
        except (lines.SourceChangedError, NotFiniteError):
            raise  # another call would fail too
        except NearfarError as error:
            rows = parts.rows_in(parts.records())
            raise NearfarError(f"{error} {rows:,} of {plan.rows:,} texts are done; continue with --resume.") from error
