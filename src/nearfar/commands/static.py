"""``nearfar static``: an encoder -> a static encoder, whose vectors are the encoder's embeddings of single tokens."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import StaticConfig
from nearfar.disk.checks import path_errors
from nearfar.disk.folders import check_new_folder, new_folder
from nearfar.encoder.precision import check_computing, resolve
from nearfar.runtime.progress import progress_bar
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder


class StaticResult(NamedTuple):
    """What was written."""

    folder: Path
    tokens: int
    """Number of tokens of the vocabulary."""
    dim: int


@accepts_settings(StaticConfig)
@path_errors()
def static(model: str | Path, config: StaticConfig, *, progress: bool = True) -> StaticResult:
    """Write a static encoder to ``config.output``; ``SentenceTransformer(output)`` opens it too.

    The vector of token k is v_k = w_k P (e_k - m). e_k is the embedding of the text that consists of this token, with
    the model's special tokens around it; m is their mean; P projects to the first ``dim`` principal components;
    w_k = a / (a + p_k) with a = ``sif`` and the Zipf frequency p_k = (1 / k) / sum_j (1 / j), as vocabularies are
    ordered by frequency. Special and unused tokens get the zero vector. The embedding of a text is the mean of the
    vectors of its tokens, at length 1 if the model ends with Normalize. Prompts are not taken over.

    Sources: Arora et al. 2017 (weights); the method is that of model2vec (Tulkens & van Dongen 2024).

    Args:
        model: a model folder, the folder of a finished training run, or ``owner/name`` on the Hugging Face Hub.
        config: the settings.
        progress: show a progress bar.

    Raises:
        NearfarError: the model cannot be opened or is static already; the output exists or cannot be written; a vector
            is not finite.
    """
    output = Path(config.output)
    check_new_folder(output)
    check_computing(config.device, config.precision)
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.encoder_folder import static_components
    from nearfar.encoder.static import is_static

    encoder = Encoder.from_pretrained(model, device=config.device).of_role(None)
    if is_static(encoder.backbone):
        raise NearfarError(f"{model}: is a static encoder already.")
    vectors = _token_vectors(encoder, bf16=resolve(config.precision, encoder.device) == "bf16", progress=progress)
    table, used, width = vectors.astype(np.float64), _used(encoder, len(vectors)), config.dim or encoder.dim
    if width < encoder.dim:
        from sklearn.decomposition import PCA

        table = PCA(min(width, int(used.sum())), svd_solver="covariance_eigh").fit(table[used]).transform(table)
    else:
        table -= table[used].mean(axis=0)
    if config.sif:
        frequencies = 1 / np.arange(1, len(table) + 1)
        table *= (config.sif / (config.sif + frequencies / frequencies.sum()))[:, None]
    table[~used] = 0
    made = Encoder(static_components(table.astype(np.float32, "C"), encoder.tokenizer, normalize=encoder.normalizes))
    made.seen = encoder.seen
    with new_folder(output) as fresh:
        made.save_pretrained(fresh)
    return StaticResult(output, len(table), table.shape[1])


def _token_vectors(encoder: "Encoder", *, bf16: bool, progress: bool) -> Float[np.ndarray, "tokens dim"]:
    """The embedding of each token of the vocabulary alone, between the special tokens of a text."""
    encoded = encoder.tokenizer("a", return_special_tokens_mask=True)
    text, mask = encoded["input_ids"], encoded["special_tokens_mask"]
    if 0 not in mask:
        raise NearfarError("the tokenizer has no token that the text 'a' can consist of; choose another model.")
    before, after = text[: mask.index(0)], text[len(mask) - mask[::-1].index(0) :]
    ids = [[*before, token, *after] for token in range(max(encoder.tokenizer.get_vocab().values()) + 1)]
    with progress_bar("encoding", len(ids), unit="tokens", shown=progress) as advance:
        return encoder.encode_tokens(ids, bf16=bf16, on_batch=advance)


def _used(encoder: "Encoder", count: int) -> Bool[np.ndarray, " tokens"]:
    """Whether a token occurs in texts: it is in the vocabulary, not special and not reserved ([unused7])."""
    special = set(encoder.tokenizer.all_special_ids)
    used = np.zeros(count, dtype=bool)
    for token, number in encoder.tokenizer.get_vocab().items():
        used[number] = number not in special and not (token.startswith("[unused") and token.endswith("]"))
    return used
