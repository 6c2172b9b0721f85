"""Imports what commands import when they run, so that the forks of the server need not: seconds for each case."""

import importlib
import pkgutil

OTHERS = (
    "safetensors.numpy",
    "tests.campaign.scenario_runs",
    "tomli_w",
    "transformers.models.bert.modeling_bert",
    "transformers.models.t5.modeling_t5",
    "tyro",
)
LEFT_OUT = ("__main__", "mteb", "ray", "sentence_transformers", "sklearn")
"""Modules of nearfar that need another package or run when they are imported."""


def import_all() -> None:
    """Import every module of nearfar, the parts of other packages that commands import by name, and the scenarios."""
    import nearfar

    for module in pkgutil.walk_packages(nearfar.__path__, "nearfar."):
        if module.name.split(".")[1] not in LEFT_OUT:
            importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)
