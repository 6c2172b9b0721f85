"""``nearfar export``: a model folder -> a graph for ONNX Runtime or OpenVINO, compared with the original.

sentence-transformers opens the folder of an encoder with ``backend="onnx"`` or ``"openvino"``: its only module is a
Transformer whose output is the embedding, because pooling is part of the graph.
"""

import importlib.util
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from nearfar.commands.export import comparison, graphs
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import ExportConfig
from nearfar.disk import check_output_path, path_errors, write_bytes, write_text
from nearfar.disk.folders import forget_folder, new_folder
from nearfar.disk.model_folder import write_seen
from nearfar.encoder.classifier import HEAD_FILE, Classifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.encoder_folder import EMBEDDING
from nearfar.encoder.exported import FILES, GraphBackbone
from nearfar.encoder.folder_checks import EXPORTED, TRANSFORMER_SETTINGS
from nearfar.encoder.precision import cpu_has_bf16
from nearfar.encoder.pretrained import quiet
from nearfar.encoder.prompts import PROMPTS_FILE, WIDTHS
from nearfar.encoder.weights import locate
from nearfar.evaluation.render import fill_template, to_markdown
from nearfar.evaluation.results import ExportResult, provenance
from nearfar.types import NearfarError

PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
"""Format -> the packages that write it, and the one that runs it."""
TRANSFORMER = "sentence_transformers.models.Transformer"
TEXTS = ("A man plays a guitar.", "Someone makes music.")
Step = Callable[[str], None]


@accepts_settings(ExportConfig)
@path_errors()
def export(model: str | Path, config: ExportConfig, *, step: Step | None = None) -> ExportResult:
    """Write an encoder or a classifier as one graph to the folder ``config.output``, and compare it with the original.

    Settings can be given by name: ``export("model", format="onnx", output="exported")``; see
    :class:`nearfar.ExportConfig`. The graph is exported by torch, opened in its runtime and compared with
    :meth:`nearfar.Encoder.encode` in fp32 on the same texts. In fp32, an embedding's cosine to the original must be at
    least 0.9999, and a logit may differ by 0.001 of the largest logit (of 1, if that is larger). In int8, the score may
    be one point lower.

    The folder has ``model.onnx``, or ``openvino_model.xml`` and ``.bin``; ``tokenizer.json`` and the tokenizer's other
    files; ``config.json``; ``export.json``, which is the returned result; and ``README.md`` with an example. It is
    written completely or not at all.

    Args:
        model: a model folder, a run folder, or ``owner/name`` on the Hugging Face Hub.
        config: the settings.
        step: called with a description of each step when it starts.

    Raises:
        NearfarError: a package of the extra ``export`` is missing; the output exists or cannot be written; the model,
            the calibration texts or the rows cannot be read; torch cannot export the architecture; the graph differs
            too much from the original and ``force`` is not set (the message has the numbers).
    """
    output = _check_output(config)
    missing = [name for name in PACKAGES[config.format] if importlib.util.find_spec(name) is None]
    if missing:
        noun = "the package" if len(missing) == 1 else "the packages"
        raise NearfarError(
            f"--format {config.format}: needs {noun} {' and '.join(missing)}; install with: pip install "
            "'nearfar[export]'"
        )
    report = step or (lambda _: None)
    report("opening the model")
    original = locate(model)
    source = graphs.open_source(original, config)
    rows = comparison.comparison_rows(model, source, config)
    feeds, calibrated_on = None, None
    if (config.format, config.quantize) == ("openvino", "int8"):
        items, calibrated_on = comparison.calibration_items(model, source, config)
        feeds = graphs.single_feeds(source, items)
    with new_folder(output, replace=True) as folder:
        _write_side_files(source, original, folder, config)
        facts, file, fp32 = source.facts, folder / FILES[config.format], folder / "fp32.onnx"
        report("exporting the graph")
        is_whole = (config.format, config.quantize) == ("onnx", "none")
        opset = graphs.write_onnx(source, file if is_whole else fp32, opset=config.opset)
        if not is_whole:
            report(f"writing {config.format}" + (", quantized to int8" if config.quantize == "int8" else ""))
            if config.format == "onnx":
                graphs.quantize_onnx(fp32, file)
            else:
                graphs.write_openvino(fp32, file, feeds=feeds)
            for left in folder.glob("fp32.onnx*"):
                left.unlink()
        report("comparing it with the original")
        result = ExportResult(
            model=str(model),
            provenance=provenance(),
            format=config.format,
            quantize=config.quantize,
            opset=opset,
            **facts,
            calibrated_on=calibrated_on,
            files={part.name: part.stat().st_size for part in sorted(folder.glob(f"{file.stem}.*"))},
            evaluated_on=rows.source,
            metric=rows.metric,
            texts=0,
            sides=[],
        )
        result.save(folder / EXPORTED)  # by which the folder is opened as a model
        result = replace(result, **_compare(source, folder, config, rows))
        if not config.force:
            comparison.refuse(result)
        result.save(folder / EXPORTED)
        _write_readme(result, source, folder)
    return result


