"""What a run trains: the encoder that it starts from, opened as its settings say, and the methods on its rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from nearfar.commands.encode.vectors import read_vectors_file
from nearfar.commands.search.index import MANIFEST, SearchIndex, hash_bytes
from nearfar.commands.train import inputs
from nearfar.config.training import TrainConfig
from nearfar.data.lines import read_texts
from nearfar.data.rows import TextData
from nearfar.disk.checks import expanded
from nearfar.disk.work import join_changes, list_changes
from nearfar.encoder import encoder_folder
from nearfar.encoder.backbone import recompute_layers
from nearfar.encoder.dropout import set_dropout
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.folder_checks import ADAPTER
from nearfar.encoder.frozen import TeacherVectors
from nearfar.encoder.pooling import parse_pooling
from nearfar.encoder.precision import resolve
from nearfar.encoder.static import is_static, merge_square_layers
from nearfar.encoder.training_encoder import TrainingEncoder
from nearfar.methods import BuildContext, BuiltMethod, Method
from nearfar.methods.mixture import Mixture, describe_widths, train_at_widths, with_distinct_names
from nearfar.methods.settings import InfoNceSettings
from nearfar.neighbours import unit_rows
from nearfar.runs.fingerprints import fingerprint_model
from nearfar.runs.run import Prepared, count_steps
from nearfar.settings import method_of
from nearfar.training.gradients import seed_rng
from nearfar.training.processes import Processes
from nearfar.training.recordings import Recordings
from nearfar.types import NearfarError

COMPARED = 8
"""Number of vectors of ``document_vectors``, or some more, that are compared with those of the encoder."""
FARTHEST = 0.1414
"""The largest distance of two such vectors relative to their length: that of unit vectors with a cosine of 0.99."""
PROMPTS = ("query_prompt", "document_prompt", "prompt")
"""The settings of prompts, which a further set may have for itself."""


@dataclass(frozen=True, kw_only=True)
class PreparedRun(Prepared):
    """What a run trains that trains an encoder."""

    encoder: Encoder
    texts: TrainingEncoder
    merge: Callable[[], None] | None
    """Merges adapters, or linear layers of a static encoder, into the encoder's weights; called before saving."""
    teachers: Sequence[TeacherVectors]
    """Other encoders whose vectors of the texts the methods use."""


def prepare(
    config: TrainConfig,
    sets: Sequence[inputs.TrainingSet] | None = None,
    *,
    processes: int = 1,
    device: str | None = None,
    console: Console | None = None,
) -> PreparedRun:
    """Encoder and methods for the rows of ``sets``; initial weights of heads depend on the config's seed alone.

    Without ``sets``, they and their rows are those of the config. ``console`` shows a progress bar while many
    texts are tokenized.

    Raises:
        NearfarError: any error that would stop the run before its first step.
    """
    sets = sets or inputs.read_training_data(inputs.resolve_sets(config))
    encoder = open_start(config, device)
    texts = TrainingEncoder(
        encoder,
        max_length=config.train_max_length,
        bf16=resolve(config.precision, encoder.device) == "bf16",
        broadcast_from_first=Processes().broadcast_from_first,
        # the graphs' gradients pass autograd's hooks, which sum over processes, by, and graphs keep all activations
        cuda_graphs=processes == 1 and not config.gradient_checkpointing,
        console=console,
    )
    seed_rng(config.seed)
    mixed: list[tuple[tuple[Method, float], ...]] = []
    facts: list[str] = []
    teachers: list[TeacherVectors] = []
    for training_set in sets:
        own, rows = training_set.config, training_set.rows
        with training_set.errors():
            size, fitted = _fit_batch_size(own, rows, own.batch_size * processes)
            own_prompts = {} if training_set.number == 1 else {name: getattr(own, name) for name in PROMPTS}
            context = BuildContext(texts.with_prompts(**own_prompts), size, _frozen_documents(encoder, own, rows))
            built: BuiltMethod = inputs.entry_of(own).build(own, context, rows)  # type: ignore[misc]
            method = train_at_widths(built.method, own, encoder.dim)
            found = [*built.facts, *fitted, *describe_widths(own, encoder.dim)]
            if context.frozen is not None and config.document_vectors is not None:
                found.append(_use_vectors(context.frozen, config, own))
        if method.count_tokens is None:
            method = replace(method, count_tokens=context.encoder.lengths)  # its items are texts
        share = 1.0 if config.mix == "weighted" or len(sets) == 1 else own.weight
        mixed.append(tuple((each, share * weight) for each, weight in ((method, 1.0), *built.extra_losses)))
        prefix = f"set {training_set.number}, {method.name}: " if training_set.number > 1 else ""
        facts += [f"{prefix}{fact}" for fact in found]
        teachers += [*built.teachers, *filter(None, [context.frozen])]
    if (prompts := encoder.describe_prompts()) is not None:
        facts.append(prompts)
    if encoder.similarity != "cosine":
        facts.append(f"texts are ranked and scored by {encoder.similarity}; the loss compares as its method says")
    encoder.matryoshka = tuple(sorted(config.matryoshka or (), reverse=True))
    weights = tuple(training_set.config.weight for training_set in sets)
    mixture = Mixture(with_distinct_names(mixed), config.mix, weights, config.mix_temperature, config.seed)
    facts += mixture.describe()
    texts.expect(steps=count_steps(config, mixture))
    for head in mixture.heads:
        head.to(encoder.device)
    merge: Callable[[], None] | None = None
    if config.lora_rank is not None:
        merge = _add_adapters(config, encoder)
    elif is_static(encoder.backbone):
        merge = partial(merge_square_layers, encoder.backbone, encoder.tail)
    if cut := texts.tokens.truncated:
        length = min(config.train_max_length or encoder.max_length, encoder.max_length)
        facts.append(f"{cut} of {len(texts.tokens)} sentences have over {length} tokens and are truncated")
    recordings = None if texts.graphs is None else Recordings(texts.graphs.gradients, encoder, encoder.device)
    return PreparedRun(
        encoder=encoder,
        texts=texts,
        mixture=mixture,
        facts=facts,
        recordings=recordings,
        merge=merge,
        teachers=teachers,
    )


