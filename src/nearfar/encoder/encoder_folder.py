"""Reads and writes sentence-transformers folders: the list of modules, their settings, and the modules themselves.

A folder is a list of modules: Transformer, then Pooling, then any of Dense, LayerNorm, Normalize. Two more modules
express nearfar's other poolings, so that sentence-transformers gives the same vectors: WordWeights with weight 0 for
[CLS] is ``mean_without_cls``; WeightedLayerPooling, with weight 1 for the chosen layers, is a mean of two layers, such
as ``first_last``, or a pooling of one layer, such as ``layer:K`` or ``layer:K:max``.
A folder that starts with StaticEmbedding in place of Transformer and Pooling is a static encoder (static.py).
A folder without ``modules.json`` is a plain transformers encoder, whose default pooling is the mean.
A folder whose only module is a Router has two encoders, of queries and of documents, each in a folder of its own.
Only sentence-transformers' own module classes are loaded, and only from inside the folder.
"""

import re
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from nearfar.disk import apply_umask
from nearfar.disk.model_folder import CARD_MARK
from nearfar.encoder import folder_checks as checks
from nearfar.encoder import pretrained, prompts
from nearfar.encoder.adapters import load_adapted, save_adapter
from nearfar.encoder.backbone import keep_layers as keep_some_layers
from nearfar.encoder.exported import GraphBackbone, graph_format, refuse_graph
from nearfar.encoder.folder_checks import TransformerSettings, write_json
from nearfar.encoder.pooling import TOKEN_POOLINGS, Pooling, mean_of_layers, parse_pooling
from nearfar.encoder.pretrained import PreTrainedModel, PreTrainedTokenizerBase, opening
from nearfar.encoder.prompts import InferenceSettings, Role
from nearfar.encoder.ragged import attends_causally
from nearfar.encoder.static import UNLIMITED, StaticBackbone, is_static, read_static, static_module, static_tokenizer
from nearfar.encoder.weights import FILES, check_weights
from nearfar.types import NearfarError
from nearfar.validation import format_value


class EncoderComponents(NamedTuple):
    """The content of a model folder. ``tail``: modules after pooling, except a final Normalize (``normalize``)."""

    backbone: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: Pooling
    max_length: int
    tail: tuple[nn.Module, ...]
    normalize: bool
    inference: InferenceSettings


def read(
    folder: Path,
    *,
    role: Role | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    keep_layers: str | None = None,
) -> EncoderComponents:
    """Open a sentence-transformers folder or a plain transformers encoder, in float32.

    ``role`` is that of :func:`modules_of`. ``pooling`` and ``max_length`` override the folder's; ``keep_layers`` is as
    in :meth:`Encoder.from_pretrained`.

    Raises:
        NearfarError: weights are missing, truncated or of another architecture; nearfar does not support a module, the
            pooling or another setting; ``max_length`` is over the model's limit; no such layers.
    """
    (kind, inner), *rest = modules_of(folder, role)
    graph, only = graph_format(inner), "mean" if kind == STATIC else None
    backbone: PreTrainedModel
    if kind == STATIC:
        backbone, tokenizer, length = read_static(inner)
        settings = TransformerSettings(max_seq_length=length)
    else:
        settings = checks.transformer_settings(inner)
        words = inner
        if (inner / checks.ADAPTER).exists() and not (inner / "config.json").exists():
            backbone, base = load_adapted(inner)
            words = inner if (inner / "tokenizer_config.json").exists() else base
        else:
            backbone = GraphBackbone(inner, graph) if graph else pretrained.load_model(inner)
        tokenizer = pretrained.load_tokenizer(words)
        if isinstance(backbone, GraphBackbone):
            only = backbone.pooling
        else:
            pretrained.check_vocabulary(inner, tokenizer, backbone)
    if only and pooling not in (None, only):
        raise NearfarError(f"{folder}: its pooling cannot be changed; use --pooling {only}.")
    name, include_prompt = _read_pooling(folder, dict(rest), tokenizer, asked=only or pooling)
    if keep_layers is not None:
        keep_some_layers(backbone, keep_layers)
    of_graph = Pooling(name, (), "cls")  # a graph pools, and gives the embedding in the first place
    own = of_graph if graph else parse_pooling(name, layers=backbone.config.num_hidden_layers)
    if own.tokens == "cls" and not graph and attends_causally(backbone):
        problem = (
            f"the pooling {name} takes the first token, which reads no other, as {type(backbone).__name__} is causal"
        )
        raise NearfarError(f"{folder}: {problem}; choose another, as --pooling lasttoken or --pooling mean.")
    length = choose_length(inner, settings, backbone, tokenizer, max_length)
    tail, normalize = _read_tail(folder, rest, backbone.config.hidden_size)
    inference = prompts.read_inference_settings(folder)._replace(
        include_prompt=include_prompt,
        lower_case=settings.do_lower_case,
        role_lengths=settings.role_lengths if max_length is None else {},
    )
    normalize = normalize or getattr(backbone, "normalized", False)
    return EncoderComponents(backbone, tokenizer, own, length, tail, normalize, inference)


