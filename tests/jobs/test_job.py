"""Jobs as values: keys, equality, copies, and values that are refused."""

import hashlib
import json
import pickle
from collections.abc import Callable

import pytest

from nearfar.jobs import Job
from nearfar.types import NearfarError


def test_the_key_is_the_hash_of_the_canonical_json() -> None:
    start = Job("package.module:name", {"seed": 1})
    job = Job("package.module:other", {"b": [1, "é"], "a": None}, {"start": start})
    text = (
        '{"function":"package.module:other","inputs":{"start":"' + start.key + '"},'
        '"settings":{"a":null,"b":[1,"\\u00e9"]}}'
    )
    assert job.key == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_key_does_not_depend_on_order_or_container() -> None:
    first = Job("m:f", {"a": 1, "b": {"c": [1, 2], "d": 0.5}}, {"x": Job("m:g"), "y": Job("m:h")})
    second = Job("m:f", {"b": {"d": 0.5, "c": (1, 2)}, "a": 1.0}, {"y": Job("m:h"), "x": Job("m:g")})
    assert first.key == second.key
    assert first == second
    assert len({first, second}) == 1


CHANGES: dict[str, Callable[[], Job]] = {
    "function": lambda: Job("m:g", {"a": 1}, {"x": Job("m:start")}),
    "value": lambda: Job("m:f", {"a": 2}, {"x": Job("m:start")}),
    "type": lambda: Job("m:f", {"a": "1"}, {"x": Job("m:start")}),
    "truth": lambda: Job("m:f", {"a": True}, {"x": Job("m:start")}),
    "fraction": lambda: Job("m:f", {"a": 1.0000000001}, {"x": Job("m:start")}),
    "name": lambda: Job("m:f", {"b": 1}, {"x": Job("m:start")}),
    "addition": lambda: Job("m:f", {"a": 1, "b": None}, {"x": Job("m:start")}),
    "input": lambda: Job("m:f", {"a": 1}, {"x": Job("m:start", {"seed": 2})}),
    "input's name": lambda: Job("m:f", {"a": 1}, {"y": Job("m:start")}),
    "no input": lambda: Job("m:f", {"a": 1}),
    "input's input": lambda: Job("m:f", {"a": 1}, {"x": Job("m:start", {}, {"z": Job("m:start")})}),
}


def test_the_key_changes_with_every_part() -> None:
    keys = {Job("m:f", {"a": 1}, {"x": Job("m:start")}).key, *(make().key for make in CHANGES.values())}
    assert len(keys) == len(CHANGES) + 1


def test_local_settings_and_resources_are_not_in_the_key() -> None:
    plain = Job("m:f", {"a": 1})
    job = Job("m:f", {"a": 1}, local={"path": "/here"}, uses="gpu")
    assert job == plain
    assert job.describe() == plain.describe()


def test_a_job_is_a_copy_that_can_be_sent() -> None:
    settings = {"a": [1, {"b": 2}]}
    job = Job("m:f", settings, {"x": Job("m:g")})
    settings["a"].append(3)
    assert job.settings == {"a": [1, {"b": 2}]}
    again = pickle.loads(pickle.dumps(job))
    assert again == job
    assert again.describe() == job.describe()
    assert json.loads(json.dumps(job.describe())) == job.describe()
    with pytest.raises(AttributeError):
        job.function = "m:g"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Job("module.function"), "package.module:name"),
        (lambda: Job("module:a b"), "package.module:name"),
        (lambda: Job(":f"), "package.module:name"),
        (lambda: Job("m:f", {"a": {"b": float("nan")}}), "settings.a.b: nan is not a finite number"),
        (lambda: Job("m:f", {"a": [float("-inf")]}), r"settings.a\[0\]: -inf is not a finite number"),
        (lambda: Job("m:f", {"a": {1: 2}}), "settings.a: the key 1 must be a string"),  # type: ignore[dict-item]
        (lambda: Job("m:f", {"a": {1, 2}}), "settings.a: set is no JSON value"),  # type: ignore[dict-item]
        (lambda: Job("m:f", local={"a": object()}), "local.a: object is no JSON value"),  # type: ignore[dict-item]
        (lambda: Job("m:f", {"a": 1}, local={"a": 2}), "a: in both settings and local"),
    ],
)
def test_what_cannot_be_a_job_is_refused(make: Callable[[], Job], message: str) -> None:
    with pytest.raises(NearfarError, match=message):
        make()
