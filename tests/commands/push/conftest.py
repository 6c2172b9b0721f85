"""A finished run with held-out rows, trained once; and a hub in place of huggingface_hub's calls."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from nearfar import train
from tests.tiny import save_tiny, sentences


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("push")
    rows = zip(sentences(120, seed=1), sentences(120, seed=2), strict=True)
    lines = [f"{first} {number % 7}\t{second}" for number, (first, second) in enumerate(rows)]
    (folder / "secret").mkdir()
    (folder / "secret" / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *lines]) + "\n")
    model = str(save_tiny(folder / "secret" / "start"))
    how = {"max_steps": 2, "hold_out": 24, "batch_size": 8, "temperature": 0.1}
    train("info-nce", data=folder / "secret" / "pairs.tsv", model=model, output=folder / "run", **how)
    return folder / "run"


class Hub:
    """What was uploaded."""

    endpoint = "https://hub"

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.commits: list[dict[str, Any]] = []
        self.error: Exception | None = None
        """What a commit raises."""

    def create_repo(self, name: str, **settings: Any) -> None:
        self.repositories[name] = settings

    def create_commit(
        self, name: str, operations: Sequence[huggingface_hub.CommitOperationAdd], **settings: Any
    ) -> SimpleNamespace:
        if self.error is not None:
            raise self.error
        for operation in operations:
            with operation.as_file() as file:
                self.files[operation.path_in_repo] = file.read()
        self.commits.append(settings)
        pull_request = f"https://hub/{name}/discussions/1" if settings["create_pr"] else None
        return SimpleNamespace(commit_url=f"https://hub/{name}/commit/0", pr_url=pull_request)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    return hub
