"""Exact search: queries per second, and the peak memory beside the vectors.

    python benchmarks/search.py run       writes benchmarks/results/search.json
    python benchmarks/search.py report    fills its place in docs/costs.md from that file alone

`search` is :func:`nearfar.neighbours.exact.nearest` for the 100 nearest of random unit vectors. `evaluate` is
:func:`nearfar.evaluation.retrieval.evaluate_retrieval` from texts to scores, with an encode function that draws the
vector of a text. Each measurement runs in a process of its own. Memory beside the vectors is the peak during the
measurement, less the memory of the process before it (for `search` with the vectors, for `evaluate` with the texts but
without vectors), less the vectors in the case of `evaluate`.
"""

import argparse
import time
from statistics import median
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray

from nearfar.data.retrieval import RetrievalTask
from nearfar.evaluation.retrieval import evaluate_retrieval
from nearfar.neighbours.exact import nearest

DIM, K = 384, 100
CASES = ("search", "evaluate")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both cases."""
    sizes = {"documents": options.documents, "queries": options.queries}
    record = common.record(**sizes, dim=DIM, k=K, rounds=options.rounds, device=options.device, cases={})
    for case in CASES:
        own = {"case": case, **sizes, "device": options.device}
        record["cases"][case] = [common.in_process(__file__, **own) for _ in range(options.rounds)]
    return record


def measure(case: str, **setting: Any) -> dict[str, float]:
    """One measurement of a case."""
    return (_search if case == "search" else _evaluate)(**setting)


def body(record: dict[str, Any]) -> list[str]:
    """Speed of each case, and its memory."""
    rows = []
    for case, rounds in record["cases"].items():
        rate = median(record["queries"] / measured["seconds"] for measured in rounds)
        rows.append((case, f"{rate:.0f}", f"{max(measured['beside_mib'] for measured in rounds):.0f}"))
    what = f"{record['documents']:,} documents, {record['queries']:,} queries, {DIM} numbers a vector:"
    return [what, "", *common.table(("case", "queries/s", "MiB beside the vectors"), rows)]


def _vectors(rows: int, seed: int) -> NDArray[np.float32]:
    """Random unit vectors, made in blocks, so that the peak memory is that of the vectors."""
    rng, vectors = np.random.default_rng(seed), np.empty((rows, DIM), dtype=np.float32)
    for start in range(0, rows, 4096):
        block = vectors[start : start + 4096]
        block[:] = rng.standard_normal(block.shape, dtype=np.float32)
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    return vectors


def _search(documents: int, queries: int, device: str) -> dict[str, float]:
    vectors, asked = _vectors(documents, 0), _vectors(queries, 1)
    nearest(asked[:2], vectors[:100], K, device=device)  # starts the threads
    before = common.peak_mib()
    started = time.perf_counter()
    nearest(asked, vectors, K, device=device)
    return {"seconds": time.perf_counter() - started, "beside_mib": common.peak_mib() - before}


def _evaluate(documents: int, queries: int, device: str) -> dict[str, float]:
    def encode(texts: object) -> NDArray[np.float32]:
        block = list(texts)  # type: ignore[call-overload]
        return _vectors(len(block), len(block[0]) + len(block))

    task = RetrievalTask(
        queries=[f"query {number}" for number in range(queries)],
        documents=[f"document {number} " + "word " * 20 for number in range(documents)],
        relevant=[{number: 1} for number in range(queries)],
        query_ids=[f"q{number}" for number in range(queries)],
        document_ids=[f"d{number}" for number in range(documents)],
    )
    before = common.peak_mib()
    started = time.perf_counter()
    evaluate_retrieval(encode, encode, {"task": task}, device=device)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "beside_mib": common.peak_mib() - before - documents * DIM * 4 / 2**20}


if __name__ == "__main__":
    common.main(
        common.Page("search", "costs"),
        __doc__,
        run,
        body,
        common.Sizes("rounds", "measurements of a case", 3, 1),
        common.Sizes("documents", "vectors to search", 1_000_000, 10_000),
        common.Sizes("queries", "vectors to search for", 500, 50),
        more=lambda parser: parser.add_argument("--device", default="cpu"),
        one=measure,
    )
