"""The model folder inside a run folder, and the file in which a model folder keeps the hashes of its texts and pairs.

The file has four tensors of sorted, distinct 64-bit hashes (:mod:`nearfar.data.fingerprints`): ``trained_texts`` and
``trained_pairs`` of the training rows, ``chosen_texts`` and ``chosen_pairs`` of the dev rows that chose the step.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nearfar.disk import check_regular, disk_errors, new_file_in_folder
from nearfar.disk.checks import path_errors
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
        from nearfar.disk.rows import distinct

        return SeenHashes(*(distinct(mine, others) for mine, others in zip(self, other, strict=True)))


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
    try:
        check_regular(file)  # opening a pipe would wait for its writer
        file.open("rb").close()  # safe_open's error of a file without permission does not say so
        with safe_open(file, framework="numpy") as tensors:
            others = set(tensors.keys()) - set(SeenHashes._fields)
            found = SeenHashes(*map(tensors.get_tensor, SeenHashes._fields))
            whole = all(array.dtype == np.uint64 and (array[:-1] < array[1:]).all() for array in found)
            if tensors.metadata() == _VERSION and not others and whole and all(array.ndim == 1 for array in found):
                return found
        why: object = f"it must hold sorted 64-bit hashes, {', '.join(SeenHashes._fields)}, of version 1"
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror or error}).") from error
    except (SafetensorError, TypeError, KeyError, AttributeError) as error:  # the last three: an unknown dtype
        why = error
    raise NearfarError(
        f"{file}: is damaged, or of a newer nearfar ({why}). Restore it. Without the file the model works too, but "
        "which texts it was trained on is not known."
    )


def write_seen(folder: Path, seen: SeenHashes | None) -> None:
    """Write the hashes into a model folder or run folder, atomically; None removes the file.

    Raises:
        NearfarError: the disk is full or cannot be written.
    """
    from safetensors.numpy import save_file

    file = folder / SEEN_FILE
    if seen is None:
        with disk_errors(file):
            file.unlink(missing_ok=True)
        return
    with new_file_in_folder(file) as new:
        save_file(seen._asdict(), new, metadata=_VERSION)
