"""Adding a data set: a row of each table is enough to load it, evaluate on it, fine-tune on it and list it."""

import tomllib
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.data import named_sets
from nearfar.data.named_sets import (
    CATALOG,
    FINETUNING_TASKS,
    PROBE_TASKS,
    Conversion,
    FinetuningTask,
    NamedSet,
    ProbeTask,
    Source,
    suite_tasks,
)
from nearfar.data.rows import load_sentences
from tests.data.files import error_of, write_lines
from tests.tiny import sentences


def embed(texts: list[str]) -> np.ndarray:
    """A deterministic random vector per text."""
    return np.stack([np.random.default_rng(zlib.crc32(text.encode())).standard_normal(8) for text in texts])


@pytest.fixture
def toy_pairs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A set of scored pairs in the local data folder, with a row in the catalog."""
    texts = sentences(40, seed=3, longest=6)
    rows = [f"{number % 5}\t{texts[number]}\t{texts[number + 1]}" for number in range(30)]
    write_lines(folder / "sts/toy/test.tsv", "score\tsentence1\tsentence2", *rows)
    entry = NamedSet(
        folder="sts/toy",
        splits=("test",),
        scale=(0.0, 5.0),
        sentences=("sentence1", "sentence2"),
        advice="Ask for it.",
        in_sts_suite=True,
    )
    monkeypatch.setitem(CATALOG, "toy-sts", entry)
    return texts


def test_a_set_of_scored_pairs_needs_one_row(toy_pairs: list[str], folder: Path) -> None:
    result = nearfar.evaluate(embed, suite="sts", resamples=0, progress=False)
    assert list(result.tasks) == ["toy-sts"]
    assert list(result.unavailable) == [name for name in suite_tasks("sts") if name != "toy-sts"]
    assert result.tasks["toy-sts"].pairs == 30
    assert {text for (text,) in load_sentences("toy-sts").rows} == set(toy_pairs[:31])
    assert nearfar.get_data("toy-sts", list=True).listed[0].place == "local"
    assert "Did you mean 'toy-sts'?" in error_of(load_sentences, "toy-stss")
    assert "No hub copy of it is known." in error_of(load_sentences, "toy-sts:dev")
    (folder / "sts/toy/test.tsv").unlink()
    assert error_of(load_sentences, "toy-sts").endswith("Ask for it.")


def test_the_tables_refer_to_sets_that_exist() -> None:
    specs = [task.spec for task in PROBE_TASKS.values()]
    specs += [spec for task in FINETUNING_TASKS.values() for spec in (task.source, task.test, task.validation) if spec]
    assert {spec.partition(":")[0] for spec in specs} <= set(CATALOG)
    assert len(suite_tasks("all")) == len(set(suite_tasks("all")))


def test_every_key_of_the_file_is_a_field() -> None:
    """A misspelt key would otherwise be ignored."""
    content = tomllib.loads(Path(named_sets.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    tables = {"sets": NamedSet, "sources": Source, "probes": ProbeTask, "finetuning": FinetuningTask}
    for table, kind in tables.items():
        known = {field.name for field in fields(kind)}
        for name, entry in content.pop(table).items():
            assert set(entry) <= known, name
            assert all(set(one) <= {"address", "sha256", "size"} for one in entry.get("downloads", ())), name
            assert all(set(other) <= known for other in entry.get("kinds", {}).values()), name
    assert all(set(entry) <= {field.name for field in fields(Conversion)} for entry in content.pop("recipes"))
    assert set(content) == {"mixtures", "rows"}
