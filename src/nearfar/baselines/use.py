"""The Universal Sentence Encoder (Cer et al. 2018), run by TensorFlow Hub if that is installed."""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.types import NearfarError

PUBLISHED = "https://tfhub.dev/google/universal-sentence-encoder/4"
"""The deep averaging network, for TensorFlow 2. The transformer is ``universal-sentence-encoder-large/5``."""
INSTALL = (
    "The Universal Sentence Encoder runs on TensorFlow, which nearfar does not install: "
    "pip install tensorflow tensorflow-hub 'setuptools<81' (and tensorflow-text for its multilingual models)."
)
TEXTS_AT_ONCE = 256


class Use:
    """The published encoder; called like an encode function, returns float32 [texts, 512].

    Args:
        url_or_path: a TensorFlow Hub URL, or a folder with the unpacked model (saved_model.pb and variables).

    Raises:
        NearfarError: TensorFlow Hub is not installed, or the model cannot be loaded; the message says what to do.
    """

    def __init__(self, url_or_path: str = PUBLISHED) -> None:
        try:
            hub: Any = importlib.import_module("tensorflow_hub")
            if importlib.util.find_spec("tensorflow_text"):
                importlib.import_module("tensorflow_text")  # registers the operations of the multilingual models
        except ImportError as error:
            raise NearfarError(f"{INSTALL} Missing: {error}.") from error
        try:
            self._model = hub.load(url_or_path)
        except (OSError, ValueError, RuntimeError) as error:
            raise NearfarError(
                f"{url_or_path}: TensorFlow Hub cannot load it: {error}. Go online once, or unpack the model from "
                f"{PUBLISHED} into a folder and name the folder: use:FOLDER."
            ) from error

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector per text."""
        parts = [list(texts[start : start + TEXTS_AT_ONCE]) for start in range(0, len(texts), TEXTS_AT_ONCE)]
        return np.concatenate([np.asarray(self._model(part), dtype=np.float32) for part in parts or [[]]])
