"""What ``config_sentence_transformers.json`` of a model folder says: prompts, similarity, and trained widths.

Prompts are texts that are put directly before each text, by name. The prompt ``query`` is for search queries,
``document`` for the documents to search in, and ``default_prompt_name`` names the prompt of all other texts. An empty
prompt is none. The widths are those at which a model was trained to be truncated to its first dimensions (Matryoshka).
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from nearfar.encoder.folder_checks import read_settings
from nearfar.types import NearfarError, VectorSimilarity
from nearfar.validation import format_value, join_or

WIDTHS = "matryoshka"
"""The key of ``config_sentence_transformers.json`` with the widths at which a model was trained, widest first.

It is nearfar's addition: sentence-transformers ignores it, and drops it where it saves the model again.
"""


def truncated_width(dimensions: int | None, dim: int, trained: Sequence[int]) -> int:
    """Width of an embedding truncated to its first ``dimensions``; ``dim`` if that is None.

    Args:
        dimensions: the requested width.
        dim: the model's width.
        trained: the widths at which the model was trained, for the message.

    Raises:
        NearfarError: ``dimensions`` is below 1 or above ``dim``.
    """
    if dimensions is not None and not 1 <= dimensions <= dim:
        widths = f" It was trained at the widths {', '.join(map(str, trained))}." if trained else ""
        raise NearfarError(f"--dimensions {dimensions}: must be from 1 to {dim}, the model's width.{widths}")
    return dim if dimensions is None else dimensions


def choose_width(dimensions: int | None, dim: int, trained: Sequence[int]) -> int:
    """As :func:`truncated_width`, with a warning for a width that the model was not trained at, where that is known."""
    width = truncated_width(dimensions, dim, trained)
    if trained and width not in (*trained, dim):
        widths = ", ".join(map(str, trained))
        warnings.warn(f"--dimensions {width}: the model was trained at the widths {widths}, not at this.", stacklevel=3)
    return width


def describe_widths(dim: int, widths: Sequence[int]) -> str:
    """A sentence for the card of the model, after a space; empty if it was trained at its full width only."""
    smaller = [str(width) for width in widths if width < dim]
    if not smaller:
        return ""
    return (
        f" The first {', '.join(smaller)} dimensions were trained to be embeddings of their own (Matryoshka): "
        f'`SentenceTransformer("this folder", truncate_dim={smaller[0]})` gives smaller vectors.'
    )


PROMPTS_FILE = "config_sentence_transformers.json"
QUERY, DOCUMENT = "query", "document"
Role: TypeAlias = Literal["query", "document"]
"""What a text is to a search, and the name of its prompt; as in sentence-transformers 6, each model has both."""
SURROGATE = re.compile(r"[\ud800-\udfff]")
PROMPT_NAME = re.compile(r"[\w-]+")
"""A value that looks like the name of a prompt. As a text it would run into the first word after it."""


class InferenceSettings(NamedTuple):
    """What a model folder says about inference: its prompts, and the similarity to compare vectors by."""

    prompts: Mapping[str, str]
    default_prompt_name: str | None = None
    similarity_fn_name: VectorSimilarity = "cosine"
    include_prompt: bool = True
    """Whether the pooling includes the tokens of the prompt."""
    lower_case: bool = False
    """Whether texts are lower-cased before the tokenizer (``do_lower_case`` of the module Transformer)."""
    matryoshka: tuple[int, ...] = ()
    """Widths at which the embeddings were trained, widest first; empty if only at their full width."""
    role_lengths: Mapping[str, int] = {}
    """Maximum numbers of tokens: ``query_length`` and ``document_length``, where they are not those of all texts."""


class SavedSettings(Struct):
    """The content of :data:`PROMPTS_FILE`; null is as if it were left out."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: VectorSimilarity | None = None
    matryoshka: tuple[Annotated[int, Meta(ge=1)], ...] | None = None
    truncate_dim: Any = None


class PromptedText(NamedTuple):
    """A text and the prompt before it."""

    prompt: str
    text: str


def read_inference_settings(folder: Path) -> InferenceSettings:
    """Read the prompts and the similarity of a model folder; without the file, there are no prompts.

    As in sentence-transformers, ``query`` and ``document`` are always defined, and empty unless the folder has them.

    Raises:
        NearfarError: the file is damaged, a prompt is not a text, the default prompt is not one of the prompts, or the
            similarity is unknown, the widths are not whole numbers, or embeddings are to be truncated.
    """
    file = folder / PROMPTS_FILE
    saved = read_settings(file, SavedSettings) if file.exists() else SavedSettings()
    texts = {name: text or "" for name, text in (saved.prompts or {}).items()}
    prompts, default = {QUERY: "", DOCUMENT: "", **texts}, saved.default_prompt_name
    if default is not None and default not in prompts:
        known = join_or(map(repr, prompts))
        raise NearfarError(f"{file}: default_prompt_name is {format_value(default)}, but must be {known}.")
    if (width := saved.truncate_dim) is not None:
        raise NearfarError(f"{file}: truncate_dim is {format_value(width)}; remove this entry, and use --dimensions.")
    return InferenceSettings(prompts, default, saved.similarity_fn_name or "cosine", matryoshka=saved.matryoshka or ())


def settings_of(inference: InferenceSettings) -> dict[str, Any]:
    """The content of :data:`PROMPTS_FILE`, as sentence-transformers writes it, with :data:`WIDTHS` if there are any."""
    packages = {"sentence_transformers": "sentence-transformers", "transformers": "transformers", "pytorch": "torch"}
    return {
        "__version__": {name: version(package) for name, package in packages.items()},
        "model_type": "SentenceTransformer",
        "prompts": dict(inference.prompts),
        "default_prompt_name": inference.default_prompt_name,
        "similarity_fn_name": inference.similarity_fn_name,
        **({WIDTHS: list(inference.matryoshka)} if inference.matryoshka else {}),
    }