def choose_length(
    folder: Path,
    settings: TransformerSettings,
    backbone: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    asked: int | None,
) -> int:
    """The maximum number of tokens: the one asked for, else the folder's, else what model and tokenizer allow.

    Warns if the folder's is over the number of positions, as in published RoBERTa folders.

    Raises:
        NearfarError: the one asked for is over what they allow or under 3; or the backbone has no positions for the
            folder's lengths of queries and documents.
    """
    positions = getattr(backbone.config, "max_position_embeddings", None) or -1
    table = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if positions > 0 and padding is not None:
        positions -= padding + 1  # RoBERTa-like models reserve positions up to that of padding
    positions = positions if positions > 0 else UNLIMITED  # XLNet and T5 have no table of them
    limit = int(min(positions, tokenizer.model_max_length, UNLIMITED))
    if asked is not None:
        if not 3 <= asked <= limit:
            raise NearfarError(f"max_length {asked}: must be from 3 to {limit} tokens for this encoder.")
        return asked
    length = int(settings.tokenizer.get("model_max_length") or settings.max_seq_length or limit)
    for name, value in {**settings.role_lengths, "max_seq_length": length}.items():
        problem = f"{folder}: {name} is {value}, but the model has positions for {positions} tokens"
        if value > positions and name != "max_seq_length":
            raise NearfarError(f"{problem}; choose one length for all texts with --max-length.")
        if value > positions:
            warnings.warn(f"{problem}, to which longer texts are truncated.", stacklevel=2)
    return min(length, positions)


# --- the modules ---

AFTER_POOLING = ("Dense", "LayerNorm", "Dropout", "Normalize")
POOLING = ("Pooling", "WordWeights", "WeightedLayerPooling")
STATIC = "StaticEmbedding"
FIRST = ("Transformer", STATIC)
OWN = re.compile(r"sentence_transformers\.(?:\w+\.)*(\w+)")
"""The full name of a class of sentence-transformers, in any version."""
EMBEDDING = "sentence_embedding"
PLAIN_POOLING = "document_pooling"
"""The folder of the pooling of documents whose encoder is a plain transformers folder."""
WEIGHTED = ("Dense", "LayerNorm")


class ModuleEntry(Struct):
    """An entry of ``modules.json``."""

    type: str
    path: str


class RouterSettings(Struct):
    """The settings of a Router: the class of each module by its folder, and the folders of the modules of each role."""

    types: dict[str, str]
    structure: dict[str, list[str]]
    parameters: Any = None


def _of_role(folder: Path, role: Role | None) -> list[ModuleEntry]:
    """The modules of the encoder of a role, of a folder that has two.

    Raises:
        NearfarError: no role is given, the Router has no such role, or does not say what its modules are.
    """
    if role is None:
        both = " or ".join(str(folder / name) for name in (prompts.QUERY, prompts.DOCUMENT))
        raise NearfarError(f"{folder}: has one encoder for queries and one for documents; name one of them: {both}.")
    settings = checks.read_settings(folder / checks.ROUTER, RouterSettings)
    places = settings.structure.get(role)
    if not places or not {*places} <= {*settings.types}:
        raise NearfarError(f"{folder / checks.ROUTER}: does not say which modules encode the role {role!r}.")
    return [ModuleEntry(settings.types[place], place) for place in places]


