"""The GPU benchmark in its small form on the CPU: it measures every side and generates its page from its file alone."""

import json
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PEERS = ("SoftmaxLoss", "MultipleNegativesRankingLoss", "SimCSE")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
Bench = Callable[..., None]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Run the script with these arguments; remove the modules that it imported afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
        runpy.run_path(str(SCRIPT), run_name="__main__")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the peer's dependencies
        yield run
    for name in {path.stem for path in SCRIPT.parent.glob("*.py")} - before:
        sys.modules.pop(name, None)


@pytest.mark.nightly
def test_the_small_form_measures_every_side(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench("run", "--small", "--device", "cpu", "--into", str(tmp_path))
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert (found["small"], found["device"], found["hardware"]["accelerator"]) == (True, "cpu", None)
    assert all(found["peak"][precision] > 0 for precision in ("fp32", "bf16"))
    (shape,) = found["shapes"].values()
    peers = [f"{loss} {p}" for p in ("fp32", "bf16") for loss in PEERS]
    ours = [f"{method} {p}" for p in ("fp32", "bf16") for method in ("sbert", "info-nce", "scl", "sg-opt1")]
    eager = [f"info-nce {p}, without graphs" for p in ("fp32", "bf16")]
    assert set(shape["training"]) == {*peers, *ours, *eager}
    for side, (block,) in shape["training"].items():
        assert min(block.values()) > 0, side
        assert block["rows"] == found["steps"] * found["batch_size"], side
    operations = [
        shape["training"][side][0]["operations"] for side in ("info-nce fp32", "info-nce fp32, without graphs")
    ]
    assert operations[0] == operations[1] > 2e6
    assert min(shape["encoding"]["lowest"].values()) > 0.99
    ways = [(row["dtype"], row["dropout"], sorted(row["seconds"])) for row in found["attention"]]
    assert ways == [(dtype, p, ["groups", "padded"]) for dtype in ("bf16", "fp32") for p in (0.0, 0.1)]

    page = (tmp_path / "gpu-speed.md").read_text()
    assert "**The small form" in page
    for name in ("## Training", "Share of the peak", "550,152 pairs", "Extrapolated", "## Encoding", "## Attention"):
        assert name in page
    (tmp_path / "gpu-speed.md").unlink()
    capsys.readouterr()
    bench("report", "--into", str(tmp_path))
    assert (tmp_path / "gpu-speed.md").read_text() == page
    assert "`padded` torch's attention on a" in capsys.readouterr().out
