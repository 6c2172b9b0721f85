"""The options that open an encoder and compute with it, of all commands that take a model.

Commands that train have their own texts for them (:mod:`nearfar.config.training`).
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar

from nearfar.config.bounds import Length, Overlap, Prompt
from nearfar.config.values import Settings
from nearfar.types import Precision


@dataclass(frozen=True, kw_only=True)
class DeviceOption(Settings):
    """Where a model computes."""

    # --- Model ---

    device: str | None = None
    """Device: cpu, cuda, cuda:1 ...; by default CUDA if available."""


@dataclass(frozen=True, kw_only=True)
class ComputeOptions(DeviceOption):
    """Where a model computes, and how precisely."""

    # --- Model ---

    precision: Precision = "auto"
    """Precision of the computation. auto is bf16 (bfloat16) if the device supports it natively, else fp32."""


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(DeviceOption):
    """How an encoder is opened."""

    # --- Model ---

    pooling: str | None = None
    """Override the model's pooling: cls, mean, mean_without_cls, max, lasttoken, weightedmean, first_last,
    embeddings_last, last_two, layer:K or layer:K:max."""
    prompt: Prompt | None = None
    """Text before each text, as in "query: ", or the name of one of the model's prompts; '' for no prompt. By default
    the model's own."""
    max_length: Length | None = None
    """Maximum number of tokens in a text; longer texts are truncated. By default the model's own limit."""

    @property
    def opening(self) -> dict[str, Any]:
        """The options as :meth:`nearfar.Encoder.from_pretrained` takes them."""
        names = ("pooling", "max_length", "prompt", "query_prompt", "document_prompt", "device")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}


@dataclass(frozen=True, kw_only=True)
class RoleOptions(EncoderOptions):
    """How an encoder is opened that encodes queries and documents."""

    # --- Model ---

    query_prompt: Prompt | None = None
    """Text before each query, as in "query: ", or the name of one of the model's prompts; '' for no prompt. By default
    the model's own."""
    document_prompt: Prompt | None = None
    """Text before each document, or a prompt's name; '' for no prompt. By default the model's own."""


@dataclass(frozen=True, kw_only=True)
class PassageOptions(Settings):
    """How long documents are searched in."""

    # --- Passages ---

    chunk: Length | None = None
    """Cut each document into passages of at most CHUNK tokens; its score is that of its best one. By default what is
    over the maximum length is left out."""
    overlap: Overlap = 0
    """Number of tokens of the passage before with which a passage begins."""

    needs: ClassVar[tuple[tuple[str, str], ...]] = (("overlap", "chunk"),)

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.chunk is not None and self.overlap >= self.chunk:
            yield f"--overlap {self.overlap}: must be below --chunk {self.chunk}."


@dataclass(frozen=True, kw_only=True)
class SearchOptions(RoleOptions):
    """How an encoder is opened that encodes nothing but queries and documents."""

    prompt: Prompt | None = None
    """Text before queries and documents alike, or a prompt's name, for models with one prompt for all texts."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.prompt is not None and (self.query_prompt is not None or self.document_prompt is not None):
            yield "--prompt: is for queries and texts alike; give --query-prompt and --document-prompt alone."

    @property
    def opening(self) -> dict[str, Any]:
        """The options as :meth:`nearfar.Encoder.from_pretrained` takes them."""
        own = super().opening
        return own if self.prompt is None else {**own, "query_prompt": self.prompt, "document_prompt": self.prompt}


def fields_in_order(kind: type[Settings]) -> list[Field[Any]]:
    """The fields of a settings class as help and signatures list them: a command's own before the options of here."""
    options = {field.name for base in kind.__mro__ if base.__module__ == __name__ for field in fields(base)}
    return sorted(fields(kind), key=lambda field: field.name in options)
