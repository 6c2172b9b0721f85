"""``nearfar export``: a model folder -> a graph for ONNX Runtime or OpenVINO, compared with the original.

sentence-transformers opens the folder of an encoder with ``backend="onnx"`` or ``"openvino"``: its only module is a
Transformer whose output is the embedding, because pooling is part of the graph.
"""

import importlib.util
import json
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import ExportConfig
from nearfar.disk import check_output_path, forget_folder, new_folder, path_errors, write_text
from nearfar.encoder.folder_checks import EXPORTED
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.export.comparison import Comparison, Compute, Rows
    from nearfar.commands.export.graphs import Source
    from nearfar.encoder.classifier import Item
    from nearfar.evaluation.results import ExportResult

PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
"""Format -> the packages that write it, and the one that runs it."""
TRANSFORMER = "sentence_transformers.models.Transformer"
TEXTS = ("A man plays a guitar.", "Someone makes music.")
Step = Callable[[str], None]


@accepts_settings(ExportConfig)
@path_errors()
def export(model: str | Path, config: ExportConfig, *, step: Step | None = None) -> "ExportResult":
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
    from nearfar.commands.export.comparison import calibration_items, comparison_rows, refuse
    from nearfar.commands.export.graphs import open_source
    from nearfar.encoder.exported import FILES
    from nearfar.encoder.weights import locate
    from nearfar.evaluation.results import ExportResult, provenance

    report = step or (lambda _: None)
    report("opening the model")
    source = open_source(locate(model), config)
    rows = comparison_rows(model, source, config)
    items, calibrated_on = None, None
    if (config.format, config.quantize) == ("openvino", "int8"):
        items, calibrated_on = calibration_items(model, source, config)
    with new_folder(output, replace=True) as folder:
        _write_side_files(source, folder)
        metadata = {"model": str(model), "pooling": source.pooling or "", "max_length": str(source.max_length)}
        report("exporting the graph")
        opset = _write_graph(source, folder, config, items=items, metadata=metadata, report=report)
        report("comparing it with the original")
        compared = _compare(source, folder, config, rows)
        graph = Path(FILES[config.format]).stem
        result = ExportResult(
            model=str(model),
            provenance=provenance(),
            format=config.format,
            quantize=config.quantize,
            opset=opset,
            inputs=list(source.inputs),
            labels=None if source.labels is None else list(source.labels),
            **{name: getattr(source, name) for name in ("output", "width", "max_length", "pooling", "normalized")},
            calibrated_on=calibrated_on,
            files={part.name: part.stat().st_size for part in sorted(folder.glob(f"{graph}.*"))},
            evaluated_on=rows.source,
            metric=rows.metric,
            texts=compared.texts,
            sides=compared.sides,
            problems=compared.problems,
        )
        if not config.force:
            refuse(result)
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


def _write_graph(
    source: "Source",
    folder: Path,
    config: ExportConfig,
    *,
    items: "Sequence[Item] | None",
    metadata: dict[str, str],
    report: Step,
) -> int:
    """Write the graph in its format and precision; returns the version of ONNX's operator set."""
    from nearfar.commands.export.graphs import quantize_onnx, single_feeds, write_onnx, write_openvino
    from nearfar.encoder.exported import FILES

    fp32, file = folder / "fp32.onnx", folder / FILES[config.format]
    if (config.format, config.quantize) == ("onnx", "none"):
        return write_onnx(source, file, opset=config.opset, metadata=metadata)
    opset = write_onnx(source, fp32, opset=config.opset, metadata=metadata)
    report(f"writing {config.format}" + (", quantized to int8" if config.quantize == "int8" else ""))
    if config.format == "onnx":
        quantize_onnx(fp32, file)
    else:
        write_openvino(fp32, file, feeds=None if items is None else single_feeds(folder, items, source))
    for left in folder.glob("fp32.onnx*"):
        left.unlink()
    return opset


def _compare(source: "Source", folder: Path, config: ExportConfig, rows: "Rows") -> "Comparison":
    """The graph in ``folder`` compared with the original, and with bfloat16 where this processor has it."""
    import torch

    from nearfar.commands.export.comparison import compare_outputs
    from nearfar.commands.export.graphs import ExportedModel
    from nearfar.encoder.precision import cpu_has_bf16

    def opened(*, native: bool = False) -> "Compute":
        graph = ExportedModel(folder, config.format, threads=torch.get_num_threads(), native=native)
        return partial(graph.compute, prompt=source.prompt)

    precision = "int8" if config.quantize == "int8" else "fp32"
    functions: dict[str, Compute] = {
        "nearfar fp32": lambda items: source.compute(items, "fp32"),
        f"{config.format} {precision}": opened(),
    }
    if cpu_has_bf16():
        functions["nearfar bf16"] = lambda items: source.compute(items, "bf16")
        if config.format == "openvino":
            name = "openvino int8, bf16 otherwise" if precision == "int8" else "openvino bf16, its default here"
            functions[name] = opened(native=True)
    outputs = "embedding" if source.labels is None else "logits"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*were truncated")
        kind = "int8" if precision == "int8" else f"{outputs} fp32"
        return compare_outputs(functions, rows, kind=kind, timing=config.timing)


def _write_side_files(source: "Source", folder: Path) -> None:
    """Write everything but the graph, the comparison and the README."""
    from tokenizers import Tokenizer

    from nearfar.commands.export.graphs import EMBEDDING, OPTIMUM_OUTPUT
    from nearfar.encoder.pretrained import quiet
    from nearfar.encoder.prompts import PROMPTS_FILE

    config = source.config
    if source.labels is None and source.width != config.hidden_size:
        config.projection_dim = source.width  # from which sentence-transformers knows the width
    with quiet():
        config.save_pretrained(folder)
        source.tokenizer.model_max_length = source.max_length
        source.tokenizer.save_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(source.max_length, strategy="longest_first")
    tokenizer.enable_padding(
        pad_id=source.tokenizer.pad_token_id or 0, pad_token=source.tokenizer.pad_token or "[PAD]", pad_type_id=0
    )
    write_text(folder / "tokenizer.json", tokenizer.to_str())
    if source.inference is None:
        return
    settings: dict[str, Any] = {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}],
        "sentence_bert_config.json": {
            "max_seq_length": source.max_length,
            "transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": OPTIMUM_OUTPUT}},
            "module_output_name": EMBEDDING,
        },
        PROMPTS_FILE: {
            "prompts": dict(source.inference.prompts),
            "default_prompt_name": source.inference.default_prompt_name,
            "similarity_fn_name": source.inference.similarity_fn_name,
        },
    }
    for name, content in settings.items():
        write_text(folder / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _write_readme(result: "ExportResult", source: "Source", folder: Path) -> None:
    """Write README.md, with an example that computes the outputs of two texts without torch."""
    from nearfar.commands.export.comparison import comparison_table
    from nearfar.commands.export.graphs import ATTRIBUTES
    from nearfar.encoder.exported import FILES
    from nearfar.evaluation.render import fill_template, to_markdown

    text = fill_template(
        Path(__file__).with_name("readme.md"),
        result=result,
        source=source,
        title=Path(result.model).name,
        table=to_markdown(comparison_table(result.sides)),
        package=PACKAGES[result.format][-1],
        file=FILES[result.format],
        texts=json.dumps([source.prompt + text for text in TEXTS], ensure_ascii=False),
        attributes=ATTRIBUTES,
        outputs="vectors" if source.labels is None else "logits",
    )
    write_text(folder / "README.md", text)
