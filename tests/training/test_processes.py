"""Communication with mocked processes, and how they find each other. Real processes: tests/distributed."""

import sys
from datetime import timedelta

import accelerate
import pytest
import torch
from torch import distributed, nn

from nearfar.training import processes as module
from nearfar.training.processes import (
    Processes,
    join_process_group,
    leave_process_group,
    require_fresh_store,
)
from nearfar.types import NearfarError


def test_one_process() -> None:
    processes = Processes()
    assert (processes.rank, processes.size, processes.is_main) == (0, 1, True)
    assert list(range(7))[processes.share] == list(range(7))
    assert processes.any_process(True) is True
    assert processes.any_process(False) is False
    assert not distributed.is_initialized()
    leave_process_group()  # there is no process group
    rows = torch.randn(3, 4, 2, requires_grad=True)
    gathered = processes.gather(rows * 2, 3)
    assert torch.equal(gathered, rows.detach() * 2)
    assert not gathered.requires_grad
    with pytest.raises(NearfarError, match="is in the way"):
        processes.broadcast_from_first(fail)


def one_of_two(rank: int) -> Processes:
    one = Processes()
    one.rank, one.size = rank, 2
    return one


def fail() -> str:
    raise NearfarError("run: is in the way.")


def exchanging(monkeypatch: pytest.MonkeyPatch, *others: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    """Mocks the other processes' nodes, kinds and texts; returns what this process sends."""
    sent: list[tuple[str, str, str]] = []

    def gather(found: list[object], own: tuple[str, str, str]) -> None:
        sent.append(own)
        found[:] = [own, *others]

    monkeypatch.setattr(module.distributed, "all_gather_object", gather)
    monkeypatch.setattr(module.platform, "node", lambda: "here")
    return sent


def test_processes_agree_or_all_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    Processes().agree("--data x", "one process agrees with itself")
    sent = exchanging(monkeypatch, ("there", "value", "abc"))
    one_of_two(0).agree("--data x", "abc")
    with pytest.raises(
        NearfarError, match=r"--data x differs between here \(process 0\) and there \(process 1\)\. All processes"
    ):
        one_of_two(0).agree("--data x", "abd")
    assert sent == [("here", "value", "abc"), ("here", "value", "abd")]


def test_an_error_of_one_process_is_raised_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = exchanging(monkeypatch, ("there", "error", "x: no such file"))
    with pytest.raises(NearfarError, match=r"^on there \(process 1\): x: no such file$"):
        one_of_two(0).agree("--data x", "abc")
    with pytest.raises(NearfarError, match="x: no such file"), one_of_two(0).joint_errors():
        pass  # the other process failed in the block
    assert sent == [("here", "value", "abc"), ("here", "value", "")]


def test_a_lost_connection_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: object) -> None:
        raise RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:99")

    monkeypatch.setattr(module.distributed, "all_reduce", closed)
    monkeypatch.setattr(module.distributed, "get_backend", lambda: "gloo")
    linear = nn.Linear(2, 1)
    for call in (lambda: one_of_two(0).any_process(True), lambda: one_of_two(1).all_reduce_gradients([linear.weight])):
        sentence = r"ended \(.*10\.0\.0\.2\]:99\)\. Look for .* again with --resume"
        with pytest.raises(NearfarError, match=sentence), module.lost_process_errors():
            call()
    with pytest.raises(RuntimeError, match="shapes"), module.lost_process_errors():
        raise RuntimeError("shapes do not match")


def test_restarts_need_a_fresh_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.raises(NearfarError, match=r"--max-restarts: .* TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 .* c10d"):
        join_process_group(cpu=True, timeout=timedelta(seconds=1))
    for name, value in [
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("WORLD_SIZE", "1"),
    ]:
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            require_fresh_store()


@pytest.mark.skipif(sys.platform == "win32", reason="gloo")
def test_machines_that_cannot_connect_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise RuntimeError("Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] timed out connecting")

    monkeypatch.setattr(accelerate, "PartialState", refused)
    with pytest.raises(
        NearfarError, match=r"cannot connect to each other \(.*timed out connecting\).*GLOO_SOCKET_IFNAME"
    ):
        join_process_group(cpu=True, timeout=timedelta(seconds=1))
