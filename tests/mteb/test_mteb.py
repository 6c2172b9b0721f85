"""A model in mteb.evaluate, and mteb's pairs in nearfar evaluate: the same scores. Needs the extra mteb."""

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from nearfar import Encoder, NearfarError, evaluate
from nearfar.data.rows import load_mteb_pairs
from nearfar.mteb import MtebModel
from tests.tiny import save_tiny

pytestmark = [
    pytest.mark.long,  # importing mteb takes two seconds
    pytest.mark.skipif(find_spec("mteb") is None, reason="needs the extra mteb: pip install 'nearfar[mteb]'"),
    pytest.mark.filterwarnings("ignore"),  # those of mteb
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


@pytest.fixture(autouse=True)
def local_task(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Rows of our own in place of mteb's tasks."""
    import mteb

    from tests.mteb import local_task

    monkeypatch.setattr(mteb, "get_task", local_task.get_task)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return local_task


def mteb_scores(model: MtebModel, task: str) -> list[dict[str, Any]]:
    """mteb's scores of each subset."""
    import mteb

    result = mteb.evaluate(model, mteb.get_task(task), cache=None, show_progress_bar=False)
    return result.task_results[0].scores["test"]


def test_sts_scores_are_those_of_nearfar(folder: Path, tmp_path: Path) -> None:
    (found,) = mteb_scores(MtebModel(folder), "LocalSTS")
    result = evaluate(str(folder), mteb=["LocalSTS"], output=tmp_path / "result.json", resamples=200, progress=False)
    scored = result.tasks["mteb:LocalSTS"]
    assert scored.pairs == 40
    assert list(scored.subsets) == ["test"]
    for metric in ("spearman", "pearson"):
        estimate = scored.metric(metric).all
        assert estimate.score == pytest.approx(100 * found[f"cosine_{metric}"], abs=1e-3)
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.score < estimate.high
        assert estimate.high - estimate.low > 1
    table = (tmp_path / "result.md").read_text(encoding="utf-8")
    assert "mteb:LocalSTS" in table


def test_prompts_by_the_role_of_a_text(folder: Path) -> None:
    from mteb.types import PromptType

    prompts = {"query_prompt": "red : ", "document_prompt": "blue : ", "prompt": "the house : "}
    model, encoder = MtebModel(folder, **prompts), Encoder.from_pretrained(folder)
    batches = [{"text": ["a dog", "a cat"]}, {"text": ["one dog"]}]
    roles = {PromptType.query: "red : ", PromptType.document: "blue : ", None: "the house : "}
    for role, prompt in roles.items():
        vectors = model.encode(batches, prompt_type=role, batch_size=2)
        expected = encoder.encode(["a dog", "a cat", "one dog"], prompt=prompt, precision="fp32")
        np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_the_model_describes_itself(folder: Path, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    meta = MtebModel(folder).mteb_model_meta
    assert meta.name == "local/tiny"
    assert meta.embed_dim == 32
    assert meta.n_parameters == sum(weight.numel() for weight in encoder.parameters())
    assert meta.max_tokens == encoder.max_length
    assert meta.similarity_fn_name.value == "cosine"
    assert meta.experiment_kwargs is None
    changed = MtebModel(folder, name="me/mine", dimensions=8, query_prompt="red : ").mteb_model_meta
    assert (changed.name, changed.embed_dim, changed.use_instructions) == ("me/mine", 8, True)
    assert changed.experiment_kwargs == {"dimensions": 8, "query_prompt": "red : "}
    assert changed.revision == meta.revision
    other = MtebModel(save_tiny(tmp_path / "other", seed=1)).mteb_model_meta
    assert other.revision != meta.revision


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_similarities_are_those_of_the_model(folder: Path, similarity: Any, tmp_path: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    encoder._inference = encoder._inference._replace(similarity_fn_name=similarity)
    encoder.save_pretrained(tmp_path / "saved")
    model = MtebModel(tmp_path / "saved")
    first, second = np.random.default_rng(0).normal(size=(2, 3, 4))
    lengths = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    expected = {
        "cosine": first @ second.T / lengths,
        "dot": first @ second.T,
        "euclidean": -np.linalg.norm(first[:, None] - second, axis=2),
    }[similarity]
    np.testing.assert_allclose(model.similarity(first, second), expected, atol=1e-6)
    np.testing.assert_allclose(model.similarity_pairwise(first, second), np.diag(expected), atol=1e-6)
    assert model.mteb_model_meta.similarity_fn_name.value == similarity


def test_settings_that_cannot_be_kept_are_refused(folder: Path) -> None:
    with pytest.raises(NearfarError, match="--dimensions 64"):
        MtebModel(folder, dimensions=64)
    with pytest.raises(NearfarError, match="no such model folder"):
        MtebModel(folder / "none")
    model = MtebModel(folder)
    with pytest.raises(NearfarError, match="returns float32"):
        model.encode([{"text": ["a"]}], precision="int8")
    with pytest.raises(NearfarError, match="inputs without texts"):
        model.encode([{"image": []}])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sentence1": "a", "sentence2": 3, "score": 1.0}, "row 1 of test must have two texts and a score"),
        (None, "has no pairs in its splits test"),
    ],
)
def test_rows_that_cannot_be_used(
    row: dict[str, Any] | None, message: str, local_task: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mteb

    task = local_task.LocalSTS()
    task.dataset, task.data_loaded = {"test": [] if row is None else [local_task.pairs()[0], row]}, True
    monkeypatch.setattr(task, "load_data", lambda: None)
    monkeypatch.setattr(mteb, "get_task", lambda _: task)
    with pytest.raises(NearfarError, match=message):
        load_mteb_pairs("LocalSTS")
