"""Reads and writes sentence-transformers folders: the list of modules, their settings, and the modules themselves.

A folder is a list of modules: Transformer, then Pooling, then any of Dense, LayerNorm, Normalize. Two more modules
express nearfar's other poolings, so that sentence-transformers gives the same vectors: WordWeights with weight 0 for
[CLS] is ``mean_without_cls``; WeightedLayerPooling, with weight 1 for the chosen layers, is a mean of two layers, such
as ``first_last``, or a pooling of one layer, such as ``layer:K`` or ``layer:K:max``.
A folder that starts with StaticEmbedding in place of Transformer and Pooling is a static encoder (static.py).
A folder without ``modules.json`` is a plain transformers encoder, whose default pooling is the mean.
Only sentence-transformers' own module classes are loaded, and only from inside the folder.
"""

import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from nearfar.disk import apply_umask
from nearfar.disk.model_folder import CARD_MARK
from nearfar.encoder import folder_checks as checks
from nearfar.encoder import pretrained, prompts
from nearfar.encoder.exported import GraphBackbone, graph_format, refuse_graph
from nearfar.encoder.folder_checks import TransformerSettings, quoted
from nearfar.encoder.pooling import Pooling, mean_of_layers
from nearfar.encoder.pretrained import PreTrainedModel, PreTrainedTokenizerBase, opening
from nearfar.encoder.prompts import InferenceSettings
from nearfar.encoder.static import UNLIMITED, StaticBackbone, is_static, read_static, static_module, static_tokenizer
from nearfar.encoder.weights import check_weights, weight_file
from nearfar.types import NearfarError

MODEL_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, nearfar]
---
{mark}
# A sentence encoder