def modules_of(folder: Path, role: Role | None = None) -> list[tuple[str, Path]]:
    """Kind and folder of each module, the Transformer or StaticEmbedding first.

    With a ``role``, they are those of the encoder of this role, if the folder has two.

    Raises:
        NearfarError: the list is missing or damaged, starts with another module, or names a module that nearfar
            does not support or that is outside the folder; or the folder has two encoders and no role is given.
    """
    checks.check_links(folder, folder)
    listing = folder / "modules.json"
    if not listing.exists():
        for other in (*folder.glob(prompts.PROMPTS_FILE), *folder.glob("*_Pooling")):
            raise NearfarError(f"{folder}: holds {other.name} but no modules.json. {checks.COPY_AGAIN}")
        return [("Transformer", folder)]
    modules: list[tuple[str, Path]] = []
    entries = checks.read_settings(listing, list[ModuleEntry])
    if checks.has_roles(folder):
        entries = _of_role(folder, role) + entries[1:]
    for entry in entries:
        if (own := OWN.fullmatch(entry.type)) is None:
            raise NearfarError(f"{listing}: {format_value(entry.type)}: nearfar never runs code from a model folder.")
        path = PureWindowsPath(entry.path)  # which has drives, and both kinds of slashes
        if path.anchor or ".." in path.parts or "\0" in entry.path:
            raise NearfarError(f"{listing}: the path {format_value(entry.path)} points outside the model folder.")
        following = AFTER_POOLING if modules and modules[0][0] == STATIC else (*POOLING, *AFTER_POOLING)
        if own[1] not in (following if modules else FIRST):
            known = f"nearfar supports {' or '.join(FIRST)} first, then {', '.join(following)}"
            raise NearfarError(f"{listing}: module {len(modules)} is a {format_value(own[1])}; {known}.")
        modules.append((own[1], folder / entry.path))
        checks.check_links(modules[-1][1], folder)
    if not modules:
        raise NearfarError(f"{listing}: is empty, so the folder holds no encoder.")
    return modules


def transformer_folder(folder: Path) -> Path:
    """The folder with the transformer and its tokenizer: ``folder`` or, in some models, a subfolder of it.

    Raises:
        NearfarError: the modules do not start with a transformer.
    """
    kind, inner = modules_of(folder)[0]
    if kind == STATIC:
        raise NearfarError(f"{folder}: is a static encoder, which has no transformer; choose another model.")
    return inner


def _read_pooling(
    folder: Path, modules: Mapping[str, Path], tokenizer: PreTrainedTokenizerBase, *, asked: str | None
) -> tuple[str, bool]:
    """The name in nearfar of the pooling of these modules, or that asked for; and whether it includes prompts.

    Raises:
        NearfarError: nearfar does not support this pooling, or not with this tokenizer; a module's files are damaged.
    """
    file = modules.get("Pooling", folder) / "config.json"
    settings = checks.read_object(file) if "Pooling" in modules else {"pooling_mode": "mean"}
    name = asked or _pooling_name(modules, file, settings, tokenizer)
    include_prompt = settings.get("include_prompt", True)
    if not isinstance(include_prompt, bool):
        raise NearfarError(f"{file}: include_prompt is {format_value(include_prompt)}, and must be true or false.")
    if name.endswith("mean_without_cls"):
        first = tokenizer("")["input_ids"][:1]
        if not include_prompt or tokenizer.cls_token_id is None or first != [tokenizer.cls_token_id]:
            needs = "a tokenizer that puts [CLS] first and include_prompt true"
            raise NearfarError(f"{folder}: the pooling {name} needs {needs}; choose another, as --pooling mean.")
    return name, include_prompt


class LayerSettings(Struct):
    """The settings of WeightedLayerPooling."""

    layer_start: int
    num_hidden_layers: int


def _pooling_name(
    modules: Mapping[str, Path], file: Path, settings: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
) -> str:
    """The name of the pooling of these modules, given the settings of Pooling and their file."""
    prefix = "pooling_mode_"
    old = [name.removeprefix(prefix) for name, on in settings.items() if name.startswith(prefix) and on]
    mode = settings.get("pooling_mode") or [name.removesuffix("_token").removesuffix("_tokens") for name in old]
    mode = mode[0] if isinstance(mode, list) and len(mode) == 1 else mode
    words: dict[str, Any] = {}
    if mode in TOKEN_POOLINGS and "WordWeights" in modules:
        words = checks.read_object(file := modules["WordWeights"] / "config.json")
        only_cls = words.get("word_weights") == {tokenizer.cls_token: 0} and words.get("unknown_word_weight", 1) == 1
        mode = "mean_without_cls" if mode == "mean" and only_cls else f"{mode} with weights of single words"
    if mode not in TOKEN_POOLINGS:
        raise NearfarError(f"{file}: pools by {format_value(mode)}, which is not supported; choose a --pooling.")
    if (folder := modules.get("WeightedLayerPooling")) is None:
        return str(mode)
    layers = checks.read_settings(folder / "config.json", LayerSettings)
    with opening(folder / "model.safetensors"):
        weights = load_file(folder / "model.safetensors")["layer_weights"]
    chosen = [int(layer) + layers.layer_start for layer in weights.nonzero().flatten()]
    if len(chosen) == 1:
        return f"layer:{chosen[0]}" if mode == "mean" else f"layer:{chosen[0]}:{mode}"
    name = mean_of_layers(chosen, layers=layers.num_hidden_layers)
    if name is None or mode != "mean" or weights.max() != weights.sum() / 2:
        raise NearfarError(f"{folder}: nearfar does not support these weights of layers; choose a --pooling.")
    return name


