"""Every shipped config loads, and is what its file name says."""

from pathlib import Path

import pytest

from nearfar.config import AugmentConfig, SclConfig, build, dump_toml, load_toml, method_of

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))


def test_there_are_configs() -> None:
    assert len(CONFIGS) >= 6


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_config_loads_and_survives_a_round_trip(file: Path, tmp_path: Path) -> None:
    kind, values = load_toml(file)
    config = build(kind, {"output": "x", **values}, source=file)
    assert method_of(config) in file.stem
    (tmp_path / "again.toml").write_text(dump_toml(config))
    kind, values = load_toml(tmp_path / "again.toml")
    assert build(kind, values, source="again") == config


def test_defaults_are_the_paper_s() -> None:
    config = SclConfig(output="x")
    assert (config.batch_size, config.epochs, config.learning_rate, config.warmup) == (64, 1, 2e-5, 0.1)
    assert (config.scl_weight, config.temperature, config.similarity) == (0.3, 1.0, "dot")
    assert (config.max_positives, config.max_negatives) == ("all", "all")
    assert (config.pooling, config.schedule, config.data) == ("mean_without_cls", "linear", ("snli",))
    assert (AugmentConfig(output="x").max_positives, AugmentConfig(output="x").max_negatives) == (3, 3)
