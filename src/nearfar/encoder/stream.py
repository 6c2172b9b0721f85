"""Blocks of texts -> blocks of vectors, for any number of texts, in this process or in several.

A thread tokenises the next block during encoding. Worker processes on this machine have their own encoders.
"""

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from nearfar.encoder.encoder import Encoder
from nearfar.encoder.kernels import NOT_USED, kernels
from nearfar.encoder.prompts import Role
from nearfar.encoder.token_batches import NotFiniteError, Tokenized
from nearfar.runtime import threads
from nearfar.types import NearfarError

Item = TypeVar("Item")


class TokenBlock(NamedTuple):
    """A block of texts, of which each distinct one is tokenised once; ``start`` is the number of its first text.

    Texts are deduplicated only within a block. Across blocks, the last bits of a vector would depend on whether the run
    was interrupted.
    """

    start: int
    rows: NDArray[np.intp]
    """Index of each text among the distinct texts."""
    tokenized: Tokenized

    def with_global_number(self, error: NotFiniteError) -> NotFiniteError:
        """The error with the text's number among all texts, from its number among the block's distinct texts."""
        return NotFiniteError(self.start + int((self.rows == error.number).argmax()), error.content)

    def expand_distinct(self, vectors: Float[np.ndarray, "distinct dim"]) -> Float[np.ndarray, "texts dim"]:
        """The vectors of all texts of the block, from those of the distinct texts."""
        return vectors if len(self.rows) == len(vectors) else vectors[self.rows]


Encoded: TypeAlias = Generator[tuple[TokenBlock, Float[np.ndarray, "distinct dim"]], None, None]
"""Blocks with the vectors of their distinct texts."""


def tokenize_blocks(
    encoder: Encoder, blocks: Iterable[tuple[int, list[str]]], *, role: Role | None = None
) -> Iterator[TokenBlock]:
    """Tokenise blocks of texts, given as (start, texts), in a thread that is one block ahead.

    Prompt and maximum length are those of the ``role`` of the texts.
    """
    prompt, max_length = encoder.prompt_of(role), encoder.length_of(role)

    def tokenize(start: int, texts: list[str]) -> TokenBlock:
        distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
        rows = np.fromiter((distinct[text] for text in texts), dtype=np.intp, count=len(texts))
        return TokenBlock(start, rows, encoder.tokenize(list(distinct), prompt=prompt, max_length=max_length))

    return prefetch(starmap(tokenize, blocks))


def encode_blocks(encoder: Encoder, blocks: Iterable[TokenBlock], **settings: Any) -> Encoded:
    """Encode block after block by :meth:`Encoder.encode_tokens`; the vectors equal those of :meth:`Encoder.encode`.

    Raises:
        NotFiniteError: a vector is not finite.
    """
    for block in blocks:
        tokens = block.tokenized
        try:
            vectors = encoder.encode_tokens(tokens.ids, prompt_length=tokens.prompt_length, **settings)
        except NotFiniteError as error:
            raise block.with_global_number(error) from None
        yield block, vectors


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, none of them None; a thread computes the next one while the caller uses the current one.

    Its end does not wait for the thread: after an error, the garbage collector may close it at a moment when another
    thread starts, and each would wait for the other.
    """
    thread = ThreadPoolExecutor(1)
    try:
        following = thread.submit(lambda: next(items, None))
        while (item := following.result()) is not None:
            following = thread.submit(lambda: next(items, None))
            yield item
    finally:
        thread.shutdown(wait=False)


class WorkerConfig(NamedTuple):
    """The encoder that every worker opens, and how it encodes texts without a role."""

    folder: Path
    opening: dict[str, Any]
    """Arguments of :meth:`Encoder.from_pretrained`."""
    encoding: dict[str, Any]
    """Arguments of :meth:`Encoder.encode_tokens`."""


def assign_devices(device: str | None, processes: int) -> list[str]:
    """The device of each process: round-robin over the GPUs if ``device`` is ``cuda`` or None, else ``device``."""
    if device in (None, "cuda") and (gpus := torch.cuda.device_count()):
        return [f"cuda:{number % gpus}" for number in range(processes)]
    return [device or "cpu"] * processes


def encode_in_processes(
    blocks: Iterator[TokenBlock], config: WorkerConfig, devices: Sequence[str], *, on_batch: Callable[[int], None]
) -> Encoded:
    """Encode blocks in parallel; they are yielded in the order in which they finish.

    One worker per entry of ``devices`` is started by spawn, so a script that calls this needs an ``if __name__ ==
    "__main__"`` guard. The workers divide this process's threads between them. They end when this process ends, for
    whatever reason. ``on_batch`` gets the number of distinct texts of each block.

    Raises:
        NearfarError: a worker fails or dies, or a vector is not finite.
    """
    context = multiprocessing.get_context("spawn")
    threads_per_worker = max(1, torch.get_num_threads() // len(devices))
    if "cpu" in devices:
        kernels()  # build them before the workers load them, and warn only once
    workers: dict[Connection, BaseProcess] = {}
    busy: dict[Connection, TokenBlock] = {}
    try:
        for device in devices:
            ours, theirs = context.Pipe()
            workers[ours] = context.Process(
                target=_worker_main, args=(theirs, config, device, threads_per_worker), daemon=True
            )
            with threads.child_environment():
                workers[ours].start()
            theirs.close()  # then only the worker holds this end, and reading from ours fails when the worker dies
        upcoming = next(blocks, None)
        while upcoming or busy:
            for pipe in cast("list[Connection]", wait(list(workers))):  # another class on Windows
                done = busy.pop(pipe, None)
                try:
                    answer = pipe.recv()
                    if isinstance(answer, NotFiniteError) and done:
                        raise done.with_global_number(answer)
                    if isinstance(answer, NearfarError):
                        raise answer
                    if upcoming:
                        pipe.send(upcoming.tokenized)
                        busy[pipe], upcoming = upcoming, next(blocks, None)
                except (EOFError, ConnectionError):
                    workers[pipe].join(5)
                    problem = f"died (exit status {workers[pipe].exitcode}). It may have run out of memory"
                    raise NearfarError(f"One of the --processes {problem}: each loads its own encoder.") from None
                if done:
                    on_batch(len(answer))
                    yield done, answer
    finally:
        for pipe, worker in workers.items():
            pipe.close()
            worker.terminate()
            worker.join()


def _worker_main(pipe: Connection, config: WorkerConfig, device: str, num_threads: int) -> None:
    """Main function of a worker: send None when it is ready, then answer texts with vectors until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    warnings.filterwarnings("ignore", message=NOT_USED)
    torch.set_num_threads(num_threads)
    try:
        encoder = Encoder.from_pretrained(config.folder, device=device, **config.opening).of_role(None)
        pipe.send(None)
        while True:
            tokens: Tokenized = pipe.recv()
            pipe.send(encoder.encode_tokens(tokens.ids, prompt_length=tokens.prompt_length, **config.encoding))
    except (EOFError, ConnectionError):  # the parent process has ended
        return
    except NotFiniteError as error:
        pipe.send(error)
    except Exception as error:
        pipe.send(NearfarError(f"One of the --processes failed: {str(error) or type(error).__name__}"))
