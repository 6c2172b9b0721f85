"""The files beside an exported graph: tokenizer, config, the settings of sentence-transformers, and a README.

sentence-transformers opens the folder of an encoder with ``backend="onnx"`` or ``"openvino"``: its only module is a
Transformer whose output is the embedding, because pooling is part of the graph.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from nearfar.commands.export.onnx_graph import OPTIMUM_OUTPUT
from nearfar.commands.export.runtime import FILES
from nearfar.commands.export.source import EMBEDDING, Source
from nearfar.disk import write_text
from nearfar.encoder.pretrained import quiet
from nearfar.encoder.prompts import PROMPTS_FILE
from nearfar.evaluation.results.export import ExportResult

TRANSFORMER = "sentence_transformers.models.Transformer"
RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino"}
"""Format -> the package that runs it."""
TEXTS = ("A man plays a guitar.", "Someone makes music.")

README = """# {title}

{summary} Exported by nearfar; `export.json` compares it with the original:

{table}

| inputs | {inputs}, int64 [batch, length]; padding has mask 0 and follows the tokens |
| --- | --- |
| output | `{output}`, float32 [batch, {width}]{normalized} |
| tokenizer | `tokenizer.json` truncates to {max_length} tokens and pads |{prompts}

It runs with two packages, `pip install {package} tokenizers`:

```python
{example}
```
"""
ONNX = """import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("{file}", providers=["CPUExecutionProvider"])

encodings = tokenizer.encode_batch({texts})
inputs = {inputs}
{result} = session.run(["{output}"], inputs)[0]
print({result}.shape)"""
OPENVINO = """import numpy as np
import openvino
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
model = openvino.compile_model("{file}", "CPU")

encodings = tokenizer.encode_batch({texts})
inputs = {inputs}
{result} = model(inputs)["{output}"]
print({result}.shape)"""
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


def write_readme(result: ExportResult, source: Source, folder: Path, table: list[list[str]]) -> None:
    """Write README.md, with an example that computes the outputs of two texts without torch."""
    kind = "A classifier" if source.labels is not None else "A sentence encoder"
    summary = f"{kind}, {result.format}" + (" in int8." if result.quantize == "int8" else " in fp32.")
    if source.labels:
        summary += f" The logits belong to the labels {', '.join(source.labels)}, in this order."
    prompts = ""
    if source.prompt:
        prompts = f"\n| prompt | each text starts with `{source.prompt!r}`, as in the example |"
    text = README.format(
        title=Path(result.model).name,
        summary=summary,
        table="\n".join(f"| {' | '.join(row)} |" for row in [table[0], ["---", *["---:"] * 4], *table[1:]]),
        inputs=", ".join(f"`{name}`" for name in result.inputs),
        output=result.output,
        width=result.width,
        normalized=", scaled to unit length" if source.normalized else "",
        max_length=source.max_length,
        prompts=prompts,
        package=RUNTIMES[result.format],
        example=example(source, result.format),
    )
    write_text(folder / "README.md", text)


def example(source: Source, kind: str) -> str:
    """A Python script that computes the outputs of :data:`TEXTS` in an exported folder."""
    texts = [source.prompt + text for text in TEXTS]
    names = {name: f"[one.{ATTRIBUTES[name]} for one in encodings]" for name in source.inputs}
    inputs = "".join(f'\n    "{name}": np.array({values}),' for name, values in names.items()) + "\n"
    return (ONNX if kind == "onnx" else OPENVINO).format(
        file=FILES[kind],
        texts=json.dumps(texts, ensure_ascii=False),
        inputs="{" + inputs + "}",
        output=source.output,
        result="vectors" if source.labels is None else "logits",
    )


def _write_json(file: Path, content: Any) -> None:
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
