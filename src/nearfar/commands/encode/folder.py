"""A folder of parts, written by jobs: in this process, in workers or on Ray; many processes can take part in it."""

from nearfar.commands.encode.corpus import InputFile, list_files, read_footers
from nearfar.commands.encode.parts import Plan, read_plan
from nearfar.commands.encode.run import EncodeResult, agreed_parts, jobs_of_parts, run_jobs_of_parts
from nearfar.config.bounds import shard_numbers
from nearfar.config.encoding import EncodeConfig
from nearfar.disk.checks import check_writable_folder
from nearfar.disk.places import OWN, WRITING, Place, open_place
from nearfar.jobs import shard_of
from nearfar.types import NearfarError


def encode_folder(model: str, config: EncodeConfig, block: int, *, progress: bool) -> EncodeResult:
    """Write the parts of this call, each by a job; and the manifest, if all parts are there.

    Many processes can take part in it.
    """
    place = open_place(config.output)
    _check_folder(place, config)

    def changes(plan: Plan) -> list[str]:
        """By names and sizes of the files; a worker compares the footer of a file when it opens it."""
        before = {(file.address, file.size) for file in plan.files}
        different = sorted(before ^ set(list_files(config.input)))
        return [f"files of --input changed, such as {different[0][0]}"] if different else []

    def read() -> list[InputFile]:
        files = read_footers(config.input, str(config.column), config.keep)
        if inside := [file.address for file in files if file.address.startswith(f"{place.address.rstrip('/')}/")]:
            raise NearfarError(f"--output {place.address}: has the input {inside[0]} in it; choose another folder.")
        return files

    parts = agreed_parts(model, config, block, read_input=read, input_changes=changes)
    jobs = jobs_of_parts(parts, config, model)
    own = {job: jobs[job] for job in shard_of(list(jobs), shard_numbers(config.shard))}
    run_jobs_of_parts(parts, own, config, progress=progress)
    records = parts.records()
    complete = len(records) == parts.plan.parts
    if complete:
        parts.write_manifest(records)
        for name in place.names(WRITING):
            if name.startswith("part-"):  # left by a killed process
                place.remove(f"{WRITING}/{name}")
        parts.warn_of_truncated()
    return EncodeResult(parts.rows_in(own.values()), parts.plan.dim, len(own), complete)


def _check_folder(place: Place, config: EncodeConfig) -> None:
    """Refuse an output that is a file, cannot be written, or holds other files or a run that is not continued."""
    output = config.output
    if place.shared is not None:
        check_writable_folder(place.shared, output)
    others = [name for name in place.names() if name != OWN]
    has_run = read_plan(place) is not None  # read last: another process may just have started the run
    if has_run and not (config.overwrite or config.resume or config.shard):
        raise NearfarError(
            f"--output {output}: holds a run of nearfar encode. Continue it with --resume, replace it with "
            "--overwrite, or choose another folder."
        )
    if others and not has_run:
        raise NearfarError(
            f"--output {output}: holds other files, such as {others[0]}; choose an empty or a new folder."
        )
