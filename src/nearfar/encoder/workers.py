"""Several processes of one machine that encode blocks side by side, each with an encoder of its own."""

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.finite import NotFiniteError
from nearfar.encoder.kernels import NOT_USED, kernels
from nearfar.encoder.stream import Encoded, TokenBlock
from nearfar.runtime import threads
from nearfar.types import NearfarError


class WorkerConfig(NamedTuple):
    """What every process is to do: open this encoder, and encode so."""

    folder: Path
    pooling: str
    max_length: int
    normalize: bool
    bf16: bool


def assign_devices(device: str | None, processes: int) -> list[str]:
    """Where each process computes: on the GPUs in turn where ``device`` is ``cuda`` or left open, else all there."""
    if device in (None, "cuda") and (gpus := torch.cuda.device_count()):
        return [f"cuda:{number % gpus}" for number in range(processes)]
    return [device or "cpu"] * processes


def encode_in_processes(
    blocks: Iterator[TokenBlock],
    config: WorkerConfig,
    devices: Sequence[str],
    *,
    on_batch: Callable[[int], None] | None = None,
) -> Encoded:
    """Encode blocks side by side; they come in the order in which they are done.

    One process a device, started afresh (spawn), so that a script that calls this keeps its own start under ``if
    __name__ == "__main__"``. They share this process's threads. When this process ends, however it does, they end.

    Raises:
        NearfarError: a process fails or dies, or a vector is not finite.
    """
    context = multiprocessing.get_context("spawn")
    share = max(1, torch.get_num_threads() // len(devices))
    if "cpu" in devices:
        kernels()  # built before the processes look for them, and what there is to say is said once
    processes: dict[Connection, BaseProcess] = {}
    busy: dict[Connection, TokenBlock] = {}
    try:
        for device in devices:
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(
                target=_worker_main, args=(theirs, config, device, share), daemon=True
            )
            with threads.child_environment():
                process.start()
            theirs.close()  # theirs alone: when they die, reading ours ends
            processes[ours] = process
        upcoming = next(blocks, None)
        while upcoming or busy:
            for pipe in cast(list[Connection], wait(list(processes))):  # of another class on Windows
                kind, value = _receive(pipe, processes[pipe])
                if kind == "batch":
                    if on_batch:
                        on_batch(value)
                    continue
                done = busy.pop(pipe, None)
                if kind == "not finite":
                    assert done is not None
                    raise done.with_global_number(NotFiniteError(*value))
                if upcoming:
                    _send(pipe, upcoming.tokenized.ids, processes[pipe])
                    busy[pipe], upcoming = upcoming, next(blocks, None)
                if done:
                    yield done, value
    finally:
        for pipe, process in processes.items():
            pipe.close()
            process.terminate()
            process.join()


def _send(pipe: Connection, value: object, process: BaseProcess) -> None:
    try:
        pipe.send(value)
    except ConnectionError:
        raise _death(process) from None


def _receive(pipe: Connection, process: BaseProcess) -> tuple[str, Any]:
    try:
        kind, value = pipe.recv()
    except (EOFError, ConnectionError):
        raise _death(process) from None
    if kind == "error":
        raise NearfarError(f"One of the --processes failed: {value}")
    return kind, value


def _death(process: BaseProcess) -> NearfarError:
    process.join(5)
    code = process.exitcode or 0
    how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
    return NearfarError(
        f"One of the --processes died ({how}), perhaps for want of memory: each has an encoder of its own."
    )


def _worker_main(pipe: Connection, config: WorkerConfig, device: str, threads: int) -> None:
    """What a process does: says that it is ready, then answers token ids with vectors until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that reads and writes
    warnings.filterwarnings("ignore", message=NOT_USED)
    torch.set_num_threads(threads)
    try:
        encoder = Encoder.from_pretrained(
            config.folder, pooling=config.pooling, max_length=config.max_length, device=device
        )
        pipe.send(("ready", None))
        while True:
            vectors = encoder.encode_tokens(
                pipe.recv(),
                normalize=config.normalize,
                bf16=config.bf16,
                on_batch=lambda texts: pipe.send(("batch", texts)),
            )
            pipe.send(("vectors", vectors))
    except (EOFError, ConnectionError):  # the other process has gone
        return
    except NotFiniteError as error:
        pipe.send(("not finite", (error.number, error.content)))
    except Exception as error:
        pipe.send(("error", str(error) or type(error).__name__))
