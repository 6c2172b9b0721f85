"""Data sets of the Hugging Face hub, and folders that ``datasets`` saved: splits, and rows of some columns."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.data.columns import Location, Rows, column_indices
from nearfar.data.parquet import name_classes
from nearfar.data.paths import is_file, is_folder, list_names
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?")
"""The name of a hub data set: ``owner/name``, or ``owner/name/config`` if it has several configs."""

HUB_TIMEOUT = 10.0
"""Seconds to wait for the hub's first answer; ``datasets`` alone retries an unreachable hub for half a minute."""


def load_hub(name: str, *, split: str | None = None) -> "Dataset":
    """Return a split of the hub data set ``owner/name[/config]``, from the local cache if the hub is unreachable.

    ``split`` is the name of a split or a slice expression of ``datasets`` (``train[:1000]``); it may be omitted if
    there is only one split.

    Raises:
        NearfarError: the hub is unreachable and nothing is cached, or it has no such data set, config or split.

    """
    return _choose_split(_load_hub(name, split), split, f"hub:{name}")


def load_hub_splits(name: str) -> "dict[str, Dataset]":
    """Return all splits of the hub data set ``owner/name[/config]`` by name; for errors see :func:`load_hub`."""
    import datasets

    data = _load_hub(name, None)
    return {"": data} if isinstance(data, datasets.Dataset) else {str(split): data[split] for split in data}


def _load_hub(name: str, split: str | None) -> "Dataset | DatasetDict":
    import datasets

    match = HUB_NAME.fullmatch(name)
    if match is None:
        raise NearfarError(f"hub:{name}: a hub data set is named owner/name, or owner/name/config.")
    repository, config = match.groups()
    if is_folder(Path(repository)):
        # load_dataset would read that folder instead.
        raise NearfarError(
            f"hub:{name}: the folder {repository} in the working directory hides it; change the working directory."
        )
    try:
        _check_reachable(repository)
        loaded: Dataset | DatasetDict = datasets.load_dataset(repository, config, split=split)
    except NearfarError:
        raise
    except Exception as error:  # datasets passes on the exceptions of all libraries below it
        raise NearfarError(f"hub:{name}: {type(error).__name__}: {_first_line(error)}.") from error
    return loaded


def load_folder(path: Path, *, split: str | None = None) -> "Dataset":
    """Return the data set, or one split of a data set dictionary, that ``save_to_disk`` wrote to ``path``."""
    import datasets

    if not any(is_file(path / marker) for marker in ("state.json", "dataset_dict.json")):
        files = list_names(path)[:12]
        raise NearfarError(
            f"{path} is a folder that was not written by datasets' save_to_disk. Name one of its files: "
            f"{', '.join(files) or 'it is empty'}."
        )
    try:
        data = datasets.load_from_disk(str(path))
    except Exception as error:  # as above
        raise NearfarError(f"{path} cannot be read: {type(error).__name__}: {_first_line(error)}.") from error
    if split is not None and isinstance(data, datasets.Dataset):
        raise NearfarError(f"{path} is a single data set without splits; remove {split!r}.")
    return _choose_split(data, split, str(path))


def read_dataset(dataset: "Dataset", columns: Sequence[str], *, title: str) -> Rows:
    """Yield the ``columns`` of each row; class indices are replaced by the class names that the data set declares."""
    columns = [dataset.column_names[index] for index in column_indices(dataset.column_names, columns, title)]
    class_names = [getattr(dataset.features[column], "names", None) for column in columns]
    number = 0
    batches = dataset.with_format(None).select_columns(columns).iter(batch_size=1024)
    while True:
        try:
            batch = next(batches, None)
        except Exception as error:  # as above
            raise NearfarError(
                f"{title}: the rows after {number} cannot be read: {type(error).__name__}: {_first_line(error)}."
            ) from error
        if batch is None:
            return
        for values in zip(*(batch[column] for column in columns), strict=True):
            number += 1
            yield Location(title, number, "row"), name_classes(values, class_names)


def _check_reachable(repository: str) -> None:
    import datasets
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        HfApi().dataset_info(repository, timeout=HUB_TIMEOUT)
    except (HfHubHTTPError, OfflineModeIsEnabled):
        pass  # the hub answered, or is disabled; load_dataset handles both
    except Exception as error:
        if not (Path(datasets.config.HF_DATASETS_CACHE) / repository.replace("/", "___")).is_dir():
            raise NearfarError(f"hub:{repository}: unreachable ({_first_line(error)}), and not cached.") from error


def _choose_split(data: "Dataset | DatasetDict", split: str | None, title: str) -> "Dataset":
    import datasets

    if isinstance(data, datasets.Dataset):
        return data
    if split is None and len(data) == 1:
        return next(iter(data.values()))
    if split is None or split not in data:
        problem = "has several splits" if split is None else f"has no split {split!r}"
        raise NearfarError(f"{title} {problem}. Name one: {', '.join(f'{title}:{name}' for name in data)}.")
    return data[split]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200].rstrip(". ")
