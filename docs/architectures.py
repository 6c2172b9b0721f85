"""Write docs/architectures.md from docs/architectures.json: ``python docs/architectures.py``.

``tests/encoder/test_architectures.py`` tries a small random model of each architecture, and compares it with the JSON.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
HEAD = """# Architectures

nearfar opens any encoder of transformers that computes hidden states from token ids. Each of these was tried with
random weights: a text has the same vector alone, in a batch, in sentence-transformers (to 1e-5), and after training.
`ragged` batches have no padding, `padded` ones are padded to the longest text, `equal lengths` hold texts of one
length. Causal attention reads no later tokens: pool by `lasttoken`, `weightedmean` or `mean`. Without bf16 it computes
in float32, with a warning. Without checkpointing, `--gradient-checkpointing` is refused. BigBird attends to all tokens.

| architecture | attention | batches | bf16 | LoRA | checkpointing |
| --- | --- | --- | --- | --- | --- |
"""


def page(architectures: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, with a sentence for each architecture that is refused."""
    lines, refused = [], []
    for name, record in sorted(architectures.items(), key=lambda entry: entry[0].lower()):
        if "refused" in record:
            refused.append(f"- **{name}**: {record['refused']}\n")
        else:
            kinds = ("bf16", "lora", "checkpointing")
            cells = [record["attention"], record["batches"], *("yes" if record[key] else "no" for key in kinds)]
            lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return HEAD + "".join(lines) + "\nThese are refused, with the sentence shown here:\n\n" + "".join(refused)


def main() -> int:
    """Write the page."""
    architectures = json.loads((DOCS / "architectures.json").read_text(encoding="utf-8"))
    (DOCS / "architectures.md").write_text(page(architectures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
