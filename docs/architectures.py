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

nearfar opens any encoder of transformers that computes hidden states from token ids. Each of these was tried with a
small model of random weights: a text has the same vector alone, in a batch, and in sentence-transformers (to 1e-5), the
model trains, and the saved folder gives the same vectors again.

- **batches**: `ragged` computes no padding; `padded` pads a batch to its longest text; with `equal lengths`, only texts
  of one length go together, because padding would change the vectors of this architecture.
- **bf16**: whether it computes in bfloat16. The others are computed in float32 whatever `--precision` says, with a
  warning.
- **LoRA**: whether `--lora-rank` has layers to adapt.

BigBird attends to all tokens, as transformers does after the first short text.

| architecture | batches | bf16 | LoRA |
| --- | --- | --- | --- |
"""


def page(architectures: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, with a sentence for each architecture that is refused."""
    lines, refused = [], []
    for name, record in sorted(architectures.items(), key=lambda entry: entry[0].lower()):
        if "refused" in record:
            refused.append(f"- **{name}**: {record['refused']}\n")
        else:
            cells = [record["batches"], *("yes" if record[key] else "no" for key in ("bf16", "lora"))]
            lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return HEAD + "".join(lines) + "\nThese are refused, with the sentence shown here:\n\n" + "".join(refused)


def main() -> int:
    """Write the page."""
    architectures = json.loads((DOCS / "architectures.json").read_text(encoding="utf-8"))
    (DOCS / "architectures.md").write_text(page(architectures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
