"""Exact search: queries per second, and the peak memory beside the vectors.

    python benchmarks/search.py run       writes benchmarks/results/search.json
    python benchmarks/search.py report    prints the numbers from that file

`search` is :func:`nearfar.neighbours.exact.nearest` for the 100 nearest of random unit vectors. `evaluate` is
:func:`nearfar.evaluation.retrieval.evaluate_retrieval` from texts to scores, with an encode function that draws the
vector of a text. Each measurement runs in a process of its own. Memory beside the vectors is the peak during the
measurement, less the memory of the process before it (for `search` with the vectors, for `evaluate` with the texts but
without vectors), less the vectors in the case of `evaluate`.
"""

import argparse
import json
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
LIMIT_MIB = 400
"""The memory beside the vectors of a million documents that must not be exceeded."""


def main() -> None:
    """Run or report, or take one measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "report", "one"), help="one: a single measurement, used by run")
    parser.add_argument("case", nargs="?", choices=CASES, help="of one")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.command == "one":
        measured = (_search if options.case == "search" else _evaluate)(
            options.documents, options.queries, options.device
        )
        print(json.dumps(measured))
        return
    result, _ = common.Page("search", "search", "").files()
    if options.command == "report":
        report(common.load(result))
        return
    sizes = {"documents": options.documents, "queries": options.queries}
    record = common.record(**sizes, dim=DIM, k=K, rounds=options.rounds, device=options.device, cases={})
    words = [word for name, size in sizes.items() for word in (f"--{name}", size)]
    for case in CASES:
        flags = (*words, "--device", options.device)
        record["cases"][case] = [common.in_process(__file__, "one", case, *flags) for _ in range(options.rounds)]
    report(record)
    common.save(result, record)


def report(record: dict[str, Any]) -> None:
    """Print the numbers of a result file."""
    print(f"{record['documents']:,} documents, {record['queries']:,} queries, {DIM} numbers, {common.machine(record)}")
    for case, rounds in record["cases"].items():
        beside = max(measured["beside_mib"] for measured in rounds)
        rate = median(record["queries"] / measured["seconds"] for measured in rounds)
        limit = common.verdict(beside, LIMIT_MIB, at_most=True)
        print(f"{case}: {rate:.0f} queries/s; {beside:.0f} MiB beside the vectors (below {limit})")


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
    main()
