"""Preparation of a run: config -> encoder, methods and number of steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from nearfar.config import TrainConfig
from nearfar.types import NearfarError

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.teacher import TeacherVectors
    from nearfar.encoder.training_encoder import TrainingEncoder
    from nearfar.methods.build import Rows
    from nearfar.methods.mixture import Mixture


class TrainingData(NamedTuple):
    """The rows of a run's objectives, read before the encoder is loaded, so that errors in them are reported first."""

    first: "Rows"
    second: "Rows | None"

    def fingerprint_inputs(
        self, config: TrainConfig
    ) -> "dict[str, tuple[Sequence[Sequence[object]], Sequence[object]]]":
        """The texts, and labels or scores, that are used; by the name of their source in messages."""
        from nearfar.commands.train.second_objective import second_flag, second_objective_config

        named = [(f"--data {' '.join(config.data)}", self.first, config.limit)]
        if self.second is not None and (second := second_objective_config(config)) is not None:
            named.append((f"the data of {second_flag(config)}", self.second, second.limit))
        return {what: (rows.rows[:limit], getattr(rows, "targets", None) or ()) for what, rows, limit in named}


@dataclass(frozen=True)
class PreparedRun:
    """Encoder, methods and number of steps of a run."""

    encoder: "Encoder"
    texts: "TrainingEncoder"
    mixture: "Mixture"
    total_steps: int
    facts: list[str]
    merge: Callable[[], None]
    """Merges adapters, or linear layers of a static encoder, into the encoder's weights; call it before saving."""
    rate_factors: "Mapping[nn.Parameter, float]"
    """Factors of the learning rate of the encoder's parameters; empty without ``layer_decay``."""
    teachers: "tuple[TeacherVectors, ...]" = ()
    """Other encoders whose vectors of the texts the methods use."""


def read_training_data(config: TrainConfig) -> TrainingData:
    """Read the rows of the objective, and of the second one where there is one.

    Raises:
        NearfarError: rows that are missing or malformed.
    """
    from nearfar.commands.train.second_objective import read_second, second_objective_config
    from nearfar.methods.build import read_rows

    second, first = second_objective_config(config), read_rows(config)
    with _second_objective_errors(config):
        return TrainingData(first, None if second is None else read_second(second, first))


def prepare(
    config: TrainConfig,
    rows: TrainingData | None = None,
    *,
    processes: int = 1,
    device: str | None = None,
    console: "Console | None" = None,
) -> PreparedRun:
    """Encoder and methods for the ``rows``; the initial weights of heads depend on the config's seed alone.

    Without ``rows`` they are read. ``console`` shows a progress bar while many texts are tokenized.

    Raises:
        NearfarError: any error that would stop the run before its first step.
    """
    rows = rows or read_training_data(config)

    from nearfar.commands.train.second_objective import may_shrink_batch, second_objective_config
    from nearfar.encoder.dropout import set_dropout
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.layer_decay import learning_rate_factors
    from nearfar.encoder.precision import resolve
    from nearfar.encoder.static import is_static, merge_square_layers
    from nearfar.encoder.training_encoder import TrainingEncoder
    from nearfar.methods.build import BuildContext, build_method
    from nearfar.methods.mixture import Mixture
    from nearfar.training.gradients import seed_rng
    from nearfar.training.processes import Processes

    second = second_objective_config(config)
    pooling = config.pooling
    encoder = Encoder.from_pretrained(
        config.model,
        pooling=None if pooling == "own" else pooling,
        max_length=config.max_length,
        device=device or config.device,
        keep_layers=config.keep_layers,
    )
    if config.dropout is not None:
        set_dropout(encoder.backbone, config.dropout)
    encoder.set_prompts(query=config.query_prompt, document=config.document_prompt, default=config.prompt)
    texts = TrainingEncoder(
        encoder,
        max_length=config.train_max_length,
        bf16=resolve(config.precision, encoder.device) == "bf16",
        broadcast_from_first=Processes().broadcast_from_first,
        cuda_graphs=processes == 1,  # the graphs' gradients pass autograd's hooks, which sum over processes, by
        console=console,
    )
    seed_rng(config.seed)
    built = build_method(
        config, BuildContext(texts, config.batch_size * processes, may_shrink_batch(config)), rows.first
    )
    parts, facts, teachers = [(built.method, 1.0), *built.extra_losses], built.facts, built.teachers
    if second is not None and rows.second is not None:
        context = BuildContext(texts, second.batch_size * processes, may_shrink_batch(config, second))
        with _second_objective_errors(config):
            other = build_method(second, context, rows.second)
        parts += [
            (method, config.second_weight * weight) for method, weight in ((other.method, 1.0), *other.extra_losses)
        ]
        facts = [*facts, *(f"second objective, {other.method.name}: {fact}" for fact in other.facts)]
        teachers += other.teachers
    if (prompts := encoder.describe_prompts()) is not None:
        facts = [*facts, prompts]
    encoder.matryoshka = tuple(sorted(config.matryoshka or (), reverse=True))
    mixture = Mixture(tuple(parts))
    for head in mixture.heads:
        head.to(encoder.device)
    merge = partial(merge_square_layers, encoder.backbone, encoder.tail) if is_static(encoder.backbone) else _no_merge
    if config.lora_rank is not None:
        from nearfar.encoder.lora import add_lora

        merge = add_lora(encoder, rank=config.lora_rank, alpha=config.lora_alpha)
    rate_factors = learning_rate_factors(encoder, config.layer_decay)
    if cut := texts.tokens.truncated:
        length = min(config.train_max_length or encoder.max_length, encoder.max_length)
        facts = [*facts, f"{cut} of {len(texts.tokens)} sentences have over {length} tokens and are truncated"]
    at_most = config.max_steps and config.max_steps * config.accumulate
    steps = -(-mixture.total_steps(config.epochs, at_most=at_most) // config.accumulate)
    steps = min(steps, config.max_steps or steps)
    return PreparedRun(encoder, texts, mixture, steps, facts, merge, rate_factors, teachers)


@contextmanager
def _second_objective_errors(config: TrainConfig) -> Iterator[None]:
    """Prefix errors with the flag of the second objective."""
    from nearfar.commands.train.second_objective import second_flag

    try:
        yield
    except NearfarError as error:
        raise NearfarError(f"{second_flag(config)}: {error}") from error


def _no_merge() -> None:
    """There is nothing to merge."""
