"""How the embeddings of an evaluation are stored: their number of bytes, and a note for tables."""

from typing import Literal

from nearfar.evaluation.results import EvaluationResult
from nearfar.quantization import Quantization, bytes_per_vector


def stored_bytes(result: EvaluationResult) -> int | None:
    """Number of bytes of an embedding, in float32 unless it was quantized; None where the width is not known."""
    if result.dim is None:
        return None
    kind: Quantization | Literal["float32"] = result.config.get("quantize") or "float32"
    return bytes_per_vector(result.dim, kind)


def stored_notes(result: EvaluationResult) -> list[str]:
    """A note on the embeddings, if they are smaller than those of the model."""
    dimensions, kind, size = result.config.get("dimensions"), result.config.get("quantize"), stored_bytes(result)
    parts = [f"the first {dimensions} dimensions"] * bool(dimensions) + [f"stored as {kind}"] * bool(kind)
    return [f"Embeddings: {', '.join(parts)}; {size} bytes each."] if parts else []
