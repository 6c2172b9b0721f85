"""Settings of the command that averages models: soup.

The class docstring is the command's summary in ``--help``; the text below a field is the help of its flag.
"""

from dataclasses import dataclass

from nearfar.config.bounds import File, Output, Positive
from nearfar.config.encoder import ComputeOptions
from nearfar.config.values import FieldType
from nearfar.types import NearfarError, Precision
from nearfar.validation import InvalidValueError, format_text


@dataclass(frozen=True, kw_only=True)
class SoupConfig(ComputeOptions):
    """Average the weights of models that were trained from the same model into one model (Wortsman et al. 2022).

    The models must have the same architecture, tokenizer, pooling and prompts; only their weights may differ.
    """

    output: Output
    """Model folder to create."""
    weights: str | None = None
    """Weight of each model in the average, in their order, as in 2,1,1; by default all equal."""
    greedy: bool = False
    """Add the models one by one, from the best on the dev set down, and keep each only if the score of the average does
    not fall."""
    evaluate_on: File | None = None
    """Dev set of GREEDY, scored pairs: stsb:dev, microworld:dev, or a file with score, sentence1, sentence2."""
    fingerprints: bool = True
    """Save the hashes of the texts that the models were trained on, and of the dev set, with the average."""
    precision: Precision = "auto"
    """Precision of the embeddings of the dev set: auto, fp32 or bf16. Weights are averaged in float64."""

    def __post_init__(self) -> None:
        """Check values, and those that exclude or need each other."""
        super().__post_init__()
        _ = self.numbers
        if self.greedy and self.evaluate_on is None:
            raise NearfarError("--greedy: needs a dev set to choose models by; name it by --evaluate-on.")
        if self.evaluate_on is not None and not self.greedy:
            raise NearfarError(
                "--evaluate-on: chooses the models of --greedy; add --greedy, or score the average by nearfar evaluate."
            )
        if self.greedy and self.weights is not None:
            raise NearfarError("--greedy and --weights: a greedy average has equal weights; give one of them.")

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The values of ``weights``; None for equal weights.

        Raises:
            NearfarError: a value is not a number above 0.
        """
        if self.weights is None:
            return None
        kind = FieldType(Positive)
        try:
            return tuple(kind.from_text(part) for part in self.weights.split(","))
        except InvalidValueError as error:
            raise NearfarError(f"--weights {format_text(self.weights)}: each {error.problem}; as in 2,1,1.") from None
