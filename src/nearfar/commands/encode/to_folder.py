"""A corpus of Parquet files -> a folder of parts, each by a job of its own, in this process, in workers or on Ray."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearfar.commands.encode.corpus import InputFile, list_files, read_corpus, same_files
from nearfar.commands.encode.job import JOB
from nearfar.commands.encode.parts import Parts, file_name, part_name
from nearfar.commands.encode.plan import MANIFEST, RANGES, Plan, read_plan, work_of
from nearfar.commands.encode.run import EncodeResult, Run, warn_of_truncated
from nearfar.config.encode import DEFAULT_SHARD_ROWS, EncodeConfig
from nearfar.disk import check_writable_folder
from nearfar.disk.places import OWN, WRITING, open_place
from nearfar.disk.work import PLAN
from nearfar.jobs import Job, JobEvent, JobsFailedError, ScratchStore, run_jobs, shard_of
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

_SHOWN = 10
"""Number of failed parts that an error names."""


class FolderRun(Run):
    """A run that writes a folder of parts. Many processes can take part in it."""

    way_out = "choose another --output"

    def __init__(self, model: str, config: EncodeConfig, block: int) -> None:
        here = config.engine == "local" and config.workers == 1 and not config.threads
        super().__init__(model, config, open_place(config.output), block, computes_here=here)
        self.shard_rows = config.shard_rows or DEFAULT_SHARD_ROWS

    def division(self) -> dict[str, Any]:
        """Parts of ``--shard-rows`` rows, with the columns of ``--keep``."""
        return {"shard_rows": self.shard_rows, "keep": list(self.config.keep)}

    def read_input(self) -> tuple[tuple[InputFile, ...], str]:
        """The Parquet files of ``--input``, by their footers."""
        corpus = read_corpus(self.config.input, str(self.config.column), self.config.keep)
        own = f"{self.place.address.rstrip('/')}/"
        if inside := [file.address for file in corpus.files if file.address.startswith(own)]:
            raise NearfarError(
                f"--output {self.place.address}: has the input {inside[0]} in it; choose another folder."
            )
        if corpus.largest_group > 2 * self.shard_rows:
            warnings.warn(
                f"--shard-rows {self.shard_rows:,}: the input has row groups of up to {corpus.largest_group:,} rows, "
                "and each shard reads whole row groups. Give more rows.",
                stacklevel=2,
            )
        return corpus.files, corpus.kept.serialize().to_pybytes().hex() if corpus.kept.names else ""

    def compare_input(self, plan: Plan) -> tuple[list[str], Sequence[InputFile]]:
        """By names and sizes of the files; a worker compares the footer of a file when it opens it."""
        listed = list_files(self.config.input)
        if difference := same_files(plan.files, listed):
            return [difference], plan.files
        return [], [replace(file, address=address) for file, (address, _) in zip(plan.files, listed, strict=True)]

    def encode(self, *, progress: bool) -> EncodeResult:
        """Write the parts of this call, each by a job; and the manifest, if all parts are there."""
        config = self.config
        self._check_output()
        parts = self.agree(anew=config.overwrite)
        plan = parts.plan
        local = {"output": self.place.address, "model": self.model, "device": config.device}
        uses = "gpu" if config.engine == "ray" and str(config.device).startswith("cuda") else None
        jobs = [Job(JOB, {"part": part, "plan": plan.digest}, local=local, uses=uses) for part in range(plan.parts)]
        jobs = shard_of(jobs, config.shard_numbers)
        own = [_part_of(job) for job in jobs]
        recorded = set(work_of(self.place).recorded())
        self.check_disk_space(parts, [part for part in own if part_name(part) not in recorded])
        self._run_jobs(parts, jobs, progress=progress)
        records = parts.records()
        complete = len(records) == plan.parts
        if complete:
            try:
                parts.write_manifest(records)
            except NearfarError:
                if MANIFEST not in self.place.names():  # else another process was faster, and removed the file aside
                    raise
            self.place.clean(MANIFEST)
            warn_of_truncated(records.values(), plan)
        return EncodeResult(parts.rows_in(own), plan.dim, len(own), complete)

    def _check_output(self) -> None:
        """Refuse an output that is a file, cannot be written, or holds other files or a run that is not continued."""
        config, output, path = self.config, self.config.output, self.place.shared
        if path is not None:
            if path.exists() and not path.is_dir():
                raise NearfarError(f"--output {output}: is a file; name a folder for the parts.")
            check_writable_folder(path, output)
        before = read_plan(self.place)
        if before is not None and not (config.overwrite or config.resume or config.shard):
            raise NearfarError(
                f"--output {output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
                "--overwrite, or choose another folder."
            )
        others = [name for name in self.place.names() if name != OWN] if before is None else []
        if others and read_plan(self.place) is None:  # else another process has just started the run
            raise NearfarError(
                f"--output {output}: holds other files, such as {others[0]}; choose an empty or a new folder."
            )

    def remove(self) -> None:
        """Remove what a run wrote; the plan last, so that an interruption leaves a run, and not other files."""
        names = [name for name in self.place.names() if name == MANIFEST or (name.startswith("part-") and "." in name)]
        work_of(self.place).forget_parts()
        for name in (*names, RANGES, PLAN):
            self.place.remove(name)

    def _run_jobs(self, parts: Parts, jobs: list[Job], *, progress: bool) -> None:
        """Run the jobs; failures are one error that names the parts."""
        from nearfar.runtime.threads import available_cores, cpu_quota

        config, shared = self.config, self.place.shared
        cores = min(available_cores(), cpu_quota() or available_cores())
        here = "inline" if self.computes_here else "process"
        try:
            with progress_bar("encoding", parts.rows_in(map(_part_of, jobs)), shown=progress) as advance:

                def on_event(event: JobEvent) -> None:
                    if event.kind == "finished":
                        advance(parts.rows_in([_part_of(event.job)]))

                run_jobs(
                    jobs,
                    ScratchStore(shared / WRITING if shared else None),
                    engine="ray" if config.engine == "ray" else here,
                    workers=config.workers,
                    threads=config.threads or (1 if config.ray_address else max(1, cores // config.workers)),
                    ray_address=config.ray_address,
                    on_event=on_event,
                )
        except JobsFailedError as error:
            lines = [f"{len(error.failures):,} of {len(jobs):,} parts failed:"]
            lines += [f"  {file_name(_part_of(failed.job))}: {failed.message}" for failed in error.failures[:_SHOWN]]
            lines += [f"  and {len(error.failures) - _SHOWN:,} more"] if len(error.failures) > _SHOWN else []
            raise NearfarError("\n".join([*lines, "The other parts are kept; continue with --resume."])) from error


def _part_of(job: Job) -> int:
    part = job.settings["part"]
    assert isinstance(part, int)
    return part
