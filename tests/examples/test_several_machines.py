"""The files for Slurm and SkyPilot: their fields exist, and they start torchrun and nearfar with valid flags."""

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from nearfar import InfoNceConfig
from nearfar.cli.parsing import parse
from nearfar.cli.train import RESUME

FOLDER = Path(__file__).parents[2] / "examples"
SLURM, SKYPILOT = FOLDER / "slurm-two-nodes.sh", FOLDER / "skypilot-two-nodes.yaml"
SBATCH = {
    *("job-name", "nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-node", "time", "requeue", "open-mode"),
    "output",
}
"""Options of sbatch (Slurm's manual)."""
FIELDS = {"name", "workdir", "num_nodes", "resources", "envs", "setup", "run"}
RESOURCES = {"infra", "accelerators", "cpus", "memory", "disk_size", "use_spot"}
"""Fields of SkyPilot's YAML specification."""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts need bash")


def stub(folder: Path, name: str, script: str) -> None:
    """A program called ``name``."""
    file = folder / name
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)


def started(script: str, folder: Path, *arguments: str, **variables: str) -> list[Namespace]:
    """The parsed arguments of each torchrun that a bash script starts."""
    tools = folder / "tools"
    tools.mkdir()
    keep = "import json, os, sys; open('started', 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
    stub(tools, "torchrun", f'exec {sys.executable} -c "{keep}" "$@"')
    stub(tools, "scontrol", 'test "$*" = "show hostnames node[07-08]" && printf "node07\\nnode08\\n"')
    stub(tools, "srun", '[[ $1 == --kill-on-bad-exit=1 ]] && shift; SLURM_NODEID=0 "$@"; SLURM_NODEID=1 "$@"')
    environment = {"PATH": f"{tools}:/usr/bin:/bin", **variables}
    subprocess.run(["bash", "-c", script, "script", *arguments], check=True, cwd=folder, env=environment)
    calls = [json.loads(line) for line in (folder / "started").read_text().splitlines()]
    return [get_args_parser().parse_args(call) for call in calls]


def assert_trains(found: Namespace, data: str, output: str) -> None:
    """It runs ``nearfar train`` with valid flags, and may resume."""
    assert (found.module, found.training_script) == (True, "nearfar")
    verb, method, *flags = found.training_script_args
    assert (verb, method) == ("train", "info-nce")
    config, options = parse(InfoNceConfig, flags, prog=f"nearfar train {method}", extras=[RESUME])
    assert options == {"resume": True}
    assert (config.data, config.output) == ((data,), output)


@pytest.mark.long
def test_slurm(tmp_path: Path) -> None:
    text = SLURM.read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert text.count("#SBATCH") == len(options)
    assert options.keys() <= SBATCH
    assert (options["nodes"], options["ntasks-per-node"]) == ("2", "1")  # one torchrun on each node
    variables = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node[07-08]"}
    variables |= {"SLURM_CPUS_PER_TASK": options["cpus-per-task"], "SLURM_GPUS_ON_NODE": options["gpus-per-node"]}
    found = started(text, tmp_path, "my data.tsv", "a run", **variables)
    assert len(found) == 2
    for one in found:
        assert (one.nnodes, one.nproc_per_node) == ("2", "1")
        assert (one.rdzv_backend, one.rdzv_id, one.rdzv_endpoint) == ("c10d", "17", "node07:29500")
        assert_trains(one, "my data.tsv", "a run")
    assert (tmp_path / "a run").is_dir()


def test_slurm_without_gpus(tmp_path: Path) -> None:
    variables = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "node[07-08]"}
    found = started(SLURM.read_text(), tmp_path, "data.tsv", "run", **variables, SLURM_CPUS_PER_TASK="8")
    assert [one.nproc_per_node for one in found] == ["1", "1"]


@pytest.mark.long
def test_skypilot(tmp_path: Path) -> None:
    task = yaml.safe_load(SKYPILOT.read_text(encoding="utf-8"))
    assert task.keys() <= FIELDS
    assert task["resources"].keys() <= RESOURCES
    assert (task["num_nodes"], task["workdir"]) == (2, ".")
    assert (FOLDER.parent / task["envs"]["DATA"]).is_file()
    variables = {
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "1",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    }
    for rank in ("0", "1"):
        (folder := tmp_path / rank).mkdir()
        (found,) = started(task["run"], folder, **task["envs"], **variables, SKYPILOT_NODE_RANK=rank)
        assert (found.nnodes, found.nproc_per_node, found.node_rank) == ("2", "1", int(rank))
        assert (found.master_addr, found.master_port) == ("10.0.0.1", 8008)
        assert_trains(found, task["envs"]["DATA"], task["envs"]["RUN"])
