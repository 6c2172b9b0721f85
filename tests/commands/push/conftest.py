"""A finished run with held-out rows, trained once; and a hub on this machine."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from nearfar import InfoNceConfig, train
from tests.hub_server import TOKEN, Hub, hub_server
from tests.tiny import save_tiny, sentences


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("push")
    rows = zip(sentences(120, seed=1), sentences(120, seed=2), strict=True)
    lines = [f"{first} {number % 7}\t{second}" for number, (first, second) in enumerate(rows)]
    (folder / "secret").mkdir()
    (folder / "secret" / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *lines]) + "\n")
    model = str(save_tiny(folder / "secret" / "start"))
    train(
        InfoNceConfig(
            data=(str(folder / "secret" / "pairs.tsv"),),
            model=model,
            output=str(folder / "run"),
            max_steps=2,
            hold_out=24,
            batch_size=8,
            temperature=0.1,
        )
    )
    return folder / "run"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with hub_server() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield hub
