"""Commands called from Python: a config object and keyword arguments are the same."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from nearfar.config.bounds import Count, File, Output
from nearfar.config.calls import accepts_settings
from nearfar.config.values import Settings
from nearfar.types import NearfarError


@dataclass(frozen=True, kw_only=True)
class CopyConfig(Settings):
    """Settings of a command that copies."""

    output: Output
    """File to write."""
    tasks: tuple[File, ...] | None = None
    """Tasks."""
    times: Count = 1
    """How often."""
    name: str | None = None
    """Name."""
    mode: Literal["slow", "fast"] = "slow"
    """Mode."""

    def conflicts(self) -> Iterator[str]:
        if self.mode == "fast" and self.times > 5:
            yield "--times: at most 5 with --mode fast."


@dataclass(frozen=True, kw_only=True)
class OtherConfig(Settings):
    output: Output = "x"


@accepts_settings(CopyConfig)
def copy(source: str, config: CopyConfig, *, block: int = 3, progress: bool = True) -> tuple[Any, ...]:
    """Copy a source."""
    return source, config, block, progress


@accepts_settings(CopyConfig)
def merge(first: str, *more: str, config: CopyConfig, progress: bool = True) -> tuple[Any, ...]:
    return (first, *more), config, progress


@accepts_settings(CopyConfig)
def move(*places: str | Path, config: CopyConfig) -> tuple[Any, ...]:
    return places


CONFIG = CopyConfig(output="out", tasks=("a", "b"), times=2)


def test_a_config_and_keywords_are_the_same() -> None:
    expected = ("in", CONFIG, 3, True)
    assert copy("in", CONFIG) == expected
    assert copy("in", config=CONFIG) == expected
    assert copy(config=CONFIG, source="in") == expected
    assert copy("in", output="out", tasks=["a", "b"], times=2) == expected
    assert copy("in", None, output="out", tasks=("a", "b"), times=2) == expected
    assert copy(source="in", output=Path("out"), tasks=[Path("a"), "b"], times=2) == expected
    assert copy("in", output="out", tasks="a")[1].tasks == copy("in", output="out", tasks=Path("a"))[1].tasks == ("a",)


def test_a_keyword_overrides_the_config() -> None:
    _, config, block, progress = copy("in", CONFIG, times=4, name="n", block=7, progress=False)
    assert config == CopyConfig(output="out", tasks=("a", "b"), times=4, name="n")
    assert (block, progress, CONFIG.times) == (7, False, 2)
    assert copy("in", CONFIG, tasks=None)[1].tasks is None


def test_any_number_of_positional_arguments() -> None:
    assert merge("a", "b", "c", output="out") == (("a", "b", "c"), CopyConfig(output="out"), True)
    assert merge("a", config=CONFIG, progress=False) == (("a",), CONFIG, False)
    assert merge("a", "b", config=CONFIG, times=9)[1].times == 9
    with pytest.raises(NearfarError, match=re.escape("merge(): no setting is called 'confg'. Did you mean 'config'?")):
        merge("a", "b", confg=CONFIG)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"outptu": "x"}, "copy(): no setting is called 'outptu'. Did you mean 'output'?"),
        ({"times": 2}, "copy(): lacks output."),
        ({"output": "x", "times": 0}, "copy(): times = 0: must be at least 1."),
        ({"output": "x", "tasks": 3}, 'copy(): tasks = 3: must be a list, as in ["one", "two"].'),
        ({"output": "x", "mode": "fast", "times": 6}, "copy(): --times: at most 5 with --mode fast."),
        ({"config": OtherConfig()}, "copy(): config must be a CopyConfig, not OtherConfig"),
        ({"config": CONFIG, "times": -1}, "copy(): times = -1: must be at least 1."),
    ],
)
def test_mistakes(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(NearfarError, match=re.escape(message)):
        copy("in", **keywords)


def test_a_setting_given_by_position() -> None:
    with pytest.raises(NearfarError, match=r"config must be a CopyConfig, not str 'out'\. Give settings by name"):
        copy("in", "out")
    with pytest.raises(TypeError, match=r"copy\(\): too many positional arguments; give settings by name"):
        copy("in", CONFIG, "out")
    with pytest.raises(TypeError, match="source"):
        copy(output="x")


def test_help_shows_the_settings() -> None:
    assert str(inspect.signature(copy)) == (
        "(source: str, config: "
        f"{CopyConfig.__module__}.CopyConfig | None = None, *, output: str, tasks: tuple[str, ...] | None = None, "
        "times: int = 1, name: str | None = None, mode: Literal['slow', 'fast'] = 'slow', block: int = 3, "
        "progress: bool = True) -> tuple[typing.Any, ...]"
    )
    assert (copy.__name__, copy.__doc__) == ("copy", "Copy a source.")


def test_an_open_model_is_no_folder() -> None:
    assert move("a", Path("b"), output="x") == ("a", Path("b"))
    with pytest.raises(NearfarError, match=re.escape("move(): places must be a name or a folder, not a int; save it")):
        move("a", 3, output="x")  # type: ignore[arg-type]
