"""Texts of any source -> one file of embeddings: the join of parts, which are encoded in one or several processes."""

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from nearfar.commands.encode.corpus import InputFile
from nearfar.commands.encode.job import locate_model, open_planned
from nearfar.commands.encode.parts import OnTexts, Parts, Piece, pieces_of, ranges_file
from nearfar.commands.encode.plan import Plan, read_plan, work_of
from nearfar.commands.encode.run import EncodeResult, Run, warn_of_truncated
from nearfar.commands.encode.vectors import OpenEncoder
from nearfar.config.encode import EncodeConfig
from nearfar.data.lines import (
    Block,
    SourceChangedError,
    SourceSummary,
    read_texts,
    summarise_source,
    verify_unchanged,
)
from nearfar.disk import (
    FolderBusyError,
    check_output_path,
    folder_lock,
    refuse_existing,
    refuse_overwriting_inputs,
    remove,
)
from nearfar.disk.places import OWN, LocalFolder
from nearfar.disk.work import PLAN
from nearfar.encoder.precision import check_computing
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError


class FileRun(Run):
    """A run that writes one file. Its texts are read twice: to count and fingerprint them, and to encode them."""

    way_out = "remove the folder to start again"
    place: LocalFolder

    def __init__(self, model: str, config: EncodeConfig, block: int) -> None:
        place = LocalFolder(f"{config.output}.partial")
        super().__init__(model, config, place, block, computes_here=config.processes == 1)
        self.output = Path(config.output)

    @cached_property
    def summary(self) -> SourceSummary:
        """Number and fingerprint of the texts, all of which are read."""
        return summarise_source(self._read())

    def texts(self) -> Iterator[str]:
        """The texts; after the last one it is an error if they have changed."""
        return verify_unchanged(self._read(), self.summary, self.config.input)

    def _read(self) -> Iterator[str]:
        return read_texts(self.config.input, self.config.column)

    def division(self) -> dict[str, Any]:
        """A part is a block."""
        return {"shard_rows": self.block, "block": self.block}

    def read_input(self) -> tuple[tuple[InputFile, ...], str]:
        """The source as one file, without kept columns."""
        return (InputFile(self.config.input, self.summary.texts, 0, self.summary.digest),), ""

    def compare_input(self, plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """By the fingerprint and the number of the texts."""
        files, _ = self.read_input()
        changed = [] if plan.files[0].footer == files[0].footer else ["the texts of --input changed"]
        if plan.rows != files[0].rows:
            changed.append(f"the number of texts was {plan.rows:,}, is {files[0].rows:,}")
        return changed, files

    def encode(self, *, progress: bool) -> EncodeResult:
        """Encode the texts into parts, and join them."""
        config, output = self.config, self.output
        self._check_output()
        check_computing(config.device, config.precision)
        if self.summary.empty:
            raise NearfarError(f"{config.input}: holds no texts.")
        with folder_lock(self.place.shared, what=output, remove_if_empty=True):
            before = read_plan(self.place)
            if before is None:
                self.remove()
            elif not config.resume:
                done = Parts(self.place, before)
                raise NearfarError(
                    f"{config.output}.partial: holds {done.rows_in(done.records()):,} of {before.rows:,} texts of an "
                    "interrupted run. Continue it with --resume, or remove the folder."
                )
            parts = self.agree()
            done_before = parts.all_finished()
            missing = [part for part in range(parts.plan.parts) if part not in done_before]
            if missing and not config.overwrite:
                refuse_existing([output], overwrite=False)
            self.check_disk_space(parts, missing, joined=output)
            try:
                if missing:
                    self._encode_missing(parts, done_before, progress=progress)
                parts.join(output, self.texts() if config.with_texts else None)
            except SourceChangedError:
                self.remove()
                raise
            records = parts.records().values()
            self.remove()
        warn_of_truncated(records, parts.plan)
        return EncodeResult(parts.plan.rows, parts.plan.dim, parts.plan.parts, complete=True)

    def _check_output(self) -> None:
        """Refuse an output that cannot be written, or is finished."""
        config, output = self.config, self.output
        if output.suffix not in (".npy", ".parquet"):
            raise NearfarError(
                f"--output {output}: must end in .npy or .parquet. For a folder of parts, give --shard-rows."
            )
        check_output_path(output)
        files = [output, *([ranges_file(output)] if config.quantize == "int8" else [])]
        for file in files:
            refuse_overwriting_inputs(file, [config.input, config.calibrate])
        resumes = config.resume and work_of(self.place).exists
        if config.resume and not resumes and not config.overwrite and os.path.lexists(output):
            if self.place.shared.is_dir():  # what a run left that was killed just before its end
                with suppress(FolderBusyError), folder_lock(self.place.shared, what=output, remove_if_empty=True):
                    self.remove()
            raise NearfarError(
                f"{output}: is finished, there is nothing to resume. To encode again, give --overwrite instead of "
                "--resume."
            )
        if not resumes:  # else they may be its own
            refuse_existing(files, overwrite=config.overwrite)
        if config.with_texts and output.suffix != ".parquet":
            raise NearfarError(f"--with-texts: --output {output} can only hold embeddings; choose a .parquet file.")

    def remove(self) -> None:
        """Remove the parts; the plan first, so that what is left later is nothing to continue."""
        if self.place.shared.is_dir():
            self.place.remove(PLAN)
            for entry in list(self.place.shared.iterdir()):
                if entry.name == OWN or entry.suffix == ".parquet":
                    remove(entry)

    def _encode_missing(self, parts: Parts, done: Collection[int], *, progress: bool) -> None:
        """Encode the texts of the parts that are not done; errors say how to continue."""
        from nearfar.encoder.token_batches import NotFiniteError

        plan = parts.plan
        processes = min(self.config.processes, plan.parts - len(done))
        opened = open_planned(self.model, self.config.device, parts, load_on="cpu" if processes > 1 else None)
        with progress_bar("encoding", plan.rows, done=parts.rows_in(done), shown=progress) as advance:
            missing = parts.missing_blocks(self.texts(), done)
            how = {name: plan.settings[name] for name in ("normalize", "dimensions")}
            if processes == 1:
                pieces = opened.pieces(missing, **how, on_texts=advance)
            else:
                pieces = self._pieces_of_processes(opened, missing, how, processes, advance)
            try:
                with closing(pieces):
                    parts.store_stream(pieces, self.place.shared)
            except (SourceChangedError, NotFiniteError):
                raise  # another call would fail too
            except NearfarError as error:
                raise NearfarError(
                    f"{error} {parts.rows_in(parts.records()):,} of {plan.rows:,} texts are done; continue with "
                    "--resume."
                ) from error

    def _pieces_of_processes(
        self, opened: OpenEncoder, texts: Iterator[Block], how: dict[str, Any], processes: int, on_texts: OnTexts
    ) -> Generator[Piece]:
        """The vectors of blocks of texts, computed by several processes; this one tokenises."""
        from nearfar.encoder import stream

        encoder = opened.encoder
        prompt_length = encoder.prompt_length(encoder.resolve_prompt())
        folder = locate_model(self.model)[0]
        worker = stream.WorkerConfig(
            folder, encoder.pooling, encoder.max_length, prompt_length=prompt_length, bf16=opened.bf16, **how
        )
        tokens = stream.tokenize_blocks(encoder, texts)
        devices = stream.assign_devices(self.config.device, processes)
        return pieces_of(stream.encode_in_processes(tokens, worker, devices, on_batch=on_texts), on_texts)
