"""A translation model of transformers: where it is, what is refused of it, and how it generates."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import get_repo_discussions, snapshot_download

from nearfar.encoder import pretrained
from nearfar.encoder.folder_checks import check_links, read_object
from nearfar.encoder.precision import choose_device
from nearfar.encoder.weights import FILES, locate, path_of
from nearfar.types import NearfarError

CONVERTER = "SFconvertbot"
"""The account of the Hugging Face Hub that proposes safetensors weights, as pull requests, to repositories."""


@dataclass(frozen=True)
class Translator:
    """A translation model, ready to run."""

    model: Any  # a PreTrainedModel with GenerationMixin; transformers has no type for both
    tokenizer: pretrained.PreTrainedTokenizerBase
    max_length: int
    """Maximum number of tokens in a text and in its translation."""

    def translate(
        self, texts: Sequence[str], *, beams: int = 1, temperature: float | None = None, seed: int = 0
    ) -> list[str]:
        """One translation per text, with whitespace collapsed to single spaces; it may be empty.

        Texts are generated as one batch, so rounding errors and random draws depend on the whole list: the same list
        gives the same translations. The caller's random state does not change.

        Args:
            texts: one batch.
            beams: number of beams, if there is no temperature.
            temperature: sample with the logits divided by this, without top-k or nucleus filtering.
            seed: seed of the sampling.
        """
        if not texts:
            return []
        search: dict[str, Any] = {"num_beams": beams, "do_sample": False}
        if temperature is not None:
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
                **{name: tokens[name] for name in ("input_ids", "attention_mask")},
                max_new_tokens=self.max_length,
                trust_remote_code=False,
                **search,
            )
            translations = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        return [" ".join(translation.split()) for translation in translations]


def load_translator(folder: Path, *, max_length: int, device: str | None = None) -> Translator:
    """Load a model folder in float32; ``max_length`` is capped at the model's number of positions.

    Raises:
        NearfarError: config.json or safetensors weights are missing or damaged; the model is not an encoder-decoder;
            the tokenizer needs a missing package; a multilingual model has no fixed target language; no such device.
    """
    place = choose_device(device)
    check_links(folder, folder)
    config = pretrained.load_config(folder, kind="translation model")
    if (folder / "generation_config.json").exists():
        read_object(folder / "generation_config.json")  # transformers silently ignores a damaged one
    tokenizer = pretrained.load_tokenizer(folder, fast=False)
    with _quiet():
        model = pretrained.load_model(folder, config, kind="translation model")
    pretrained.check_vocabulary(folder, tokenizer, model)
    _check_generation(folder, model, tokenizer)
    model.to(place).eval()
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    # The decoder's start token takes one position.
    return Translator(model, tokenizer, int(min(max_length, tokenizer.model_max_length, positions - 1)))


def locate_translator(name_or_path: str | Path) -> Path:
    """The folder of a translation model: a given folder, else the local hub cache, else a download from the hub.

    Many translation models on the hub have pickled weights only; then the hub's own conversion to safetensors is used,
    which is a pull request by :data:`CONVERTER`.

    Raises:
        NearfarError: the model is not found, or has no safetensors weights.
    """
    folder, name = locate(name_or_path), str(name_or_path)
    if path_of(name).is_dir() or any(folder.glob("*.safetensors")):
        return folder
    if cached := [other for other in sorted(folder.parent.iterdir()) if any(other.glob("*.safetensors"))]:
        return cached[0]  # the conversion, downloaded before
    with pretrained.opening(folder):
        proposals = get_repo_discussions(
            name, author=CONVERTER, discussion_type="pull_request", discussion_status="open"
        )
        for proposal in proposals:
            if "safetensors" in proposal.title:
                return Path(snapshot_download(name, allow_patterns=FILES, revision=proposal.git_reference))
    raise NearfarError(
        f"{name}: has no safetensors weights on the hub, and nearfar opens no pickle files. Choose another model, or, "
        "if you trust its authors, load it with transformers and save it as safetensors."
    )


def _check_generation(folder: Path, model: Any, tokenizer: pretrained.PreTrainedTokenizerBase) -> None:
    """Raise for a model without a start token, or without a fixed target language (M2M100, NLLB, mBART-50)."""
    settings, start = model.generation_config, model.generation_config.decoder_start_token_id
    if start is None and settings.bos_token_id is None:
        raise NearfarError(
            f"{folder / 'generation_config.json'}: has no decoder_start_token_id, which generation starts from."
        )
    two_languages = getattr(model.config, "langs", None) is not None  # FSMT: one model for each pair
    fixed = two_languages or settings.forced_bos_token_id is not None
    if hasattr(tokenizer, "src_lang") and start == settings.eos_token_id and not fixed:
        raise NearfarError(
            f"{folder}: translates between many languages and has no fixed target language. Use a model for two "
            "languages, or save a copy with its tokenizer's src_lang and its generation config's forced_bos_token_id "
            "set."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers while loading and generating; problems that matter are raised as errors here."""
    with pretrained.quiet(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"transformers\.")
        yield
