"""The model of an evaluation, opened as functions from texts to vectors, also as ``nearfar encode`` stores them."""

import sys
from collections.abc import Hashable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines import BASELINES, is_baseline, is_per_task, is_transductive, open_baseline, parse_spec
from nearfar.config.values import flag
from nearfar.config.verbs import EvaluateConfig
from nearfar.disk.model_folder import SeenHashes, read_seen
from nearfar.encoder.prompts import Role, choose_width
from nearfar.encoder.weights import locate
from nearfar.quantization import Quantization, dequantize, int8_ranges, quantize
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.types import Cut, Encode, NearfarError, Precision, VectorSimilarity

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from nearfar.encoder.encoder import Encoder

Model: TypeAlias = "str | Path | Encode | Encoder | SentenceTransformer"
"""What can be evaluated: a model folder, a run folder, a hub name, a baseline, or what is open already."""
MAX_BYTES = 256 << 20
"""Maximum size of all vectors that :class:`RecentVectors` keeps."""
CALIBRATION_TEXTS = 10_000
"""Maximum number of texts whose embeddings give the ranges of int8."""


class RecentVectors:
    """Keeps what encode functions returned, by model and texts, up to :data:`MAX_BYTES`; the oldest calls go first.

    Only a call with the same texts in the same order is answered from memory, so its vectors are the same bits as those
    of another computation. Callers must not change what they get.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Hashable, tuple[str, ...]], NDArray[Any]] = {}

    def wrap(self, encode: Encode, key: Hashable) -> Encode:
        """The function ``encode`` with memory; ``key`` identifies the model and its settings."""

        def remembered(texts: Sequence[str]) -> NDArray[Any]:
            call = key, tuple(texts)
            vectors = self._kept.pop(call, None)
            if vectors is None:
                vectors = np.asarray(encode(texts))
            if vectors.nbytes <= MAX_BYTES:
                self._kept[call] = vectors
            while sum(kept.nbytes for kept in self._kept.values()) > MAX_BYTES:
                del self._kept[next(iter(self._kept))]
            return vectors

        return remembered


class OpenedModel(NamedTuple):
    """Functions from texts to vectors, and what a result records of the model."""

    encode: Encode
    encode_query: Encode
    """Equal to ``encode`` unless the model encodes queries in its own way."""
    encode_document: Encode
    """Equal to ``encode`` unless the model encodes documents in its own way."""
    pooling: str | None = None
    """None where it is not known."""
    transductive: bool = False
    """Whether ``encode`` is fitted, in each call, on the texts of that call."""
    per_task: bool = False
    """Whether vectors of different calls are not comparable, so that each task is encoded in one call."""
    device: str = "cpu"
    """The device of the model."""
    seen: SeenHashes | None = None
    """Hashes of what the model has seen in training; None where that is not known."""
    inputs: Mapping[str, str | int] = MappingProxyType({})
    """The prompts that are not empty, and lengths of queries and documents, by the name of their setting."""
    fingerprint: str | None = None
    """That of the files of an encoder."""
    similarity: VectorSimilarity = "cosine"
    """How its vectors are compared."""
    cut: Cut | None = None
    """Cuts documents into passages; None for whole documents."""


def open_model(
    model: "Model", config: EvaluateConfig, *, progress: bool, recent: RecentVectors | None = None
) -> OpenedModel:
    """Open a model folder, a hub name or a baseline; or take an encoder, a SentenceTransformer or a function as it is.

    With ``recent``, an encoder's vectors are kept there, at full width, for the next evaluation of the same model.

    Raises:
        NearfarError: a setting of an encoder given with what has its own, or a model that cannot be loaded.
    """
    if not isinstance(model, str | Path):
        return _take(model, config, progress=progress)
    if isinstance(model, str) and is_baseline(model):
        for name in ("query_prompt", "document_prompt", "dimensions", "quantize", "chunk"):
            if (value := getattr(config, name)) is not None:
                raise NearfarError(f"{flag(name)} {value}: is for encoders; {model} is a baseline. Leave it out.")
        how = {name: getattr(config, name) for name in ("prompt", "seed", "pooling", "max_length", "device")}
        bf16, parts = config.precision == "bf16", parse_spec(model)
        encode = open_baseline(model, per_call=True, bf16=bf16, progress=progress, **how)
        # Word vectors and the Universal Sentence Encoder have no record of what they have seen.
        seen = read_seen(locate(parts.source)) if BASELINES[parts.name].encoder else None
        transductive, per_task = is_transductive(model), is_per_task(model)
        return OpenedModel(encode, encode, encode, config.pooling, transductive, per_task, seen=seen)
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(model, **config.opening)
    return _open_encoder(encoder, config, progress=progress, recent=recent, fingerprint=fingerprint_model(model))


def _take(model: Any, config: EvaluateConfig, *, progress: bool) -> OpenedModel:
    """A model that is open already: a function, an encoder or a SentenceTransformer.

    Raises:
        NearfarError: it is none of them, or a setting that it has itself.
    """
    is_encoder = _is_instance(model, "nearfar.encoder.encoder", "Encoder")
    if not callable(model) and not is_encoder:
        raise NearfarError(
            f"{type(model).__name__}: is no model; name a folder, or give an Encoder, a SentenceTransformer or a "
            "function from texts to vectors."
        )
    given: dict[str, Any] = dict(config.opening)
    if not is_encoder:
        given |= {name: getattr(config, name) for name in ("dimensions", "quantize", "chunk")}
        given["precision"] = "bf16" if config.precision == "bf16" else None
    for key, value in given.items():
        if value is not None:
            kind = type(model).__name__
            raise NearfarError(f"{key} is a setting of a model folder or hub name; this {kind} has its own.")
    if is_encoder:
        return _open_encoder(model, config, progress=progress)
    if not _is_instance(model, "sentence_transformers", "SentenceTransformer"):
        return OpenedModel(model, model, model)
    encode, encode_query, encode_document = (
        partial(function, convert_to_numpy=True, show_progress_bar=False)
        for function in (model.encode, model.encode_query, model.encode_document)
    )
    by_role = any(getattr(model[0], name, None) for name in ("query_length", "document_length"))
    if not any(model.prompts.values()) and type(model[0]).__name__ != "Router" and not by_role:
        encode_query = encode_document = encode  # so that a text in both roles is encoded once
    of_model = {"device": str(model.device), "similarity": model.similarity_fn_name}
    return OpenedModel(encode, encode_query, encode_document, seen=read_seen(Path(model_name(model))), **of_model)


def _is_instance(model: object, module: str, name: str) -> bool:
    """Whether the model is of a class in a module, which is imported where there are such models."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(model, getattr(imported, name))


