"""The OpenVINO side of encoding.py, in a process of its own because it may need other package versions.

It imports nothing from nearfar. First it prints its package versions. Then, for each line ``{"texts": [...], "output":
file}`` on standard input, it writes the vectors to the file and prints a line with the seconds.
"""

import json
import os
import sys
import time
from importlib import metadata

import numpy as np
from sentence_transformers import SentenceTransformer


def main(model: str) -> None:
    """Encode until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not be mixed with the answers
    encoder = SentenceTransformer(model, backend="openvino", device="cpu")
    packages = ("openvino", "optimum-intel", "sentence-transformers", "transformers", "torch")
    print(json.dumps({name: metadata.version(name) for name in packages}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        vectors = encoder.encode(request["texts"], show_progress_bar=False)
        seconds = time.perf_counter() - started
        np.save(request["output"], vectors)
        print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
