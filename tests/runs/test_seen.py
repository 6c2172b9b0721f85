"""The hashes of training rows: what a run has seen, the file that keeps them, and the folders that inherit it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nearfar import FinetuneConfig, SclConfig, SimcseSupConfig
from nearfar.commands.evaluate import evaluate
from nearfar.commands.finetune import finetune
from nearfar.commands.train import train
from nearfar.data.fingerprints import pair_hashes, text_hashes
from nearfar.data.rows import load_nli, load_pairs
from nearfar.disk.model_folder import SEEN_FILE, SeenHashes, read_seen, write_seen
from nearfar.encoder.encoder import Encoder
from nearfar.runs.run import Run
from nearfar.types import NearfarError
from tests.tiny import save_tiny, write_colours, write_nli, write_pairs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SclConfig:
    """A finished run of two steps on NLI rows."""
    folder = tmp_path_factory.mktemp("finished")
    config = SclConfig(
        output=str(folder / "run"),
        model=str(save_tiny(folder / "tiny")),
        data=(str(write_nli(folder / "nli.tsv")),),
        evaluate_on=str(write_pairs(folder / "pairs.tsv")),
        batch_size=10,
        max_steps=2,
    )
    train(config)
    return config


@pytest.fixture
def config(finished: SclConfig, tmp_path: Path) -> SclConfig:
    """The same config with another folder, which does not exist."""
    return replace(finished, output=str(tmp_path / "run"))


def hashes(*texts: str) -> np.ndarray:
    return np.unique(text_hashes(texts))


def same(first: SeenHashes | None, second: SeenHashes | None) -> bool:
    assert first is not None
    assert second is not None
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.long
def test_a_run_leaves_the_hashes_of_its_rows(config: SclConfig) -> None:
    train(replace(config, limit=30))
    rows, dev = load_nli(config.data).rows[:30], load_pairs(config.evaluate_on)
    seen = read_seen(Path(config.output) / "model")
    assert seen is not None
    assert same(seen, read_seen(Path(config.output)))
    assert np.array_equal(seen.trained_texts, hashes(*(text for row in rows for text in row[:2])))
    assert np.array_equal(seen.trained_pairs, np.unique(pair_hashes(row[:2] for row in rows)))
    assert np.array_equal(seen.chosen_texts, hashes(*(text for pair in dev for text in pair[:2])))
    assert np.array_equal(seen.chosen_pairs, np.unique(pair_hashes(pair[:2] for pair in dev)))
    everything = hashes(*(text for row in load_nli(config.data).rows for text in row[:2]))
    assert len(seen.trained_texts) < len(everything), "the rows after --limit are not among them"


@pytest.mark.long
def test_a_further_set_counts_too(config: SclConfig, tmp_path: Path) -> None:
    scored = write_pairs(tmp_path / "scored.tsv", seed=3)
    train(replace(config, sets=({"method": "regression", "data": [str(scored)], "limit": 12},)))
    seen = read_seen(Path(config.output) / "model")
    assert seen is not None
    pairs = load_pairs(str(scored))
    assert np.isin(pair_hashes(pair[:2] for pair in pairs[:12]), seen.trained_pairs).all()
    others = {pair[:2] for pair in pairs[12:]} - {pair[:2] for pair in pairs[:12]}
    assert others
    assert not np.isin(pair_hashes(others), seen.trained_pairs).any()


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [({"keep": "best"}, True), ({"keep": "last"}, False), ({"keep": "last", "patience": 2}, True)],
)
def test_dev_rows_count_where_they_choose_the_step(settings: dict, chosen: bool) -> None:
    run = SimpleNamespace(config=SimpleNamespace(**{"fingerprints": True, "patience": None, **settings}))
    seen = Run.seen_with(run, None, [[("a", "b")]], [("c", "d", 1.0)])
    assert seen.chosen_texts.tolist() == (hashes("c", "d").tolist() if chosen else [])
    assert seen.chosen_pairs.tolist() == (pair_hashes([("c", "d")]).tolist() if chosen else [])
    assert seen.trained_texts.tolist() == hashes("a", "b").tolist()


@pytest.mark.long
def test_a_model_inherits_what_its_initial_model_has_seen(finished: SclConfig, tmp_path: Path) -> None:
    rows = {"data": (str(write_nli(tmp_path / "other.tsv", seed=5)),), "batch_size": 8, "max_steps": 1}
    rows["evaluate_on"] = str(write_pairs(tmp_path / "dev.tsv", seed=9))
    for name, model in (("both", finished.output), ("own", str(save_tiny(tmp_path / "tiny")))):
        train(SimcseSupConfig(output=str(tmp_path / name), model=model, **rows))
    first, both, own = (read_seen(folder) for folder in (Path(finished.output), tmp_path / "both", tmp_path / "own"))
    assert same(both, first.union(own))
    assert len(both.trained_texts) > max(len(first.trained_texts), len(own.trained_texts))


@pytest.mark.long
def test_no_fingerprints(finished: SclConfig, tmp_path: Path) -> None:
    without = replace(finished, model=finished.output, output=str(tmp_path / "without"), fingerprints=False)
    train(without)
    assert not list(Path(without.output).rglob(SEEN_FILE)), "not even those of the initial model"
    assert Encoder.from_pretrained(without.output).seen is None
    task = str(write_pairs(tmp_path / "test.tsv", seed=4))
    assert evaluate(without.output, tasks=[task], resamples=0, progress=False).tasks[task].seen is None


@pytest.mark.long
def test_a_classifier_leaves_its_rows_and_inherits(tmp_path: Path) -> None:
    before = SeenHashes(*(hashes(name) for name in SeenHashes._fields))
    write_seen(save_tiny(tmp_path / "tiny"), before)
    config = FinetuneConfig(
        output=str(tmp_path / "run"),
        model=str(tmp_path / "tiny"),
        task=str(write_colours(tmp_path / "rows.tsv")),
        validation_rows=10,
        noise="word-dropout",
        noise_rate=0.5,
        max_steps=1,
    )
    found = finetune(config)
    seen = read_seen(tmp_path / "run" / "model")
    assert seen is not None
    texts = [line.split("\t")[0] for line in (tmp_path / "rows.tsv").read_text().splitlines()[1:]]
    trained = np.isin(text_hashes(texts), seen.trained_texts)
    assert 0 < trained.sum() < len(texts), "the texts before the noise, without validation and test rows"
    assert np.isin(before.trained_pairs, seen.trained_pairs).all()
    assert len(seen.chosen_texts) > len(before.chosen_texts)
    (entry,) = found.result.all_tasks.values()
    assert entry.seen is not None
    assert entry.seen.pairs is None


def test_the_file_survives_a_round_trip(tmp_path: Path) -> None:
    seen = SeenHashes(*(np.array(values, dtype=np.uint64) for values in ([0, 2**64 - 1], [], [7], [1, 2, 3])))
    write_seen(tmp_path, seen)
    assert same(read_seen(tmp_path), seen)
    assert set(load_file(tmp_path / SEEN_FILE)) == set(SeenHashes._fields)
    write_seen(tmp_path, None)
    assert read_seen(tmp_path) is None
    assert not list(tmp_path.iterdir())


VALID = {name: np.array([1, 2], dtype=np.uint64) for name in SeenHashes._fields}
METADATA = {"nearfar-seen": "1"}


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({**VALID, "trained_texts": np.array([2, 1], dtype=np.uint64)}, METADATA, "it must hold sorted"),
        ({**VALID, "trained_pairs": np.array([1.0])}, METADATA, "it must hold sorted 64-bit hashes"),
        ({"trained_texts": VALID["trained_texts"]}, METADATA, "trained_pairs"),
        (VALID, {}, "is damaged, or of a newer nearfar"),
    ],
)
def test_a_file_with_other_content_is_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str], message: str
) -> None:
    save_file(tensors, tmp_path / SEEN_FILE, metadata=metadata)
    with pytest.raises(NearfarError, match=f"{SEEN_FILE}: .*{message}"):
        read_seen(tmp_path)
