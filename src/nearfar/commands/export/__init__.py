"""``nearfar export``: a model folder -> a graph for ONNX Runtime or OpenVINO, compared with the original.

sentence-transformers opens the folder of an encoder with ``backend="onnx"`` or ``"openvino"``: its only module is a
Transformer whose output is the embedding, because pooling is part of the graph.
"""

import importlib.util
import json
import warnings
from pathlib import Path

from tokenizers import Tokenizer

from nearfar.commands.export import comparison, graphs
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import ExportConfig
from nearfar.disk import write_bytes, write_text
from nearfar.disk.checks import check_output_path, path_errors
from nearfar.disk.folders import forget_folder, new_folder
from nearfar.disk.model_folder import write_seen
from nearfar.encoder.classifier import HEAD_FILE, Classifier
from nearfar.encoder.encoder import Encoder
from nearfar.encoder.encoder_folder import EMBEDDING
from nearfar.encoder.exported import FILES, RUNTIMES
from nearfar.encoder.folder_checks import EXPORTED, ONLY, TRANSFORMER_SETTINGS, write_json
from nearfar.encoder.pretrained import quiet
from nearfar.encoder.prompts import PROMPTS_FILE, settings_of
from nearfar.encoder.weights import locate
from nearfar.evaluation.render import fill_template, to_markdown
from nearfar.evaluation.results import ExportResult, provenance
from nearfar.types import NearfarError

TRANSFORMER = "sentence_transformers.models.Transformer"
TEXTS = ("A man plays a guitar.", "Someone makes music.")


@accepts_settings(ExportConfig)
@path_errors()
def export(model: str | Path, config: ExportConfig) -> ExportResult:
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

    Raises:
        NearfarError: a package of the extra ``export`` is missing; the output exists or cannot be written; the model,
            the calibration texts or the rows cannot be read; torch cannot export the architecture; the graph differs
            too much from the original and ``force`` is not set (the message has the numbers).
    """
    output = _check_output(config)
    packages = "onnx", "onnxscript", RUNTIMES[config.format]
    if needed := " and ".join(name for name in packages if importlib.util.find_spec(name) is None):
        raise NearfarError(f"--format {config.format}: needs {needed}; install with: pip install 'nearfar[export]'")
    source, graph_kind = graphs.open_source(locate(model), config.max_length), (config.format, config.quantize)
    rows = comparison.comparison_rows(model, source.model, config)
    feeds, calibrated_on = None, None
    if graph_kind == ("openvino", "int8"):
        items, calibrated_on = comparison.calibration_items(model, source.model, config)
        feeds = graphs.single_feeds(source, items)
    with new_folder(output, replace=True) as folder:
        _write_side_files(source, folder)
        file, fp32 = folder / FILES[config.format], folder / "fp32.onnx"
        opset = graphs.write_onnx(source, file if graph_kind == ("onnx", "none") else fp32, opset=config.opset)
        if config.format == "openvino":
            graphs.write_openvino(fp32, file, feeds=feeds)
        elif config.quantize == "int8":
            graphs.quantize_onnx(fp32, file)
        for left in folder.glob("fp32.onnx*"):
            left.unlink()
        result = ExportResult(
            model=str(model),
            provenance=provenance(),
            format=config.format,
            quantize=config.quantize,
            opset=opset,
            **source.facts,
            calibrated_on=calibrated_on,
            files={part.name: part.stat().st_size for part in sorted(folder.glob(f"{file.stem}.*"))},
            evaluated_on=rows.source,
            metric=rows.metric,
            texts=0,
            sides=[],
        )
        result.save(folder / EXPORTED)  # by which the folder is opened as a model
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*were truncated|.*similarity_fn_name")
            graph = type(source.model).from_pretrained(folder, device="cpu")
            result = comparison.compare(source.model, graph, rows, result, config)
        result.save(folder / EXPORTED)
        _write_readme(result, source, folder)
    return result


def _check_output(config: ExportConfig) -> Path:
    """The output folder, once it is clear that it can be written."""
    output = Path(config.output)
    if output.is_file():
        raise NearfarError(f"--output {output}: is a file; name a folder.")
    if output.is_dir() and any(output.iterdir()):
        if not (output / EXPORTED).is_file():
            raise NearfarError(f"--output {output}: exists and is not an earlier export; choose another --output.")
        if not config.overwrite:
            forget_folder(output)
            raise NearfarError(f"--output {output}: exists; replace it by --overwrite, or choose another --output.")
    check_output_path(output / EXPORTED if output.is_dir() else output)
    return output


def _write_side_files(source: graphs.Source, folder: Path) -> None:
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
    if isinstance(model, Classifier):
        if model.lower_case:
            write_json(folder / TRANSFORMER_SETTINGS[0], {"do_lower_case": True})
        return
    if (source.folder / HEAD_FILE).is_file():  # of a classifier of these embeddings
        write_bytes(folder / HEAD_FILE, (source.folder / HEAD_FILE).read_bytes())
    inference = model.inference_settings
    lower_case = {"do_lower_case": True} if inference.lower_case else {}
    transformer = {**ONLY, "module_output_name": EMBEDDING, "max_seq_length": max_length, **lower_case}
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}])
    write_json(folder / TRANSFORMER_SETTINGS[0], {**transformer, **inference.role_lengths})
    write_json(folder / PROMPTS_FILE, settings_of(inference))


def _write_readme(result: ExportResult, source: graphs.Source, folder: Path) -> None:
    """Write README.md, with an example that computes the outputs of two texts without torch."""
    prompt = source.model.resolve_prompt() if isinstance(source.model, Encoder) else ""
    text = fill_template(
        Path(__file__).with_name("readme.md"),
        result=result,
        prompt=prompt,
        title=Path(result.model).name,
        table=to_markdown(comparison.comparison_table(result.sides)),
        package=RUNTIMES[result.format],
        file=FILES[result.format],
        texts=json.dumps([prompt + text for text in TEXTS], ensure_ascii=False),
    )
    write_text(folder / "README.md", text)
