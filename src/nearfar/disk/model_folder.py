"""The model folder inside a run folder, and the file in which a model folder keeps the hashes of its texts and pairs.

The file has four tensors of sorted, distinct 64-bit hashes (:mod:`nearfar.data.fingerprints`): ``trained_texts`` and
``trained_pairs`` of the training rows, ``chosen_texts`` and ``chosen_pairs`` of the dev rows that chose the step.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nearfar.disk import disk_errors, path_errors, write_bytes
from nearfar.types import NearfarError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEEN_FILE = "nearfar_seen.safetensors"
_VERSION = {"nearfar-seen": "1"}
CARD_MARK = "<!-- model card by nearfar -->"
"""A comment in every model card (README.md) that nearfar writes."""


@path_errors()
def model_of_run(folder: Path) -> Path:
    """Return the model folder of a finished run; any other folder is returned unchanged.

    Raises:
        NearfarError: the folder is an unfinished run, a run whose model is missing, or a job of a study, which has the
            run folder inside.
    """
    if any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return folder
    if (folder / "run.json").is_file():
        if not (folder / "model").is_dir():
            raise NearfarError(f"{folder}: is a finished run, but its folder model is missing; train it again.")
        return folder / "model"
    if (folder / "job.json").is_file() and (folder / "run" / "run.json").is_file():
        raise NearfarError(f"{folder}: is the folder of a job of a study; name its run folder, {folder / 'run'}.")
    if (folder / "config.toml").is_file() and any(
        (folder / name).exists() for name in ("inputs.json", "metrics.jsonl")
    ):
        raise NearfarError(f"{folder}: is a run that is not finished (no run.json); finish it by --resume.")
    return folder


class SeenHashes(NamedTuple):
    """Hashes of what a model has seen; each array is sorted and distinct, uint64."""

    trained_texts: "NDArray[np.uint64]"
    trained_pairs: "NDArray[np.uint64]"
    chosen_texts: "NDArray[np.uint64]"
    """Of the dev set that chose the step."""
    chosen_pairs: "NDArray[np.uint64]"

    def union(self, other: "SeenHashes") -> "SeenHashes":
        """The hashes of both."""
        import numpy as np

        return SeenHashes(*(np.union1d(mine, others) for mine, others in zip(self, other, strict=True)))


def read_seen(folder: Path) -> SeenHashes | None:
    """The hashes in a model folder or run folder; None if it has no such file.

    Raises:
        NearfarError: the file is damaged, cannot be read, or is of a newer version.
    """
    import numpy as np
    from safetensors import SafetensorError, safe_open

    file = folder / SEEN_FILE
    if not file.exists():
        return None
    otherwise = "Restore it. Without the file the model works too, but which texts it was trained on is not known."
    try:
        if not file.is_file():  # opening a pipe would wait for its writer
            raise NearfarError(f"{file}: is not a regular file. {otherwise}")
        file.open("rb").close()  # an unreadable file raises an OSError here, a damaged one a SafetensorError below
        with safe_open(file, framework="numpy") as tensors:
            metadata = tensors.metadata() or {}
            found = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118, not a dict
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror or error}).") from error
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:  # the last three: an unknown dtype
        raise NearfarError(f"{file}: is damaged ({error}). {otherwise}") from error
    version = metadata.get("nearfar-seen", "1")
    if version != "1":
        raise NearfarError(f"{file}: has the version {version}; this nearfar reads version 1. Update it.")
    if metadata != _VERSION or found.keys() != set(SeenHashes._fields):
        raise NearfarError(f"{file}: is damaged: it must hold {', '.join(SeenHashes._fields)}. {otherwise}")
    for name, hashes in found.items():
        if hashes.dtype != np.uint64 or hashes.ndim != 1 or not (hashes[:-1] < hashes[1:]).all():
            raise NearfarError(f"{file}: is damaged: {name} does not hold sorted 64-bit hashes. {otherwise}")
    return SeenHashes(**found)


def write_seen(folder: Path, seen: SeenHashes | None) -> None:
    """Write the hashes into a model folder or run folder, atomically; None removes the file.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    from safetensors.numpy import save

    file = folder / SEEN_FILE
    if seen is None:
        with disk_errors(file):
            file.unlink(missing_ok=True)
        return
    write_bytes(file, save(seen._asdict(), metadata=_VERSION))
