"""Runs an exported folder by its files alone: tokenizer.json, and the graph in ONNX Runtime or OpenVINO."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from nearfar.commands.export.openvino_graph import openvino_errors
from nearfar.commands.export.source import IDS, MASK, TYPES, Outputs, Source
from nearfar.encoder.classifier import Item

FILES = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}
"""Format -> the name of its graph, which is what sentence-transformers looks for."""
TOKENS = 4096
"""Maximum number of tokens in a batch, padding included."""
Feeds = Mapping[str, NDArray[np.int64]]
Format = Literal["onnx", "openvino"]


class ExportedModel:
    """An exported folder.

    Args:
        folder: the folder.
        kind: the format of the graph.
        threads: number of threads.
        native: compute in the precision that the runtime chooses on this processor, as OpenVINO does with bf16;
            otherwise in fp32.
    """

    def __init__(self, folder: Path, kind: Format, *, threads: int, native: bool = False) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.padding = (self.tokenizer.padding or {}).get("pad_id", 0)
        self.tokenizer.no_padding()  # batches are padded here, after they are sorted by length
        self._run, self.inputs = _open(folder / FILES[kind], kind, threads=threads, native=native)

    def compute(self, items: Sequence[Item], *, prompt: str = "") -> Outputs:
        """The outputs [items, width] in the order of ``items``, one or two texts each."""
        encodings = self.tokenizer.encode_batch(_prompted(items, prompt))
        order = sorted(range(len(items)), key=lambda row: -len(encodings[row].ids))
        outputs: dict[int, NDArray[np.float32]] = {}
        start = 0
        while start < len(order):
            length = len(encodings[order[start]].ids)
            rows = order[start : start + max(1, TOKENS // length)]
            feeds = {name: np.zeros((len(rows), length), dtype=np.int64) for name in (IDS, MASK, TYPES)}
            feeds[IDS][:] = self.padding
            for place, row in enumerate(rows):
                size = len(encodings[row].ids)
                feeds[IDS][place, :size], feeds[TYPES][place, :size] = encodings[row].ids, encodings[row].type_ids
                feeds[MASK][place, :size] = 1
            outputs |= zip(rows, self._run({name: feeds[name] for name in self.inputs}), strict=True)
            start += len(rows)
        return np.stack([outputs[row] for row in range(len(items))]).astype(np.float32)


def single_feeds(folder: Path, items: Sequence[Item], source: Source) -> list[dict[str, NDArray[np.int64]]]:
    """The inputs of each item alone, tokenised by the files of ``folder``."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    feeds = []
    for encoding in tokenizer.encode_batch(_prompted(items, source.prompt)):
        values = {IDS: encoding.ids, MASK: encoding.attention_mask, TYPES: encoding.type_ids}
        feeds.append({name: np.array([values[name]], dtype=np.int64) for name in source.inputs})
    return feeds


def _prompted(items: Sequence[Item], prompt: str) -> list[str | tuple[str, ...]]:
    """What a tokenizer takes: a text, or a pair."""
    return [prompt + item[0] if len(item) == 1 else item for item in items]


def _open(
    file: Path, kind: Format, *, threads: int, native: bool
) -> tuple[Callable[[Feeds], NDArray[np.float32]], list[str]]:
    """A function that runs the graph, and the names of its inputs."""
    if kind == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_outputs()[0].name
        return lambda feeds: session.run([name], dict(feeds))[0], [one.name for one in session.get_inputs()]
    import openvino

    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if not native:
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    with openvino_errors(file):
        request = openvino.Core().compile_model(file, "CPU", settings).create_infer_request()
    names = [one.get_any_name() for one in request.model_inputs]
    return lambda feeds: request.infer(dict(feeds))[0].copy(), names
