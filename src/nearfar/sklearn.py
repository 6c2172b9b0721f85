"""A scikit-learn transformer: texts -> embeddings, for pipelines and searches over their settings.

Importing this module imports scikit-learn; torch is imported when the first text is encoded.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from nearfar.types import NearfarError, Precision

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


class NearfarTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts -> embeddings, float32 [texts, dim], by an encoder that is not trained.

    It has no state but its parameters: ``fit`` only checks them and the texts, and ``transform`` does not need it. The
    encoder is opened when it is first used. Estimators of this process with the same model share it, also clones, as in
    ``GridSearchCV``; the two models used last stay in memory. If a model's files change, it is opened again. Pickles
    (and joblib's processes) hold the path of the model, not its weights.

    Args:
        model: a model folder, a run folder, or ``owner/name`` on the hub.
        prompt: text before each text; by default the model's own, "" for none.
        prompt_name: name of one of the model's prompts, in place of ``prompt``.
        dimensions: the first dimensions of the embeddings only; by default all.
        normalize: scale each embedding to length 1.
        pooling: the pooling, by default the model's own.
        max_length: maximum number of tokens of a text; by default the model's limit.
        precision: ``fp32``, ``bf16``, or ``auto``.
        device: ``cpu``, ``cuda``, ``cuda:1`` ...; by default CUDA if available.
        progress: show a progress bar.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from nearfar.sklearn import NearfarTransformer
        >>> classifier = make_pipeline(NearfarTransformer(normalize=True), LogisticRegression())
        >>> classifier.fit(["It is great.", "It is bad."], ["good", "bad"])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | Path = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        normalize: bool = False,
        pooling: str | None = None,
        max_length: int | None = None,
        precision: Precision = "auto",
        device: str | None = None,
        progress: bool = False,
    ) -> None:
        self.model = model
        self.prompt = prompt
        self.prompt_name = prompt_name
        self.dimensions = dimensions
        self.normalize = normalize
        self.pooling = pooling
        self.max_length = max_length
        self.precision = precision
        self.device = device
        self.progress = progress

    def fit(self, X: Iterable[str], y: object = None) -> "NearfarTransformer":  # noqa: ARG002, N803
        """Open the model and check parameters; learns nothing.

        Raises:
            NearfarError: an unusable model, an invalid parameter, or ``X`` is not a sequence.
        """
        _texts(X)
        self._width()
        return self

    def transform(self, X: Iterable[str]) -> NDArray[np.float32]:  # noqa: N803
        """The embeddings of texts, float32 [texts, dim]; each distinct text is encoded once.

        Raises:
            NearfarError: as :meth:`fit`, and a row that is no text, or an embedding that is not finite (it is named).
        """
        names = ("prompt", "prompt_name", "dimensions", "normalize", "precision", "progress")
        return self._encoder().encode(_texts(X), **{name: getattr(self, name) for name in names})

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:  # noqa: ARG002
        """``nearfar0``, ``nearfar1`` ...: names of the dimensions, as ``set_output`` needs them."""
        return np.array([f"nearfar{number}" for number in range(self._width())], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _width(self) -> int:
        """The number of dimensions; opens the model and checks the parameters."""
        from nearfar.encoder.prompts import truncated_width

        encoder = self._encoder()
        encoder.resolve_prompt(self.prompt, self.prompt_name)
        return truncated_width(self.dimensions, encoder.dim, encoder.matryoshka)

    def _encoder(self) -> "Encoder":
        from nearfar.encoder.weights import locate

        folder = locate(self.model)
        return _open(folder, _state(folder), self.pooling, self.max_length, self.device)


@lru_cache(maxsize=2)
def _open(
    folder: Path,
    state: tuple[tuple[str, int, int], ...],  # noqa: ARG001, part of the key: a model that was trained again is another one
    pooling: str | None,
    max_length: int | None,
    device: str | None,
) -> "Encoder":
    from nearfar.encoder.encoder import Encoder

    return Encoder.from_pretrained(folder, pooling=pooling, max_length=max_length, device=device)


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the model's files."""
    files = [(file, file.stat()) for file in sorted(folder.rglob("*")) if file.is_file()]
    return tuple((str(file), found.st_size, found.st_mtime_ns) for file, found in files)


def _texts(X: Iterable[str]) -> list[str]:  # noqa: N803
    """The texts as a list.

    Raises:
        NearfarError: a single text, or a table.
    """
    if isinstance(X, str) or getattr(X, "ndim", 1) != 1:
        raise NearfarError(
            "X must be one column of texts, not a single text or a table; in a ColumnTransformer, name the column by a "
            "string, 'text', not by a list, ['text']"
        )
    return list(X)