def _check_output(config: ExportConfig) -> Path:
    """The output folder, once it is clear that it can be written."""
    output = Path(config.output)
    if output.is_dir() and any(output.iterdir()):
        if not (output / EXPORTED).is_file():
            raise NearfarError(f"--output {output}: exists and is not an earlier export; choose another --output.")
        if not config.overwrite:
            forget_folder(output)
            raise NearfarError(f"--output {output}: exists; replace it by --overwrite, or choose another --output.")
    elif output.is_file():
        raise NearfarError(f"--output {output}: is a file; name a folder.")
    check_output_path(output if not output.is_dir() else output / EXPORTED)
    return output


def _compare(source: graphs.Source, folder: Path, config: ExportConfig, rows: comparison.Rows) -> dict[str, Any]:
    """The graph in ``folder`` compared with the original, and with bfloat16 where this processor has it."""
    precision = "int8" if config.quantize == "int8" else "fp32"
    is_encoder = isinstance(source.model, Encoder)
    opened = Encoder.from_pretrained if is_encoder else Classifier.from_pretrained
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*were truncated|.*similarity_fn_name")
        functions: dict[str, comparison.Compute] = {
            "nearfar fp32": partial(graphs.outputs_of, source.model),
            f"{config.format} {precision}": partial(graphs.outputs_of, opened(folder, device="cpu")),
        }
        if cpu_has_bf16():
            functions["nearfar bf16"] = partial(graphs.outputs_of, source.model, precision="bf16")
        if cpu_has_bf16() and config.format == "openvino":
            native = opened(folder, device="cpu")
            assert isinstance(native.backbone, GraphBackbone)
            native.backbone.use_native_precision()
            name = "openvino int8, bf16 otherwise" if precision == "int8" else "openvino bf16, its default here"
            functions[name] = partial(graphs.outputs_of, native)
        kind = "int8" if precision == "int8" else "embedding fp32" if is_encoder else "logits fp32"
        return comparison.compare_outputs(functions, rows, kind=kind, timing=config.timing)


def _write_side_files(source: graphs.Source, original: Path, folder: Path, config: ExportConfig) -> None:
    """Write everything but the graph, the comparison and the README."""
    model, max_length = source.model, source.model.max_length
    if isinstance(model, Encoder) and model.dim != source.config.hidden_size:
        source.config.projection_dim = model.dim  # from which sentence-transformers knows the width
    limit = model.tokenizer.model_max_length
    with quiet():
        source.config.save_pretrained(folder)
        model.tokenizer.model_max_length = max_length
        model.tokenizer.save_pretrained(folder)
        model.tokenizer.model_max_length = limit
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    padding = {"pad_id": model.tokenizer.pad_token_id or 0, "pad_token": model.tokenizer.pad_token or "[PAD]"}
    tokenizer.enable_padding(**padding, pad_type_id=0)
    write_text(folder / "tokenizer.json", tokenizer.to_str())
    write_seen(folder, model.seen)
    lower_case = {"do_lower_case": True}
    settings: dict[str, Any] = {TRANSFORMER_SETTINGS[0]: lower_case} if getattr(model, "lower_case", False) else {}
    if isinstance(model, Encoder):
        if (original / HEAD_FILE).is_file() and config.pooling is None:  # of a classifier of these embeddings
            write_bytes(folder / HEAD_FILE, (original / HEAD_FILE).read_bytes())
        inference = model.inference_settings
        settings = {
            "modules.json": [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}],
            TRANSFORMER_SETTINGS[0]: {
                "max_seq_length": max_length,
                **inference.role_lengths,
                "transformer_task": "feature-extraction",
                "modality_config": {"text": {"method": "forward", "method_output_name": graphs.OPTIMUM_OUTPUT}},
                "module_output_name": EMBEDDING,
                **(lower_case if inference.lower_case else {}),
            },
            PROMPTS_FILE: {
                "prompts": dict(inference.prompts),
                "default_prompt_name": inference.default_prompt_name,
                "similarity_fn_name": inference.similarity_fn_name,
                WIDTHS: list(inference.matryoshka),
            },
        }
    for name, content in settings.items():
        write_text(folder / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _write_readme(result: ExportResult, source: graphs.Source, folder: Path) -> None:
    """Write README.md, with an example that computes the outputs of two texts without torch."""
    prompt = source.model.resolve_prompt() if isinstance(source.model, Encoder) else ""
    text = fill_template(
        Path(__file__).with_name("readme.md"),
        result=result,
        prompt=prompt,
        title=Path(result.model).name,
        table=to_markdown(comparison.comparison_table(result.sides)),
        package=PACKAGES[result.format][-1],
        file=FILES[result.format],
        texts=json.dumps([prompt + text for text in TEXTS], ensure_ascii=False),
        attributes=graphs.ATTRIBUTES,
        outputs="vectors" if result.labels is None else "logits",
    )
    write_text(folder / "README.md", text)
