"""The side of encoding.py that is sentence-transformers on OpenVINO: a process, as it may need other versions.

It imports nothing of nearfar. First it says what versions it has; then it reads a line ``{"texts": [...], "output":
file}``, writes the vectors to the file, and answers with a line that holds the seconds, again and again.
"""

import json
import os
import sys
import time
from importlib import metadata

import numpy as np
from sentence_transformers import SentenceTransformer


def main(model: str) -> None:
    """Encode until there is no further line."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    encoder = SentenceTransformer(model, backend="openvino", device="cpu")
    packages = ("openvino", "optimum-intel", "sentence-transformers", "transformers", "torch")
    print(json.dumps({name: metadata.version(name) for name in packages}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        vectors = encoder.encode(asked["texts"], show_progress_bar=False)
        seconds = time.perf_counter() - started
        np.save(asked["output"], vectors)
        print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