def _read_tail(folder: Path, modules: Sequence[tuple[str, Path]], width: int) -> tuple[tuple[nn.Module, ...], bool]:
    """The modules after pooling, which gives vectors of this width, and whether the last one is a Normalize.

    They run once, on ``width`` zeros.

    Raises:
        NearfarError: nearfar does not support a setting; weights are missing, damaged, or of other sizes than the
            settings say; a module fails, or its output has another width than its settings say.
    """
    after = [(kind, place) for kind, place in modules if kind in AFTER_POOLING]
    normalize = bool(after) and after[-1][0] == "Normalize"
    if normalize:  # a flag here: loading the module would import sentence-transformers
        _check_settings(*after.pop())
    tail: list[nn.Module] = []
    embedding = torch.zeros(1, width)
    for kind, place in after:
        _check_settings(kind, place)
        with opening(place / "config.json"):
            tail.append(pretrained.load_module(kind, place))
        with opening(folder / "modules.json"), torch.no_grad():
            embedding = tail[-1].eval()({EMBEDDING: embedding})[EMBEDDING]
            width = getattr(tail[-1], "out_features", width)
            if embedding.shape != (1, width):
                gives = f"should give {width} dimensions, but gives {list(embedding.shape[1:])}"
                raise NearfarError(f"{folder / 'modules.json'}: module {len(tail)} after pooling, {kind}, {gives}.")
    return tuple(tail), normalize


def _check_settings(kind: str, folder: Path) -> None:
    """Check the settings of a module that follows pooling, before it takes memory."""
    file = folder / "config.json"
    settings = checks.read_object(file) if kind != "Normalize" or file.exists() else {}
    names = {settings.get(f"module_{side}_name") or EMBEDDING for side in ("input", "output")}
    if names != {EMBEDDING}:
        raise NearfarError(f"{file}: {kind} reads or writes {format_value(names)}, and not {EMBEDDING!r} alone.")
    activation = settings.get("activation_function")
    if activation is not None and not str(activation).startswith("torch.nn."):
        raise NearfarError(f"{file}: activation_function is {format_value(activation)}, and must be of torch.nn.")
    shapes = check_weights(folder).values() if kind in WEIGHTED else []
    largest = max((size for shape in shapes if 0 not in shape for size in shape), default=1)
    for name, value in settings.items():
        if isinstance(value, int) and value > largest:
            raise NearfarError(f"{file}: {name} is {value}, but all dimensions of the weights are smaller.")


# --- writing ---