def model_name(model: "Model") -> str:
    """The name of a model in results: as it was given, or the folder or hub name that an object was read from."""
    if isinstance(model, str | Path):
        return str(model)
    taken: Any = model
    transformer = getattr(taken[0], "auto_model", None) if _is_instance(taken, "torch.nn", "Sequential") else None
    read_from = getattr(taken, "source", None) or getattr(transformer, "name_or_path", None)
    return str(read_from or getattr(taken, "__qualname__", type(taken).__name__))


def _open_encoder(
    encoder: "Encoder",
    config: EvaluateConfig,
    *,
    progress: bool,
    recent: RecentVectors | None = None,
    fingerprint: str | None = None,
) -> OpenedModel:
    """The functions of an encoder; ``fingerprint`` tells it from others in ``recent``."""
    dim, device = choose_width(config.dimensions, encoder.dim, encoder.matryoshka), str(encoder.device)
    precision: Precision = "bf16" if config.precision == "bf16" else "fp32"
    # check_finite=False: a vector that is not finite affects only the tasks that contain its text.
    how: dict[str, Any] = {"precision": precision, "progress": progress, "check_finite": False}

    def of_inputs(role: Role | None, prompt: str, max_length: int) -> Encode:
        encode: Encode = partial(encoder.encode, role=role, prompt=prompt, max_length=max_length, **how)
        if recent is not None:
            encode = recent.wrap(encode, (fingerprint, encoder.pooling, device, precision, role, prompt, max_length))
        return encode if dim == encoder.dim else partial(_truncate, encode, dim, encoder.normalizes)

    roles: tuple[Role | None, ...] = (None, "query", "document")
    by = [role if role == "query" and encoder.documents is not None else None for role in roles]  # its own encoder
    inputs = [(own, encoder.prompt_of(role), encoder.length_of(role)) for own, role in zip(by, roles, strict=True)]
    functions = {given: of_inputs(*given) for given in inputs}  # equal inputs, one function: a text is encoded once
    names = ("prompt", "query_prompt", "document_prompt")
    used: dict[str, str | int] = {name: prompt for name, (_, prompt, _) in zip(names, inputs, strict=True)}
    used |= encoder.inference_settings.role_lengths
    encode, encode_query, encode_document = (functions[given] for given in inputs)
    return OpenedModel(
        encode,
        encode_query,
        encode_document,
        encoder.pooling,
        device=device,
        seen=encoder.seen,
        inputs={setting: value for setting, value in used.items() if value},
        fingerprint=fingerprint,
        similarity=encoder.similarity,
        cut=partial(encoder.passages, tokens=config.chunk, overlap=config.overlap) if config.chunk else None,
    )


def _truncate(encode: Encode, dim: int, normalizes: bool, texts: Sequence[str]) -> NDArray[np.float32]:
    """The first dimensions of vectors, scaled to length 1 again if the model does so."""
    vectors = np.asarray(encode(texts))[:, :dim]
    if normalizes:
        # As torch.nn.functional.normalize, which Encoder.encode uses.
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.ascontiguousarray(vectors)


def with_stored_vectors(opened: OpenedModel, kind: Quantization, texts: Set[str]) -> OpenedModel:
    """The model with embeddings as they are after storing; queries of retrieval keep theirs.

    Args:
        opened: the model.
        kind: how the embeddings are stored.
        texts: those of all tasks. A fixed random sample of them, encoded as documents, gives the ranges of int8.

    Raises:
        NearfarError: the embeddings of the sample are not finite.
    """
    ranges = None
    if kind == "int8":
        ordered, count = sorted(texts), min(len(texts), CALIBRATION_TEXTS)
        places = np.random.default_rng(0).choice(len(texts), count, replace=False)
        ranges = int8_ranges([np.asarray(opened.encode_document([ordered[place] for place in np.sort(places)]))])

    def stored(encode: Encode, some: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.asarray(encode(some))
        return dequantize(quantize(vectors, kind, ranges), kind, ranges, dim=vectors.shape[1])

    encode, encode_document = opened.encode, opened.encode_document
    functions = {function: partial(stored, function) for function in (encode, encode_document)}
    return opened._replace(encode=functions[encode], encode_document=functions[encode_document])
