"""``nearfar export``: a model folder -> a graph for ONNX Runtime or OpenVINO, compared with the original."""

import importlib.util
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.config.calls import accepts_settings
from nearfar.config.export import ExportConfig
from nearfar.disk import (
    check_output_path,
    forget_folder,
    new_folder,
    path_errors,
)
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.commands.export.rows import Rows
    from nearfar.commands.export.source import Source
    from nearfar.evaluation.results import ExportResult

PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
"""Format -> the packages that write and run it."""
RESULT_FILE = "export.json"
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
    from nearfar.commands.export.comparison import refuse
    from nearfar.commands.export.folder import write_readme, write_side_files
    from nearfar.commands.export.rows import calibration_items, comparison_rows
    from nearfar.commands.export.source import open_source
    from nearfar.encoder.weights import locate

    report = step or (lambda _: None)
    report("opening the model")
    source = open_source(locate(model), config)
    rows = comparison_rows(model, source, config)
    calibration = None
    if (config.format, config.quantize) == ("openvino", "int8"):
        calibration = calibration_items(model, source, config)
    with new_folder(output, replace=True) as folder:
        write_side_files(source, folder)
        metadata = {"model": str(model), "pooling": source.pooling or "", "max_length": str(source.max_length)}
        report("exporting the graph")
        opset = _write_graph(
            source, folder, config, items=calibration and calibration[0], metadata=metadata, report=report
        )
        report("comparing it with the original")
        result = _compare(
            model, source, folder, config, rows, opset=opset, calibrated_on=calibration and calibration[1]
        )
        if not config.force:
            refuse(result)
        result.save(folder / RESULT_FILE)
        write_readme(result, source, folder)
    return result


def _check_output(config: ExportConfig) -> Path:
    """The output folder, once it is clear that it can be written."""
    output = Path(config.output)
    if output.is_dir() and any(output.iterdir()):
        if not (output / RESULT_FILE).is_file():
            raise NearfarError(f"--output {output}: exists and is not an earlier export; choose another --output.")
        if not config.overwrite:
            forget_folder(output)
            raise NearfarError(f"--output {output}: exists; replace it by --overwrite, or choose another --output.")
    elif output.is_file():
        raise NearfarError(f"--output {output}: is a file; name a folder.")
    check_output_path(output if not output.is_dir() else output / RESULT_FILE)
    return output


def _write_graph(
    source: "Source",
    folder: Path,
    config: ExportConfig,
    *,
    items: "list[Any] | None",
    metadata: dict[str, str],
    report: Step,
) -> int:
    """Write the graph in its format and precision; returns the version of ONNX's operator set."""
    from nearfar.commands.export.graphs import FILES, quantize_onnx, single_feeds, write_onnx, write_openvino

    fp32 = folder / "fp32.onnx"
    file = folder / FILES[config.format]
    if (config.format, config.quantize) == ("onnx", "none"):
        return write_onnx(source, file, opset=config.opset, metadata=metadata)
    opset = write_onnx(source, fp32, opset=config.opset, metadata=metadata)
    report(f"writing {config.format}" + (", quantized to int8" if config.quantize == "int8" else ""))
    if config.format == "onnx":
        quantize_onnx(fp32, file)
    else:
        feeds = None if items is None else single_feeds(folder, items, source)
        write_openvino(fp32, file, feeds=feeds)
    for left in folder.glob("fp32.onnx*"):
        left.unlink()
    return opset


def _compare(
    model: str | Path,
    source: "Source",
    folder: Path,
    config: ExportConfig,
    rows: "Rows",
    *,
    opset: int,
    calibrated_on: str | None,
) -> "ExportResult":
    """The result of the export in ``folder``."""
    import torch

    from nearfar.commands.export.comparison import Compute, compare_outputs
    from nearfar.commands.export.graphs import FILES, ExportedModel
    from nearfar.encoder.bf16_support import cpu_has_bf16
    from nearfar.evaluation.results import ExportResult, provenance

    opened = partial(ExportedModel, folder, config.format, threads=torch.get_num_threads())
    precision = "int8" if config.quantize == "int8" else "fp32"
    others: dict[str, Compute] = {}
    if cpu_has_bf16():
        others["nearfar bf16"] = lambda items: source.compute(items, "bf16")
        if config.format == "openvino":
            name = "openvino int8, bf16 otherwise" if precision == "int8" else "openvino bf16, its default here"
            others[name] = partial(opened(native=True).compute, prompt=source.prompt)
    outputs = "embedding" if source.labels is None else "logits"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*were truncated")
        compared = compare_outputs(
            lambda items: source.compute(items, "fp32"),
            partial(opened().compute, prompt=source.prompt),
            others,
            rows,
            names=("nearfar fp32", f"{config.format} {precision}"),
            kind="int8" if precision == "int8" else f"{outputs} fp32",
        )
    stem = Path(FILES[config.format]).stem
    return ExportResult(
        model=str(model),
        provenance=provenance(),
        format=config.format,
        quantize=config.quantize,
        opset=opset,
        inputs=list(source.inputs),
        output=source.output,
        width=source.width,
        max_length=source.max_length,
        pooling=source.pooling,
        normalized=source.normalized,
        labels=None if source.labels is None else list(source.labels),
        calibrated_on=calibrated_on,
        files={part.name: part.stat().st_size for part in sorted(folder.glob(f"{stem}.*"))},
        evaluated_on=rows.source,
        metric=rows.metric,
        texts=compared.texts,
        sides=compared.sides,
        problems=compared.problems,
    )