def _add_adapters(config: TrainConfig, encoder: Encoder) -> Callable[[], None] | None:
    """Add the adapters of the config; returns a function that merges them, or None if they are to be kept.

    Raises:
        NearfarError: a folder with adapters of this encoder could not be opened again.
    """
    from nearfar.encoder.adapters import add_lora, base_name

    how: dict[str, Any] = {"rank": config.lora_rank, "alpha": config.lora_alpha}
    if config.adapter == "merge":
        return add_lora(encoder.backbone, **how)
    source, layers = encoder.source, parse_pooling(encoder.pooling, layers=encoder.backbone.config.num_hidden_layers)
    assert source is not None
    inner = encoder_folder.transformer_folder(source)
    problem = None
    if (inner / ADAPTER).exists():
        problem = f"{config.model} is itself an adapter of another model"
    elif layers.layers:
        problem = f"the pooling {encoder.pooling} is a setting of the base, which an adapter leaves as it is"
    if problem is not None:
        raise NearfarError(f"--adapter keep: {problem}; use --adapter merge.")
    add_lora(encoder.backbone, **how, base=base_name(config.model, source, inner))
    return None


def open_start(config: TrainConfig, device: str | None) -> Encoder:
    """The encoder to start from, with the dropout, the prompts and the memory saving of the config."""
    names = ("max_length", "keep_layers", *PROMPTS)
    opening = {name: getattr(config, name) for name in names} | {"device": device or config.device}
    pooling = None if config.pooling == "own" else config.pooling
    encoder = Encoder.from_pretrained(config.model, pooling=pooling, **opening)
    if config.dropout is not None:
        set_dropout(encoder.backbone, config.dropout)
    if config.gradient_checkpointing:
        recompute_layers(encoder.backbone)
    if config.freeze is not None:
        name = config.document_model or config.model
        documents = Encoder.from_pretrained(name, device=opening["device"], document_prompt=config.document_prompt)
        try:
            encoder.set_documents(documents.of_role("document"))
        except NearfarError as error:
            raise NearfarError(f"--freeze documents: {config.model} and {name}: {error}") from error
    elif encoder.documents is not None:
        raise NearfarError(
            f"--model {config.model}: has an encoder for queries and another for documents; train that of queries "
            "further with --freeze documents, or name one of its folders, query and document."
        )
    if config.query_layer:
        encoder.add_square_layer()
    return encoder


