"""The network interface of several machines, and an error where they cannot connect."""

import os
import sys
from datetime import timedelta
from types import SimpleNamespace

import accelerate
import psutil
import pytest

from nearfar.training import processes as joining
from nearfar.training.processes import interface_to_first_process, join_process_group, require_fresh_store
from nearfar.types import NearfarError


@pytest.fixture
def several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that torchrun sets on the second of two machines."""
    for name, value in {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    interfaces = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.2", "fe80::1%eth0"], "eth1": ["10.1.0.2"]}
    addresses = {name: [SimpleNamespace(address=one) for one in some] for name, some in interfaces.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"first": "10.1.0.2"}, "eth1"),
        ({"first": "fe80::1"}, "eth0"),
        ({"first": "127.0.1.1", joining.ANYWHERE: "10.0.0.2"}, "eth0"),  # the first machine: its name is a loopback
        ({"first": "127.0.0.1"}, "lo"),  # no other network
        ({"first": "10.9.9.9"}, None),
        ({}, None),
    ],
)
def test_the_interface_leads_to_the_first_machine(
    own: dict[str, str], expected: str | None, several_machines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "first")
    monkeypatch.setattr(joining, "_own_address_towards", own.get)
    assert interface_to_first_process() == expected


@pytest.mark.usefixtures("several_machines")
def test_on_one_machine_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert interface_to_first_process() is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR")
    assert interface_to_first_process() is None


def test_an_own_address_is_found_without_sending() -> None:
    assert joining._own_address_towards("127.0.0.1") == "127.0.0.1"
    assert joining._own_address_towards("no such host") is None


@pytest.mark.usefixtures("several_machines")
def test_restarts_need_a_fresh_store(monkeypatch: pytest.MonkeyPatch) -> None:
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
@pytest.mark.usefixtures("several_machines")
def test_machines_that_cannot_connect_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        assert os.environ["GLOO_SOCKET_IFNAME"] == "eth1"
        raise RuntimeError("Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] timed out connecting")

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")  # the user's own choice stays
    monkeypatch.setattr(accelerate, "PartialState", refused)
    with pytest.raises(
        NearfarError, match=r"cannot connect to each other \(.*timed out connecting\).*GLOO_SOCKET_IFNAME"
    ):
        join_process_group(cpu=True, timeout=timedelta(seconds=1))
