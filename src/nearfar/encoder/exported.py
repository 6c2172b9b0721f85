"""Exported graphs as encoders and classifiers: ONNX Runtime or OpenVINO computes the outputs of padded texts.

A backbone that gives the output for a text, its embedding or its logits, as the state of its first token takes the
place of the transformer, so that a folder of ``nearfar export`` is encoded, searched, scored and predicted with as any
other. It is not trained or saved.
"""

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.encoder.folder_checks import EXPORTED, read_object, read_settings
from nearfar.encoder.pretrained import PretrainedConfig, PreTrainedModel
from nearfar.types import NearfarError

Format = Literal["onnx", "openvino"]
FILES: dict[Format, str] = {"onnx": "model.onnx", "openvino": "openvino_model.xml"}
"""Format -> the name of its graph, which is what sentence-transformers looks for."""
RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino"}
OPENVINO = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
"""Settings of OpenVINO, which by itself computes in bf16 where that is native."""
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
Feeds = Mapping[str, NDArray[np.int64]]
Outputs = NDArray[np.float32]


def graph_format(folder: Path) -> Format | None:
    """The format of the graph in a folder that ``nearfar export`` wrote; None for any other folder."""
    exported = (folder / EXPORTED).is_file()
    return next((kind for kind, name in FILES.items() if exported and (folder / name).is_file()), None)


def open_graph(file: Path, kind: Format, *, threads: int) -> tuple[Callable[[Feeds], Outputs], list[str]]:
    """A function that runs the graph, and the names of its inputs.

    Raises:
        NearfarError: the runtime is not installed, or cannot read the graph.
    """
    if importlib.util.find_spec(RUNTIMES[kind]) is None:
        raise NearfarError(f"{file}: needs the package {RUNTIMES[kind]}; install with: pip install 'nearfar[export]'")
    if kind == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors only
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_outputs()[0].name
        return lambda feeds: session.run([name], dict(feeds))[0], [value.name for value in session.get_inputs()]
    import openvino

    with openvino_errors(file):
        settings = {"INFERENCE_NUM_THREADS": threads, **OPENVINO}
        request = openvino.Core().compile_model(file, "CPU", settings).create_infer_request()
    names = [value.get_any_name() for value in request.model_inputs]
    return lambda feeds: request.infer(dict(feeds))[0].copy(), names


@contextmanager
def openvino_errors(file: Path) -> Iterator[None]:
    """Turn OpenVINO's error for a file that it cannot read into a :class:`NearfarError` that names ``file``."""
    try:
        yield
    except RuntimeError as error:  # its message has lines of its own source code first
        problem = str(error).strip().splitlines()[-1].strip()
        raise NearfarError(f"{file}: OpenVINO cannot read it ({problem}).") from error


class Exported(Struct):
    """What :data:`EXPORTED` says of a graph: pooled embeddings, or the logits of labels (none: a regression)."""

    width: int
    max_length: int
    pooling: str | None = None
    normalized: bool | None = None
    labels: list[str] | None = None


class GraphBackbone(PreTrainedModel):
    """A graph of padded token ids, mask and perhaps token types, with the interface of a transformer.

    Args:
        folder: that ``nearfar export`` wrote.
        kind: the format of the graph.
        classifier: whether its outputs are to be logits; otherwise embeddings.

    Raises:
        NearfarError: the folder is damaged, or its graph has the other output; the runtime is not installed.
    """

    config_class = PretrainedConfig
    _supports_attention_backend = False

    def __init__(self, folder: Path, kind: Format, *, classifier: bool = False) -> None:
        exported, config = read_settings(folder / EXPORTED, Exported), read_object(folder / "config.json")
        labels, width, is_classifier = exported.labels, exported.width, exported.labels is not None
        classes = width if labels is None else max(1, len(set(labels)))
        if is_classifier == (exported.pooling is not None) or classes != width:
            raise NearfarError(f"{folder / EXPORTED}: is damaged; export the model again.")
        if is_classifier != classifier:
            gives = "embeddings, no logits" if classifier else "the logits of a classifier; use it with nearfar predict"
            raise NearfarError(f"{folder}: its graph gives {gives}.")
        run, inputs = open_graph(folder / FILES[kind], kind, threads=torch.get_num_threads())
        sizes = {"num_hidden_layers": 0, "hidden_size": width, "max_position_embeddings": exported.max_length}
        names = {name: config.get(name) for name in ("vocab_size", "pad_token_id")}
        super().__init__(PretrainedConfig.from_dict({**sizes, **names, "type_vocab_size": 1 + (TYPES in inputs)}))
        self.pooling, self.normalized, self.labels = exported.pooling, bool(exported.normalized), tuple(labels or ())
        self._run, self._inputs = run, inputs
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)  # says the device and the dtype

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None, **_: object
    ) -> SimpleNamespace:
        """The outputs, as the last hidden states of the first tokens [texts, length, width]; others are 0."""
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        given = {IDS: input_ids, MASK: attention_mask, TYPES: types}
        outputs = self._run({name: given[name].cpu().numpy() for name in self._inputs})
        states = torch.zeros(*input_ids.shape, self.config.hidden_size, device=input_ids.device)
        states[:, 0] = torch.from_numpy(outputs).to(states)
        return SimpleNamespace(last_hidden_state=states)


def refuse_graph(backbone: object, what: str) -> None:
    """Refuse what a graph cannot do.

    Raises:
        NearfarError: the backbone is an exported graph; the message names ``what``.
    """
    if isinstance(backbone, GraphBackbone):
        raise NearfarError(f"an exported graph cannot be {what}; use the model that it was exported from.")
