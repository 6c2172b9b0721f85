"""The files beside an exported graph: tokenizer, config, the settings of sentence-transformers, and a README.

sentence-transformers opens the folder of an encoder with ``backend="onnx"`` or ``"openvino"``: its only module is a
Transformer whose output is the embedding, because pooling is part of the graph.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from nearfar.commands.export.comparison import comparison_table
from nearfar.commands.export.graphs import FILES, OPTIMUM_OUTPUT
from nearfar.commands.export.source import EMBEDDING, Source
from nearfar.disk import write_text
from nearfar.encoder.pretrained import quiet
from nearfar.encoder.prompts import PROMPTS_FILE
from nearfar.evaluation.render import fill_template, to_markdown
from nearfar.evaluation.results import ExportResult

TRANSFORMER = "sentence_transformers.models.Transformer"
RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino"}
"""Format -> the package that runs it."""
TEXTS = ("A man plays a guitar.", "Someone makes music.")

ATTRIBUTES = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def write_side_files(source: Source, folder: Path) -> None:
    """Write everything but the graph, the comparison and the README."""
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
    inference = source.inference
    _write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}])
    _write_json(
        folder / "sentence_bert_config.json",
        {
            "max_seq_length": source.max_length,
            "transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": OPTIMUM_OUTPUT}},
            "module_output_name": EMBEDDING,
        },
    )
    _write_json(
        folder / PROMPTS_FILE,
        {
            "prompts": dict(inference.prompts),
            "default_prompt_name": inference.default_prompt_name,
            "similarity_fn_name": inference.similarity_fn_name,
        },
    )


def write_readme(result: ExportResult, source: Source, folder: Path) -> None:
    """Write README.md, with an example that computes the outputs of two texts without torch."""
    text = fill_template(
        Path(__file__).with_name("readme.md"),
        result=result,
        source=source,
        title=Path(result.model).name,
        table=to_markdown(comparison_table(result.sides)),
        package=RUNTIMES[result.format],
        file=FILES[result.format],
        texts=json.dumps([source.prompt + text for text in TEXTS], ensure_ascii=False),
        attributes=ATTRIBUTES,
        outputs="vectors" if source.labels is None else "logits",
    )
    write_text(folder / "README.md", text)


def _write_json(file: Path, content: Any) -> None:
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
