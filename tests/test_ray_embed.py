"""nearfar.ray.Embed: batches of rows with a column of embeddings, by itself and in a pipeline of ray.data."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, NearfarError
from nearfar.ray import Embed
from tests.child_programs import report_of
from tests.corpora import TEXTS, write_corpus
from tests.tiny import save_tiny

BATCH = {"text": np.array(["a dog", "a cat runs", "a dog"], dtype=object), "id": np.arange(3)}
PIPELINE = """if True:
    import json, sys
    import ray
    from nearfar.ray import Embed
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
             object_store_memory=100 * 2**20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    settings = {"model": sys.argv[1], "column": "text", "precision": "fp32"}
    rows = ray.data.read_parquet("in").map_batches(Embed, fn_constructor_kwargs=settings, concurrency=1, batch_size=32)
    print("REPORT", json.dumps([[row["id"], row["vector"].tolist()] for row in rows.take_all()]))
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{}, {"normalize": True}, {"dimensions": 8}, {"prompt": "a "}, {"precision": "fp32"}]
)
def test_the_embeddings_are_those_of_encode(tiny: Path, settings: dict[str, Any]) -> None:
    embed = Embed(str(tiny), **settings)
    found = embed(BATCH)
    assert list(found) == ["text", "id", "vector"]
    expected = Encoder.from_pretrained(tiny).encode(list(BATCH["text"]), **settings)
    np.testing.assert_array_equal(found["vector"], expected)
    assert "vector" not in BATCH


def test_what_cannot_be_embedded_is_refused(tiny: Path) -> None:
    embed = Embed(tiny)
    for batch, message in (
        ({"said": BATCH["text"]}, "the rows have no column 'text'. Their columns: said."),
        ({**BATCH, "vector": BATCH["id"]}, "have a column 'vector' already; give another output"),
        ({"text": np.array(["a", None], dtype=object)}, "text 1 is NoneType, not a string"),
        ([1, 2], "takes batches as a dict of arrays, not as list"),
    ):
        with pytest.raises(NearfarError) as error:
            embed(batch)  # type: ignore[arg-type]
        assert message in str(error.value)
    with pytest.raises(NearfarError, match="must be from 1 to 32"):
        Embed(tiny, dimensions=33)
    with pytest.raises(NearfarError, match="no such model folder"):
        Embed(tiny / "none")


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")
def test_a_pipeline_of_ray_data(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    report = report_of(PIPELINE, str(tmp_path / "tiny"), folder=tmp_path)
    found = sorted(report, key=lambda row: int(row[0].removeprefix("id-")))
    assert [name for name, _ in found] == [f"id-{number}" for number in range(len(TEXTS))]
    expected = Encoder.from_pretrained(tmp_path / "tiny").encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(np.array([vector for _, vector in found]), expected, atol=1e-5)