def _frozen_documents(encoder: Encoder, own: TrainConfig, rows: TextData) -> TeacherVectors | None:
    """The vectors of the documents of a set, which are not trained; None where they are.

    Raises:
        NearfarError: the rows of the set's method have no queries and documents.
    """
    if encoder.documents is None:
        return None
    if not inputs.entry_of(own).by_role:
        raise NearfarError(
            f"--freeze documents: {method_of(own)} trains on texts that are neither queries nor documents; give rows "
            "with both, such as pairs."
        )
    texts = (text for row in rows.rows[: own.limit] for text in row[1:] if isinstance(text, str))
    name, bf16 = str(encoder.documents.source), resolve(own.precision, encoder.device) == "bf16"
    return TeacherVectors(encoder.documents, texts, name=name, bf16=bf16, role="document")


def _use_vectors(documents: TeacherVectors, config: TrainConfig, own: TrainConfig) -> str:
    """Let the documents of a set, whose settings are ``own``, have the vectors that exist; returns in words how many.

    An index knows the texts of its vectors; a .npy file has the vectors of the positives of the rows. A few are
    compared with those of the encoder of documents, beside which the trained one is saved.

    Raises:
        NearfarError: there are no such vectors, or they are of another model, other settings or other rows.
    """
    path, name = expanded(str(config.document_vectors)), f"--document-vectors {config.document_vectors}"
    way = f"Name vectors of {config.document_model or config.model}, or the model of these as --document-model."
    encoder = documents.encoder
    if (path / MANIFEST).exists():
        index = SearchIndex.open(path)
        now = {**index.manifest.settings, "weights": fingerprint_model(documents.name), "pooling": encoder.pooling}
        now |= {"max_length": encoder.length_of("document"), "document_prompt": encoder.document_prompt}
        if changes := list_changes(index.manifest.settings, {**now, "dimensions": None}, {"weights": "the model"}):
            raise NearfarError(f"{name}: is the index of other vectors: {join_changes(changes)}. {way}")
        path, hashes = path / "vectors.npy", index.rows["text_hash"][index.first_rows]
    else:
        if (column := getattr(config, "positive_column", None)) is None or len(config.data) > 1:
            raise NearfarError(f"{name}: only positives of a single file can have a .npy file; name a search index.")
        hashes = np.fromiter((hash_bytes(text.encode()) for text in read_texts(config.data[0], column)), np.uint64)
    if (vectors := read_vectors_file(path, (len(hashes), documents.dim), "float16")) is None:
        raise NearfarError(
            f"{name}: must be a search index, or a .npy file with a finite vector for each row of --data: float32 or "
            f"float16 [{len(hashes)}, {documents.dim}]."
        )
    wanted = {hash_bytes(text.encode()): text for text in documents.texts}
    rows = np.flatnonzero(np.isin(hashes, np.fromiter(wanted, np.uint64)))[::-1].tolist()
    known = {wanted[int(hashes[row])]: row - len(hashes) for row in rows}  # of equal texts the first, which comes last
    texts = [*known][:: -(-len(known) // COMPARED) or 1]
    by_cosine = isinstance(own, InfoNceSettings) and getattr(own, "similarity", "cosine") == "cosine"
    expected = encoder.encode(texts, role="document", normalize=by_cosine, precision="fp32")
    given = vectors[[known[text] for text in texts]].astype(np.float32)
    distances = np.linalg.norm((unit_rows(given) if by_cosine else given) - expected, axis=1)
    if (differs := distances > FARTHEST * np.linalg.norm(expected, axis=1)).any():
        what = f"its vector of {texts[differs.argmax()][:60]!r} is of another model, prompt or row"
        what += "" if by_cosine else f", or not of the model's length (--no-normalize), as {method_of(own)} needs it"
        raise NearfarError(f"{name}: {what}. {way}")
    documents.use(vectors, known)
    return f"documents: {len(known):,} have a vector in {config.document_vectors}, {len(documents.texts):,} are encoded"


def _fit_batch_size(own: TrainConfig, rows: TextData, requested: int) -> tuple[int, list[str]]:
    """The batch size, of all processes together, and a fact if there are fewer rows than the ``requested`` one.

    Raises:
        NearfarError: too few rows for any batch.
    """
    count = len(rows.rows[: own.limit])
    where = f"{count:,} rows in {', '.join(own.data)}" + (f" (--limit {count})" if count == own.limit else "")
    where += f" that are not held out ({rows.held_out:,} are)" if rows.held_out else ""
    if count < inputs.entry_of(own).min_rows:
        raise NearfarError(f"there are {where}; {method_of(own)} contrasts rows with each other, and needs 2 or more.")
    fact = f"batch size {count}: there are {where}, fewer than the batch size of {requested}"
    return min(requested, count), [fact] if requested > count else []
