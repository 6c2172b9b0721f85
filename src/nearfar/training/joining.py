"""Joins the process group of torchrun, over the network interface by which the machines reach each other.

By default gloo listens on the address that the machine's own name has. On many machines this is a loopback address,
which other machines cannot reach. So with several machines, the interface is the one that leads to the first process.

torchrun may restart the processes (``--max-restarts``). By default, they find each other through a store of torchrun
that still has the addresses of the processes before, and may wait for these until the timeout. So a store that does not
survive a restart is required.
"""

import os
import socket
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address

import torch

from nearfar.training.processes import is_connection_error
from nearfar.types import NearfarError

INTERFACE = "GLOO_SOCKET_IFNAME"
FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""The environment variable of torchrun by which processes that it restarts get a new store."""
ANYWHERE = "192.0.2.1"
"""An address that no machine has (RFC 5737). Nothing is sent to it."""


def join_process_group(*, cpu: bool, timeout: timedelta) -> torch.device:
    """Join the process group if torchrun started several processes; the device of this process.

    Args:
        cpu: compute on the CPU, even if there is a GPU.
        timeout: how long a process waits for the others.

    Raises:
        NearfarError: the other processes cannot be reached, or could not be reached after a restart.
    """
    from accelerate import PartialState

    require_fresh_store()
    interface = None if INTERFACE in os.environ else interface_to_first_process()
    if interface is not None:
        os.environ[INTERFACE] = interface
    try:
        device: torch.device = PartialState(cpu=cpu, timeout=timeout).device
    except RuntimeError as error:
        if not is_connection_error(error):
            raise
        reason = " ".join(str(error).split())[-160:]
        raise NearfarError(
            f"the processes of torchrun cannot connect to each other ({reason}). Check that all nodes have started, "
            f"and that no firewall is between them; {INTERFACE} (CPU) or NCCL_SOCKET_IFNAME (GPUs) names the network "
            "interface to use, as in eth0."
        ) from error
    return device


def require_fresh_store() -> None:
    """Check that processes that torchrun restarts do not find the addresses of the processes before.

    Raises:
        NearfarError: torchrun may restart several processes, and they would share a store with those before.
    """
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if several and restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise NearfarError(
            f"torchrun --max-restarts: start torchrun with the environment variable {FRESH_STORE}=1 and with "
            "--rdzv-backend c10d. Otherwise processes that it restarts may look for those that have ended, and wait "
            "until the timeout."
        )


def interface_to_first_process() -> str | None:
    """The network interface that leads to the machine of the first process; None if all are on one machine.

    On the machine of the first process itself, whose own name may be a loopback address, it is that of the default
    route. None if it is not known.
    """
    first = os.environ.get("MASTER_ADDR")
    sizes = os.environ.get("WORLD_SIZE"), os.environ.get("LOCAL_WORLD_SIZE")
    if first is None or sizes[0] == sizes[1] or None in sizes:
        return None
    address = _own_address_towards(first)
    if address is not None and ip_address(address).is_loopback:
        address = _own_address_towards(ANYWHERE) or address
    return None if address is None else _interface_of(address)


def _own_address_towards(host: str) -> str | None:
    """The address of this machine from which it would send to ``host``; nothing is sent."""
    with suppress(OSError, UnicodeError):
        for family, kind, protocol, _, target in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0]).partition("%")[0]
    return None


def _interface_of(address: str) -> str | None:
    import psutil

    return next(
        (
            str(name)
            for name, addresses in psutil.net_if_addrs().items()
            if any(one.address.partition("%")[0] == address for one in addresses)
        ),
        None,
    )
