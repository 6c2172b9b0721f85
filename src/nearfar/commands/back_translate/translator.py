"""Texts -> their translations, by any encoder-decoder model of transformers.

A model is a folder or ``owner/name`` on the hub, with safetensors weights. Nothing pickled is opened, no code of the
model's repository is run. Generation is by beam search, or by sampling from the whole softmax at a temperature.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_repo_discussions, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from nearfar.encoder.device import choose_device
from nearfar.encoder.folder_checks import check_vocabulary, read_object
from nearfar.encoder.pretrained import check_complete, load_config, load_model, load_tokenizer, opening, quiet, reason
from nearfar.encoder.transformers_types import PreTrainedModel, PreTrainedTokenizerBase
from nearfar.encoder.weights import FILES, path_of
from nearfar.types import NearfarError

CONVERTER = "SFconvertbot"
"""The hub's own account that proposes safetensors weights, in a pull request, to repositories that have none."""


@dataclass(frozen=True)
class Translator:
    """A translation model, ready to run."""

    model: Any  # a PreTrainedModel with GenerationMixin, which is how transformers types an encoder-decoder
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    """Tokens read of a text, and tokens written at most."""

    def translate(
        self, texts: Sequence[str], *, beams: int = 1, temperature: float | None = None, seed: int = 0
    ) -> list[str]:
        """One translation per text, with single spaces; it may be empty.

        Texts are generated together, so a text's last digits, and under sampling its translation, depend on the texts
        beside it: the same list gives the same translations. The caller's random state is left as it was.

        Args:
            texts: one batch.
            beams: width of the beam search, where there is no temperature.
            temperature: sample, with the logits divided by this; no top-k, no nucleus.
            seed: of the sampling.
        """
        if not texts:
            return []
        search: dict[str, Any]
        if temperature is None:
            search = {"num_beams": beams, "do_sample": False, "temperature": None, "top_k": None, "top_p": None}
        else:
            search = {"num_beams": 1, "do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        device = self.model.device
        with (
            _quiet(),
            torch.inference_mode(),
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        ):
            torch.manual_seed(seed)
            tokens = self.tokenizer(
                list(texts), padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
            ).to(device)
            written = self.model.generate(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                max_new_tokens=self.max_length,
                trust_remote_code=False,
                **search,
            )
            translations = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return [" ".join(translation.split()) for translation in translations]


def load_translator(folder: Path, *, max_length: int, device: str | None = None) -> Translator:
    """Open a model folder, in float32; ``max_length`` is lowered to what the model has positions for.

    Raises:
        NearfarError: no config.json or safetensors in it, weights missing or damaged, no encoder-decoder, a tokenizer
            that needs a package, a model of many languages that does not say which one it writes, or no such device.
    """
    place = choose_device(device)
    config = load_config(folder, kind="translation model")
    if (folder / "generation_config.json").exists():
        read_object(folder / "generation_config.json")  # transformers passes over a damaged one in silence
    tokenizer = load_tokenizer(folder, fast=False)
    with _quiet():
        model, info = load_model(folder, config, kind="translation model", dtype=torch.float32)
    check_complete(folder, info, lambda _: True)
    check_vocabulary(folder, tokenizer, model)
    _check_generation(folder, model, tokenizer)
    model.to(place).eval()
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    # One position of the decoder is the start token's.
    return Translator(model, tokenizer, int(min(max_length, tokenizer.model_max_length, positions - 1)))


def locate_translator(name_or_path: str | Path) -> Path:
    """The folder of a translation model: a folder as it is, else the local hub cache, else the hub.

    Many translation models of the hub have pickled weights only; then the hub's own conversion of them to safetensors
    is taken, which waits there as a pull request by :data:`CONVERTER`.

    Raises:
        NearfarError: none of the places has it, or there are no safetensors.
    """
    name = str(name_or_path)
    folder = path_of(name)
    if folder.is_dir():
        return folder
    if folder.is_absolute() or name.startswith(".") or name.count("/") != 1:
        raise NearfarError(f"{name}: there is no such model folder, and a hub model is named owner/name.")
    files = [*FILES, "*.spm"]
    try:
        cached = Path(snapshot_download(name, allow_patterns=files, local_files_only=True))
        for snapshot in (cached, *sorted(cached.parent.iterdir())):
            if any(snapshot.glob("*.safetensors")):
                return snapshot
    except (OSError, ValueError, HFValidationError):
        pass  # not cached
    try:
        fetched = Path(snapshot_download(name, allow_patterns=files))
        if not any(fetched.glob("*.safetensors")) and (revision := _conversion_revision(name)) is not None:
            fetched = Path(snapshot_download(name, allow_patterns=files, revision=revision))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError) as error:
        raise NearfarError(
            f"no translation model {name!r}: there is no such folder, it is not in the local hub cache, and the hub "
            f"says: {reason(error)}. Give a folder, or fetch it once with a network."
        ) from error
    if not any(fetched.glob("*.safetensors")):
        raise NearfarError(
            f"{name}: has no safetensors weights on the hub, and nearfar opens no pickled ones. Choose another model, "
            "or, if you trust its authors, load it with transformers and save_pretrained it to a folder."
        )
    return fetched


def weights_digest(folder: Path) -> str:
    """Fingerprint of a folder's weights."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with opening(file), file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def _conversion_revision(name: str) -> str | None:
    """The revision at which the hub's own conversion waits, if there is one."""
    proposals = get_repo_discussions(name, author=CONVERTER, discussion_type="pull_request", discussion_status="open")
    return next((str(found.git_reference) for found in proposals if "safetensors" in found.title), None)


def _check_generation(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a model that says no token to begin with, or (M2M100, NLLB, mBART-50) not which language it writes."""
    start, end = (getattr(model.generation_config, f"{key}_token_id", None) for key in ("decoder_start", "eos"))
    chosen = getattr(model.generation_config, "forced_bos_token_id", None)
    if start is None and getattr(model.generation_config, "bos_token_id", None) is None:
        raise NearfarError(
            f"{folder / 'generation_config.json'}: names no decoder_start_token_id, which generation starts from."
        )
    if hasattr(tokenizer, "src_lang") and chosen is None and start == end:
        raise NearfarError(
            f"{folder}: translates between many languages, and does not say which it writes. Use a model of two "
            "languages, or save a copy with its tokenizer's src_lang and its generation config's forced_bos_token_id "
            "set."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what transformers says on loading and generating: what matters of it is an error here."""
    with quiet(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"transformers\.")
        yield
