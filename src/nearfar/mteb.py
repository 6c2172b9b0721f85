"""An encoder as a model of mteb, for ``mteb.evaluate``.

Importing this module imports neither mteb nor torch. The scored pairs of mteb's STS tasks, with confidence intervals:
``nearfar evaluate --mteb``.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta


class MtebModel:
    """A model for ``mteb.evaluate``: encodes as :meth:`nearfar.Encoder.encode` does, and describes itself.

    Queries of retrieval tasks get the model's prompt for queries, documents that for documents, all other texts the
    default prompt. mteb caches results by the name, the revision and the settings of a model; the revision is a
    fingerprint of the model's files, so a model that is trained again has results of its own.

    Args:
        model: a model folder, a run folder, or ``owner/name`` on the hub.
        name: the name in mteb's results; by default the hub's name, or ``local/FOLDER``.
        prompt: text before each text that is neither query nor document, or the name of one of the model's prompts;
            "" for none. By default the model's own.
        query_prompt: the same for queries.
        document_prompt: the same for documents.
        dimensions: the first dimensions of the embeddings only; by default all.
        normalize: scale each embedding to length 1.
        pooling: the pooling, by default the model's own.
        max_length: maximum number of tokens of a text; by default the model's limit.
        precision: ``fp32``, as for published scores; ``bf16``; or ``auto``.
        device: ``cpu``, ``cuda``, ``cuda:1`` ...; by default CUDA if available.

    Raises:
        NearfarError: the model cannot be opened, or a setting is invalid.

    Example:
        >>> import mteb  # doctest: +SKIP
        >>> from nearfar.mteb import MtebModel
        >>> result = mteb.evaluate(MtebModel("runs/first"), mteb.get_task("STSBenchmark"))  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | Path,
        *,
        name: str | None = None,
        prompt: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool = False,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: Precision = "fp32",
        device: str | None = None,
    ) -> None:
        settings = locals()
        from sentence_transformers import SimilarityFunction

        from nearfar.encoder.encoder import Encoder
        from nearfar.encoder.precision import check_precision
        from nearfar.encoder.prompts import truncated_width
        from nearfar.runs.fingerprints import fingerprint_model

        check_precision(precision)
        opening = ("pooling", "max_length", "prompt", "query_prompt", "document_prompt")
        self.encoder = Encoder.from_pretrained(model, device=device, **{key: settings[key] for key in opening})
        self.dim = truncated_width(dimensions, self.encoder.dim, self.encoder.matryoshka)
        self.name = _name(model) if name is None else name
        self.revision = fingerprint_model(model)
        function = SimilarityFunction(self.encoder.inference_settings.similarity_fn_name)
        self.similarity = function.to_similarity_fn(function)
        """The similarities of all embeddings of the one with all of the other, by the model's similarity function."""
        self.similarity_pairwise = function.to_similarity_pairwise_fn(function)
        """The similarity of each embedding of the one with the same row of the other."""
        encoding = ("dimensions", "normalize", "precision")
        self._encode_settings = {key: settings[key] for key in encoding}
        defaults = (None, False, "fp32")
        self._experiment = {key: settings[key] for key in (*opening, *encoding) if settings[key] not in defaults}

    def encode(self, inputs: Iterable[Any], *, prompt_type: Any = None, **kwargs: Any) -> NDArray[np.float32]:
        """The embeddings of all texts of mteb's batches, float32 [texts, dim].

        ``batch_size`` and the names of task, split and subset have no effect: batches are sized by tokens.

        Raises:
            NearfarError: inputs without texts, a ``precision`` of mteb other than float32, and an embedding that is not
                finite (the text is named).
        """
        if kwargs.get("precision") not in (None, "float32"):
            raise NearfarError(
                f"precision {kwargs['precision']!r} in encode_kwargs: nearfar's model returns float32; leave it out"
            )
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise NearfarError(f"mteb gave inputs without texts ({', '.join(batch)}); nearfar encodes texts alone")
            texts.extend(batch["text"])
        roles = {"query": self.encoder.encode_query, "document": self.encoder.encode_document}
        encode = roles.get(getattr(prompt_type, "value", prompt_type), self.encoder.encode)
        return encode(texts, progress=bool(kwargs.get("show_progress_bar")), **self._encode_settings)

    @property
    def mteb_model_meta(self) -> "ModelMeta":
        """Name, revision, size, width, similarity, and the settings that differ from the defaults.

        Raises:
            NearfarError: mteb is not installed.
        """
        try:
            from mteb.models.model_meta import ModelMeta, ScoringFunction
        except ImportError as error:
            raise NearfarError("nearfar.mteb needs the extra mteb: pip install 'nearfar[mteb]'") from error
        encoder = self.encoder
        parameters = sum(parameter.numel() for parameter in encoder.parameters())
        prompts = (encoder.query_prompt, encoder.document_prompt, encoder.resolve_prompt())
        known = {
            "name": self.name,
            "revision": self.revision,
            "n_parameters": parameters,
            "memory_usage_mb": round(4 * parameters / 2**20),
            "max_tokens": encoder.max_length,
            "embed_dim": self.dim,
            "framework": ["Sentence Transformers", "PyTorch"],
            "similarity_fn_name": ScoringFunction(encoder.inference_settings.similarity_fn_name),
            "use_instructions": any(prompts),
            "experiment_kwargs": self._experiment or None,
        }
        return ModelMeta.create_empty(known)


def _name(model: str | Path) -> str:
    """The hub's name of a model, or ``local/`` and the name of its folder."""
    from nearfar.encoder.weights import path_of

    folder = path_of(str(model))
    if not folder.is_dir():
        return str(model)
    folder = folder.resolve()
    return f"local/{folder.parent.name if folder.name == 'model' else folder.name}"