Made with nearfar. {dim} dimensions, pooling `{pooling}`, texts {length}.{widths}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this folder")
embeddings = model.encode(["A man plays a guitar.", "Someone makes music."])
print(model.similarity(embeddings, embeddings))
```
"""


class EncoderComponents(NamedTuple):
    """The content of a model folder. ``tail``: modules after pooling, except a final Normalize (``normalize``)."""

    backbone: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: str
    max_length: int
    tail: tuple[nn.Module, ...]
    normalize: bool
    inference: InferenceSettings


def read(
    folder: Path, *, dtype: torch.dtype, pooling: str | None = None, max_length: int | None = None
) -> EncoderComponents:
    """Open a sentence-transformers folder or a plain transformers encoder.

    ``pooling`` and ``max_length`` override the folder's.

    Raises:
        NearfarError: weights are missing, truncated or of another architecture; nearfar does not support a module, the
            pooling or another setting; ``max_length`` is over the model's limit.
    """
    (kind, path), *rest = modules_of(folder)
    inner, include_prompt = folder / path, True
    settings = TransformerSettings(inner / checks.TRANSFORMER_SETTINGS[0])
    backbone: PreTrainedModel
    if kind == STATIC:
        if pooling not in (None, "mean"):
            raise NearfarError(
                f"{folder}: a static encoder takes the mean of its tokens; use --pooling mean, not {pooling}."
            )
        backbone, tokenizer, length = read_static(inner, dtype=dtype)
        pooling = "mean"
        if max_length is not None:
            length = choose_length(settings, backbone, tokenizer, max_length)
    else:
        graph = graph_format(inner)
        backbone = GraphBackbone(inner, graph) if graph else _load_backbone(inner, dtype)
        tokenizer = pretrained.load_tokenizer(inner)
        if isinstance(backbone, GraphBackbone):
            if pooling not in (None, backbone.pooling):
                refuse_graph(backbone, f"pooled by {pooling}")
            pooling = backbone.pooling
        else:
            pretrained.check_vocabulary(inner, tokenizer, backbone)
        settings = checks.transformer_settings(inner, any_length=max_length is not None)
        length = choose_length(settings, backbone, tokenizer, max_length)
        has_head = any(kind not in AFTER_POOLING for kind, _ in rest)
        pooling = pooling or (pooling_name(folder, rest, cls_token=tokenizer.cls_token) if has_head else "mean")
        include_prompt = includes_prompt(folder, rest)
        if not include_prompt and pooling.endswith("mean_without_cls"):
            raise NearfarError(
                f"{folder}: its Pooling module has include_prompt false, which nearfar supports with the poolings cls, "
                f"mean and max, not with {pooling}."
            )
        first = tokenizer("")["input_ids"][:1] if pooling.endswith("mean_without_cls") else None
        if first is not None and (tokenizer.cls_token_id is None or first != [tokenizer.cls_token_id]):
            raise NearfarError(
                f"{folder}: the pooling {pooling} leaves out [CLS], which this model's tokenizer does not put first; "
                "choose another with --pooling, such as mean."
            )
    tail, normalize = _read_tail(folder, rest, backbone.config.hidden_size)
    normalize = normalize or getattr(backbone, "normalized", False)
    inference = prompts.read_inference_settings(folder, include_prompt=include_prompt)._replace(
        lower_case=settings.lower_case, role_lengths=settings.role_lengths
    )
    return EncoderComponents(backbone, tokenizer, pooling, length, tail, normalize, inference)


def _read_tail(folder: Path, modules: Sequence[tuple[str, str]], width: int) -> tuple[tuple[nn.Module, ...], bool]:
    """The modules after pooling, which gives vectors of this width, and whether the last one is a Normalize.

    They run once, on ``width`` zeros.

    Raises:
        NearfarError: a module fails, or its output has another width than its settings say.
    """
    after = [(kind, folder / path) for kind, path in modules if kind in AFTER_POOLING]
    normalize = bool(after) and after[-1][0] == "Normalize"
    if normalize:
        check_settings(*after.pop())  # Normalize is a flag here: loading the module would import sentence-transformers
    tail, embedding = tuple(tail_module(kind, place) for kind, place in after), torch.zeros(1, width)
    for number, module in enumerate(tail, start=1):
        with opening(folder / "modules.json"), torch.no_grad():
            embedding = module.eval()({EMBEDDING: embedding})[EMBEDDING]
            width = getattr(module, "out_features", width)
            if embedding.shape != (1, width):
                raise NearfarError(
                    f"{folder / 'modules.json'}: module {number} after pooling, {type(module).__name__}, should give "
                    f"{width} dimensions, but gives the shape {list(embedding.shape[1:])}."
                )
    return tail, normalize


def static_components(
    table: NDArray[np.float32], tokenizer: PreTrainedTokenizerBase, *, normalize: bool
) -> EncoderComponents:
    """A new static encoder with these vectors [vocabulary, dim], for the tokens of an encoder's tokenizer."""
    plain, _ = static_tokenizer(Tokenizer.from_str(cast(Any, tokenizer).backend_tokenizer.to_str()))
    backbone = StaticBackbone(torch.from_numpy(table))
    return EncoderComponents(backbone, plain, "mean", UNLIMITED, (), normalize, InferenceSettings({}))


def write(folder: Path, parts: EncoderComponents, pooling: Pooling) -> None:
    """Save through sentence-transformers, so that ``SentenceTransformer(folder).encode`` equals ``Encoder.encode``.

    Raises:
        NearfarError: the backbone has LoRA adapters, which a plain transformers folder cannot hold, or is a graph.
    """
    inference = parts.inference
    refuse_graph(parts.backbone, "saved")
    if hasattr(parts.backbone, "peft_config"):
        raise NearfarError(f"{folder}: merge the LoRA adapters into the encoder before saving it.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as plain:
        if is_static(parts.backbone):
            first = [static_module(cast(Any, parts.backbone), parts.tokenizer, max_length=parts.max_length)]
        else:
            first = [_transformer(plain, parts, pooling), *_pooling_modules(parts, pooling)]
        last = [pretrained.module_classes().Normalize()] if parts.normalize else []
        dim = pretrained.save_model(folder, [*first, *parts.tail, *last], inference)
    for file in (*folder.glob("model*.safetensors"), *folder.glob("[0-9]*_*/model.safetensors")):
        apply_umask(file)  # safetensors writes files that only the owner can read
    widths = inference.matryoshka
    prompts.add_settings(folder / prompts.PROMPTS_FILE, {prompts.WIDTHS: list(widths)} if widths else {})
    # the module was made anew, and sentence-transformers does not write do_lower_case
    lower_case = {"do_lower_case": True} if inference.lower_case else {}
    prompts.add_settings(folder / checks.TRANSFORMER_SETTINGS[0], {**inference.role_lengths, **lower_case})
    card = MODEL_CARD.format(
        dim=dim,
        pooling=pooling.name,
        length=f"up to {parts.max_length} tokens" if parts.max_length < UNLIMITED else "of any length",
        widths=prompts.describe_widths(dim, widths),
        mark=CARD_MARK,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _transformer(plain: str, parts: EncoderComponents, pooling: Pooling) -> nn.Module:
    """The backbone as a module of sentence-transformers, which reads it from the new transformers folder ``plain``."""
    truncation = cast(Any, parts.tokenizer).backend_tokenizer.truncation
    if truncation is not None:  # the saved length is the model's, not that of the tokenizer's last call
        settings = {**truncation, "max_length": parts.max_length}
        cast(Any, parts.tokenizer).backend_tokenizer.enable_truncation(**settings)
    with pretrained.quiet():
        parts.backbone.save_pretrained(plain)
        parts.tokenizer.save_pretrained(plain)
    return pretrained.load_transformer(
        plain,
        max_length=parts.max_length,
        hidden_states=bool(pooling.layers),
        pooler=getattr(parts.backbone, "pooler", None) is not None,
    )


def _pooling_modules(parts: EncoderComponents, pooling: Pooling) -> list[nn.Module]:
    st = pretrained.module_classes()
    dim, layers = parts.backbone.config.hidden_size, parts.backbone.config.num_hidden_layers
    modules: list[nn.Module] = []
    if pooling.layers:
        weights = torch.zeros(layers + 1)
        weights[list(pooling.layers)] = 1.0
        modules.append(
            st.WeightedLayerPooling(dim, num_hidden_layers=layers, layer_start=0, layer_weights=nn.Parameter(weights))
        )
    mode: str = pooling.tokens
    if mode == "mean_without_cls":
        mode, vocabulary = "mean", sorted(parts.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        modules.append(st.WordWeights([word for word, _ in vocabulary], {parts.tokenizer.cls_token: 0.0}))
    return [*modules, st.Pooling(dim, pooling_mode=mode, include_prompt=parts.inference.include_prompt)]


def transformer_folder(folder: Path) -> Path:
    """The folder with the transformer and its tokenizer: ``folder`` or, in some models, a subfolder of it.

    Raises:
        NearfarError: the modules do not start with a transformer.
    """
    kind, path = modules_of(folder)[0]
    if kind == STATIC:
        raise NearfarError(f"{folder}: is a static encoder, which has no transformer; choose another model.")
    return folder / path


def _load_backbone(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    backbone, info = pretrained.load_model(folder, pretrained.load_config(folder), kind="encoder", dtype=dtype)
    absent = {*map(str, info["missing_keys"])}
    pretrained.check_complete(folder, info, lambda key: key not in absent or not key.startswith("pooler."))
    if absent:
        backbone.pooler = None  # transformers initialised it with random weights
    return backbone


def new_dense(dim: int, width: int, activation: nn.Module) -> Any:
    """A new module for the ``tail``: Linear(dim, width), then the activation."""
    return pretrained.module_classes().Dense(dim, width, activation_function=activation)


def choose_length(
    settings: TransformerSettings, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None
) -> int:
    """The maximum number of tokens: the one asked for, else the folder's, else :func:`max_supported_length`.

    The ``settings`` are those of :func:`nearfar.encoder.folder_checks.transformer_settings`.

    Warns if the folder's is over the number of positions, as in published RoBERTa folders.

    Raises:
        NearfarError: the one asked for is over :func:`max_supported_length` or under 3; or the backbone has no
            positions for the folder's lengths of queries and documents.
    """
    length, positions = settings.max_length, num_positions(backbone)
    for name, role_length in settings.role_lengths.items():
        if role_length > (positions or UNLIMITED):
            raise NearfarError(
                f"{settings.file}: {name} is {role_length}, but the model has positions for {positions} tokens; choose "
                "one length for all texts with --max-length."
            )
    if asked is not None:
        limit = max_supported_length(backbone, tokenizer)
        if not 3 <= asked <= limit:
            raise NearfarError(f"max_length {asked}: must be from 3 to {limit} tokens for this encoder.")
        return asked
    if length is None or positions is None or length <= positions:
        return length or max_supported_length(backbone, tokenizer)
    warnings.warn(
        f"{settings.file}: max_seq_length is {length}, but the model has positions for {positions} tokens, to which "
        "longer texts are truncated.",
        stacklevel=2,
    )
    return positions


def max_supported_length(backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The longest text, in tokens, that both the backbone's positions and the tokenizer allow."""
    return int(min(num_positions(backbone) or UNLIMITED, tokenizer.model_max_length, UNLIMITED))


def num_positions(backbone: PreTrainedModel) -> int | None:
    """The number of tokens that the backbone has positions for; None if it has no limit."""
    positions = getattr(backbone.config, "max_position_embeddings", None)
    positions = None if positions == checks.NO_LIMIT else positions
    table = getattr(getattr(backbone, "embeddings", None), "position_embeddings", None)
    first = getattr(table, "padding_idx", None)  # set in RoBERTa-like models, which reserve positions up to this one
    return positions if positions is None or first is None else positions - first - 1


AFTER_POOLING = ("Dense", "LayerNorm", "Dropout", "Normalize")
POOLING = ("Pooling", "WordWeights", "WeightedLayerPooling")
STATIC = "StaticEmbedding"
FIRST = ("Transformer", STATIC)
ROUTED = ("Router", "Asym")
"""Modules that send queries and documents to different encoders."""
OWN = re.compile(r"sentence_transformers\.(?:\w+\.)*(\w+)")
"""The full name of a class of sentence-transformers, in any version."""
EMBEDDING = "sentence_embedding"
WEIGHTED = {"Dense": ("linear.weight", ("out_features", "in_features")), "LayerNorm": ("norm.weight", ("dimension",))}
"""Module with weights -> its main weight tensor, and the settings that give its shape."""


def modules_of(folder: Path) -> list[tuple[str, str]]:
    """Kind and path of each module, the Transformer or StaticEmbedding first.

    Raises:
        NearfarError: the list is missing or damaged, starts with another module, or names a module that nearfar
            does not support or that is outside the folder.
    """
    checks.check_links(folder, folder)
    listing = folder / "modules.json"
    if not listing.exists():
        others = [*folder.glob(prompts.PROMPTS_FILE), *folder.glob("*_Pooling")]
        if others:
            raise NearfarError(
                f"{folder}: holds {others[0].name} but no modules.json, which lists the modules after the "
                "transformer; copy the whole model folder again."
            )
        return [("Transformer", "")]
    entries = checks.read_json(listing)
    if not isinstance(entries, list):
        raise NearfarError(f"{listing}: must hold a list of modules.")
    modules = [_parse_module(listing, number, entry) for number, entry in enumerate(entries)]
    if routed := [kind for kind, _ in modules if kind in ROUTED]:
        raise NearfarError(
            f"{listing}: has a module {quoted(routed[0])}, which encodes queries and documents by different modules; "
            "nearfar trains encoders that encode both by the same ones, with or without prompts."
        )
    if not modules or modules[0][0] not in FIRST:
        raise NearfarError(
            f"{listing}: does not start with a Transformer or a StaticEmbedding, so it is no encoder that nearfar can "
            "train."
        )
    following = AFTER_POOLING if modules[0][0] == STATIC else (*POOLING, *AFTER_POOLING)
    unknown = [kind for kind, _ in modules[1:] if kind not in following]
    if unknown:
        raise NearfarError(f"{listing}: has a module {quoted(unknown[0])}, which nearfar does not support.")
    for _, path in modules:
        checks.check_links(folder / path, folder)
    return modules


def _parse_module(listing: Path, number: int, entry: Any) -> tuple[str, str]:
    kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(path, str):
        raise NearfarError(f"{listing}: entry {number} (counted from 0) must have a type and a path, both strings.")
    if (own := OWN.fullmatch(kind)) is None:
        raise NearfarError(
            f"{listing}: names the class {quoted(kind)}, which is not a module of sentence-transformers; nearfar never "
            "runs code from a model folder."
        )
    outside = PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or ".." in re.split(r"[/\\]", path)
    if outside or "\0" in path:
        raise NearfarError(f"{listing}: the path {quoted(path)} of {own[1]} points outside the model folder.")
    return own[1], path


def tail_module(kind: str, folder: Path) -> nn.Module:
    """Load a module that follows pooling.

    Raises:
        NearfarError: as :func:`check_settings`; or the module's weights are missing, damaged, or of other sizes than
            its settings say.
    """
    settings = check_settings(kind, folder)
    if kind in WEIGHTED:
        weight, names = WEIGHTED[kind]
        shape, expected = check_weights(folder).get(weight), tuple(settings.get(name) for name in names)
        if shape != expected:
            sizes = " and ".join(f"{name} {quoted(settings.get(name))}" for name in names)
            raise NearfarError(
                f"{folder / 'config.json'}: has {sizes}, but {weight} in {weight_file(folder).name} has the shape "
                f"{shape}."
            )
    with opening(folder / "config.json"):
        return pretrained.load_module(kind, folder)


def check_settings(kind: str, folder: Path) -> dict[str, Any]:
    """Read and check the settings of a module that follows pooling.

    Raises:
        NearfarError: the file is missing or damaged, or nearfar does not support a setting.
    """
    file = folder / "config.json"
    settings = checks.read_object(file) if kind != "Normalize" or file.exists() else {}
    input_name, output_name = (settings.get(f"module_{side}_name") or EMBEDDING for side in ("input", "output"))
    if (input_name, output_name) != (EMBEDDING, EMBEDDING):
        raise NearfarError(
            f"{file}: the {kind} module reads {quoted(input_name)} and writes {quoted(output_name)}; "
            f"nearfar supports only {EMBEDDING!r}."
        )
    activation = settings.get("activation_function")
    name = str(activation).rsplit(".", 1)[-1]
    known = getattr(nn, name, None)
    names = (f"{known.__module__}.{name}", f"torch.nn.{name}") if isinstance(known, type) else ()
    if activation is not None and activation not in names:
        raise NearfarError(
            f"{file}: activation_function is {quoted(activation)}, and must name a module class of torch.nn."
        )
    return settings


def pooling_name(folder: Path, modules: Sequence[tuple[str, str]], *, cls_token: str | None) -> str:
    """The name in nearfar of the pooling of these modules; ``cls_token`` is the tokenizer's.

    Raises:
        NearfarError: nearfar does not support this pooling, or a module's files are damaged.
    """
    paths = {kind: folder / path for kind, path in modules}
    if "Pooling" not in paths:
        raise NearfarError(f"{folder / 'modules.json'}: has no Pooling module; choose a pooling with --pooling.")
    file = paths["Pooling"] / "config.json"
    settings = checks.read_object(file)
    legacy = {
        key.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens"): value
        for key, value in settings.items()
        if key.startswith("pooling_mode_")
    }
    mode = settings.get("pooling_mode") or [name for name, on in legacy.items() if on]
    mode = mode[0] if isinstance(mode, list) and len(mode) == 1 else mode
    if not mode:
        raise NearfarError(f"{file}: names no pooling mode; choose one with --pooling.")
    if mode not in ("cls", "mean", "max"):
        raise NearfarError(
            f"{file}: pools by {checks.printable(str(mode))}, which nearfar does not support; choose another with "
            "--pooling."
        )
    if "WordWeights" in paths:
        file = paths["WordWeights"] / "config.json"
        weighted = checks.read_object(file)
        only_cls = weighted.get("word_weights") == {cls_token: 0} and weighted.get("unknown_word_weight", 1) == 1
        if mode != "mean" or not only_cls:
            raise NearfarError(f"{file}: weights single words, which nearfar does not support.")
        mode = "mean_without_cls"
    if "WeightedLayerPooling" in paths:
        return _layer_pooling_name(paths["WeightedLayerPooling"], mode)
    return str(mode)


def includes_prompt(folder: Path, modules: Sequence[tuple[str, str]]) -> bool:
    """Whether the Pooling module, if there is one, includes the tokens of a prompt.

    Raises:
        NearfarError: the setting is not true or false.
    """
    path = dict(modules).get("Pooling")
    file = folder / (path or "") / "config.json"
    included = True if path is None else checks.read_object(file).get("include_prompt", True)
    if not isinstance(included, bool):
        raise NearfarError(f"{file}: include_prompt is {quoted(included)}, and must be true or false.")
    return included


def _layer_pooling_name(folder: Path, tokens: str) -> str:
    file = folder / "config.json"
    settings = checks.read_object(file)
    start, layers = (settings.get(name) for name in ("layer_start", "num_hidden_layers"))
    if type(start) is not int or type(layers) is not int:
        raise NearfarError(f"{file}: layer_start and num_hidden_layers must be integers.")
    with opening(folder / "model.safetensors"):
        weights = load_file(folder / "model.safetensors")["layer_weights"]
    chosen = [int(layer) + start for layer in weights.nonzero().flatten()]
    if len(chosen) == 1:
        return f"layer:{chosen[0]}" if tokens == "mean" else f"layer:{chosen[0]}:{tokens}"
    name = mean_of_layers(chosen, layers=layers)
    if name is not None and tokens == "mean" and weights.max() == weights.sum() / 2:
        return name
    raise NearfarError(
        f"{folder}: weights the layers in a way that nearfar does not support; choose a pooling with --pooling."
    )
