"""How often a training step reads values of tensors, for each of which Python would wait for a GPU."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from nearfar.commands.train import train
from nearfar.training.callbacks import MetricsFile
from tests.method_configs import config

READS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2", "unique_dim")
"""Operations of aten whose result, or the shape of it, Python needs at once."""


class CountReads(TorchDispatchMode):
    """Counts the operations that are reads."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.counts[name] += name in READS
        return func(*args, **(kwargs or {}))


@pytest.mark.long
@pytest.mark.parametrize("method", ["info-nce", "simcse-unsup"])
def test_a_step_reads_nothing(method: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one step's report to the next, without an evaluation or a checkpoint between them."""
    write, at_step, reads = MetricsFile.on_step, dict[int, Counter[str]](), CountReads()

    def counting(self: MetricsFile, report: Any) -> None:
        at_step[report.step] = reads.counts.copy()
        write(self, report)

    monkeypatch.setattr(MetricsFile, "on_step", counting)
    settings: dict[str, Any] = {
        "output": str(tmp_path / "run"),
        "epochs": 3,
        "evaluate_every": 8,
        "checkpoint_every": 8,
    }
    settings["model"] = str(folder / "tiny")  # without dropout, whose seeds the compiled kernels of a CPU read
    with reads:
        train(config(method, folder, max_steps=8, max_grad_norm=1.0, **settings))
    steps = [dict(at_step[step + 1] - at_step[step]) for step in range(3, 6)]
    assert steps == [{}] * 3