def write(folder: Path, parts: EncoderComponents, *, dim: int) -> None:
    """Write what sentence-transformers would, so that ``SentenceTransformer(folder).encode`` equals ``Encoder.encode``.

    ``dim`` is the width of embeddings.

    Raises:
        NearfarError: the backbone has LoRA adapters that are to be merged, or is a graph.
    """
    backbone, pooling, inference, length = parts.backbone, parts.pooling, parts.inference, parts.max_length
    refuse_graph(backbone, "saved")
    st, config, modules = pretrained.module_classes(), backbone.config, list[Any]()
    if is_static(backbone):
        modules = [static_module(cast(Any, backbone), parts.tokenizer, max_length=length)]
    else:
        config.output_hidden_states = bool(pooling.layers)
        save = (
            partial(save_adapter, backbone=backbone) if hasattr(backbone, "peft_config") else backbone.save_pretrained
        )
        pretrained.save_transformer(folder, save, parts.tokenizer, max_length=length)
        # sentence-transformers neither writes do_lower_case nor knows the lengths of roles
        lower_case = {"do_lower_case": True} if inference.lower_case else {}
        write_json(folder / checks.TRANSFORMER_SETTINGS[0], {**checks.ONLY, **inference.role_lengths, **lower_case})
        modules = [st.Transformer, *_pooling_modules(parts)]
    modules += [*parts.tail, *([st.Normalize()] if parts.normalize else [])]
    listing = []
    for number, module in enumerate(modules):
        kind: Any = module if isinstance(module, type) else type(module)
        name = f"{number}_{kind.__name__}" if number or not kind.save_in_root else ""
        listing.append({"idx": number, "name": str(number), "path": name, "type": _full_name(kind)})
        if kind is not st.Transformer:
            (folder / name).mkdir(parents=True, exist_ok=True)
            module.save(str(folder / name))
    write_json(folder / "modules.json", listing)
    write_json(folder / prompts.PROMPTS_FILE, prompts.settings_of(inference))
    for file in (*folder.glob("*model*.safetensors"), *folder.glob("[0-9]*_*/model.safetensors")):
        apply_umask(file)  # safetensors writes files that only the owner can read
    template = Path(__file__).with_name("model_card.md").read_text(encoding="utf-8")
    card = template.format(
        dim=dim,
        pooling=pooling.name,
        length=f"up to {length} tokens" if length < UNLIMITED else "of any length",
        widths=prompts.describe_widths(dim, inference.matryoshka),
        mark=CARD_MARK,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _full_name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def copy_model(folder: Path, target: Path) -> None:
    """Copy the files that define a model into an empty folder, so that it has the same fingerprint there."""
    for part in {folder, *(place for _, place in modules_of(folder))}:
        to = target / part.relative_to(folder)
        to.mkdir(parents=True, exist_ok=True)
        for file in (file for kind in FILES for file in part.glob(kind) if file.is_file()):
            shutil.copyfile(file, to / file.name)


def write_roles(folder: Path, writers: Mapping[Role, Callable[[Path], None]], settings: InferenceSettings) -> None:
    """Write a folder with two encoders, as a Router of sentence-transformers.

    Args:
        folder: the folder to write.
        writers: write the encoder of queries, and that of documents, into a folder.
        settings: the prompts of both, and how their vectors are compared.
    """
    st, types, structure = pretrained.module_classes(), dict[str, str](), dict[str, list[str]]()
    for role, write_encoder in writers.items():
        write_encoder(folder / role)
        if (listing := folder / role / "modules.json").exists():
            entries = checks.read_settings(listing, list[ModuleEntry])
            own = {Path(role, entry.path).as_posix(): entry.type for entry in entries}
        else:  # a plain transformers encoder, which stays as it is
            own = {role: _full_name(st.Transformer), PLAIN_POOLING: _full_name(st.Pooling)}
            width = checks.read_object(folder / role / "config.json")["hidden_size"]
            (folder / PLAIN_POOLING).mkdir()
            st.Pooling(width, pooling_mode="mean").save(str(folder / PLAIN_POOLING))
        types, structure[role] = {**types, **own}, list(own)
    parameters = {"default_route": prompts.DOCUMENT, "allow_empty_key": True, "route_mappings": {}}
    write_json(folder / checks.ROUTER, {"types": types, "structure": structure, "parameters": parameters})
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": _full_name(st.Router)}])
    write_json(folder / prompts.PROMPTS_FILE, prompts.settings_of(settings))


def _pooling_modules(parts: EncoderComponents) -> list[nn.Module]:
    st, tokenizer, pooling = pretrained.module_classes(), parts.tokenizer, parts.pooling
    mode = str(pooling.tokens)
    dim, layers = parts.backbone.config.hidden_size, parts.backbone.config.num_hidden_layers
    modules: list[nn.Module] = []
    if pooling.layers:
        weights = torch.zeros(layers + 1)
        weights[list(pooling.layers)] = 1.0
        modules.append(
            st.WeightedLayerPooling(dim, num_hidden_layers=layers, layer_start=0, layer_weights=nn.Parameter(weights))
        )
    if mode == "mean_without_cls":
        vocabulary, mode = tokenizer.get_vocab(), "mean"
        modules.append(st.WordWeights(sorted(vocabulary, key=vocabulary.__getitem__), {tokenizer.cls_token: 0.0}))
    return [*modules, st.Pooling(dim, pooling_mode=mode, include_prompt=parts.inference.include_prompt)]


def static_components(
    table: NDArray[np.float32], tokenizer: PreTrainedTokenizerBase, *, normalize: bool
) -> EncoderComponents:
    """A new static encoder with these vectors [vocabulary, dim], for the tokens of an encoder's tokenizer."""
    plain, _ = static_tokenizer(Tokenizer.from_str(cast(Any, tokenizer).backend_tokenizer.to_str()))
    backbone = StaticBackbone(torch.from_numpy(table))
    return EncoderComponents(
        backbone, plain, Pooling("mean", (), "mean"), UNLIMITED, (), normalize, InferenceSettings({})
    )
