"""Imports what commands import when they run, so that the forks of the server need not: seconds for each case."""

import importlib
import pkgutil

OTHERS = (
    "pyarrow.parquet",
    "safetensors.numpy",
    "tests.campaign.doors",
    "tests.campaign.equality_encoders",
    "tests.campaign.equality_gradients",
    "tests.campaign.equality_objectives",
    "tests.campaign.equality_runs",
    "tests.campaign.load_growth",
    "tests.campaign.load_processes",
    "tests.campaign.scenario_runs",
    "tomli_w",
    *(
        f"transformers.models.{family}.modeling_{family}"
        for family in ("bert", "roberta", "xlm_roberta", "distilbert", "mpnet", "electra", "modernbert", "t5")
    ),
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
