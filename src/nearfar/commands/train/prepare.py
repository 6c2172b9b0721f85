"""A run made ready: config -> encoder, methods and steps, up to but without the first step; and its plan in words."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nearfar.config import TrainConfig
from nearfar.data.paths import as_path, is_file
from nearfar.types import NearfarError, ScoredPair

if TYPE_CHECKING:
    from rich.console import Console

    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.training_encoder import TrainingEncoder
    from nearfar.methods.base import Method
    from nearfar.methods.build import Rows
    from nearfar.methods.mixture import Mixture


_DEV_PAIRS_HINT = (
    "\n  Scored pairs choose the best step. Name a file with the columns score, sentence1 and sentence2 by "
    "--evaluate-on FILE, take generated pairs by --evaluate-on microworld:dev, or set NEARFAR_DATA to a folder that "
    "holds STS-B."
)


@dataclass(frozen=True)
class Plan:
    """What a run would do, counted and in words, without doing it."""

    facts: list[str]
    """Where the rows come from, how many there are, and what was left out or cut."""
    sentences: int
    """Distinct ones."""
    tokens: int
    """Of the distinct sentences."""
    steps: int
    parameters: int
    """Of the encoder."""
    trained: int
    """Those that are trained, heads included."""
    memory_gib: float
    """About: weights, gradients, AdamW's moments, and the activations of the largest of the batches below."""
    batches: list[list[str]]
    """The first three batches in words: anchors, positives, negatives."""
    dev: str
    """The pairs that choose the best step, and how many they are."""


class TrainingData(NamedTuple):
    """The rows of a run's objectives, read before the encoder is opened: what is wrong with them is told at once."""

    first: "Rows"
    second: "Rows | None"

    def fingerprint_inputs(
        self, config: TrainConfig
    ) -> "dict[str, tuple[Sequence[Sequence[object]], Sequence[object]]]":
        """Texts and labels or scores that are used, by the words for where they are from."""
        from nearfar.commands.train.second_objective import second_objective_config

        named = [(f"--data {' '.join(getattr(config, 'data', ()))}", self.first, config.limit)]
        if self.second is not None and (second := second_objective_config(config)) is not None:
            named.append((f"the data of --second {config.second}", self.second, second.limit))
        return {what: (rows.rows[:limit], getattr(rows, "targets", None) or ()) for what, rows, limit in named}


@dataclass(frozen=True)
class PreparedRun:
    """Everything that a run is made of, ready to go."""

    encoder: "Encoder"
    texts: "TrainingEncoder"
    mixture: "Mixture"
    total_steps: int
    facts: list[str]
    merge: Callable[[], None]
    """To be called before the encoder is saved: puts adapters, where there are any, into its weights."""


def read_training_data(config: TrainConfig) -> TrainingData:
    """Read the rows of the objective, and of the second one where there is one.

    Raises:
        NearfarError: rows that cannot be had, or that are malformed.
    """
    from nearfar.commands.train.second_objective import second_objective_config
    from nearfar.methods.build import read_rows

    second, first = second_objective_config(config), read_rows(config)
    with _second_objective_errors(config):
        return TrainingData(first, None if second is None else read_rows(second))


def prepare(
    config: TrainConfig,
    rows: TrainingData | None = None,
    *,
    processes: int = 1,
    device: str | None = None,
    console: "Console | None" = None,
) -> PreparedRun:
    """Encoder and methods on the ``rows``, with the heads that every fresh run of this config starts from.

    Without ``rows`` they are read. On ``console`` a bar is shown while many texts are tokenised.

    Raises:
        NearfarError: whatever would stop the run before its first step.
    """
    rows = rows or read_training_data(config)

    from nearfar.commands.train.second_objective import may_shrink_batch, second_objective_config
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.precision import resolve
    from nearfar.encoder.training_encoder import TrainingEncoder
    from nearfar.methods.build import BuildContext, build_method
    from nearfar.methods.mixture import Mixture
    from nearfar.training.gradients import seed_rng
    from nearfar.training.processes import Processes

    second = second_objective_config(config)
    pooling = getattr(config, "pooling", None)
    encoder = Encoder.from_pretrained(
        config.model,
        pooling=None if pooling == "own" else pooling,
        max_length=config.max_length,
        device=device or config.device,
    )
    texts = TrainingEncoder(
        encoder,
        max_length=config.train_max_length,
        bf16=resolve(config.precision, encoder.device) == "bf16",
        broadcast_from_first=Processes().broadcast_from_first,
        console=console,
    )
    seed_rng(config.seed)
    built = build_method(
        config, BuildContext(texts, config.batch_size * processes, may_shrink_batch(config)), rows.first
    )
    parts, facts = [(built.method, 1.0), *built.extra_losses], built.facts
    if second is not None and rows.second is not None:
        context = BuildContext(texts, second.batch_size * processes, may_shrink_batch(config, second))
        with _second_objective_errors(config):
            other = build_method(second, context, rows.second)
        parts += [
            (method, config.second_weight * weight) for method, weight in ((other.method, 1.0), *other.extra_losses)
        ]
        facts = [*facts, *(f"second objective, {other.method.name}: {fact}" for fact in other.facts)]
    mixture = Mixture(tuple(parts))
    for head in mixture.heads:
        head.to(encoder.device)
    merge = _no_merge
    if config.lora_rank is not None:
        from nearfar.encoder.lora import add_lora

        merge = add_lora(encoder, rank=config.lora_rank, alpha=config.lora_alpha)
    if cut := texts.tokens.truncated:
        length = min(config.train_max_length or encoder.max_length, encoder.max_length)
        facts = [*facts, f"{cut} of {len(texts.tokens)} sentences are over {length} tokens and cut there"]
    at_most = config.max_steps and config.max_steps * config.accumulate
    steps = -(-mixture.total_steps(config.epochs, at_most=at_most) // config.accumulate)
    return PreparedRun(encoder, texts, mixture, min(steps, config.max_steps or steps), facts, merge)


def _is_file(spec: str) -> bool:
    try:
        return is_file(as_path(spec))
    except NearfarError:
        return False


@contextmanager
def _second_objective_errors(config: TrainConfig) -> Iterator[None]:
    """Says of an error that it is of the second objective."""
    try:
        yield
    except NearfarError as error:
        raise NearfarError(f"--second {config.second}: {error}") from error


def load_dev_pairs(config: TrainConfig) -> list[ScoredPair]:
    """The pairs that choose the best step.

    Raises:
        NearfarError: they cannot be had, or no encoder can be scored on them; it says how to name others.
    """
    from nearfar.data.sts import load_pairs
    from nearfar.evaluation.correlation import undefined_reason

    spec = config.evaluate_on
    try:
        pairs = load_pairs(spec)
    except NearfarError as error:
        raise NearfarError(f"--evaluate-on: {error}{'' if _is_file(spec) else _DEV_PAIRS_HINT}") from error
    gold = [pair.score for pair in pairs]
    texts = {text for pair in pairs for text in pair[:2]}
    reason = undefined_reason(gold, gold) or ("all texts are equal" if len(texts) < 2 else None)
    if reason is not None:
        raise NearfarError(
            f"{spec}: no correlation to choose the best step by: {reason}. Name other pairs by --evaluate-on."
        )
    return pairs


def plan(
    config: TrainConfig, *, resume: bool = False, anchors: int | None = None, console: "Console | None" = None
) -> Plan:
    """Check all that a run checks before its first step, count, and show three batches in words.

    Leaves nothing on the disk. ``resume`` is what the run would be told. ``anchors`` is how many anchors of a batch are
    shown, by default all. On ``console`` a bar is shown while many texts are tokenised.

    Raises:
        NearfarError: whatever would stop the run before its first step.
    """
    from nearfar.commands.train.command import check_folder
    from nearfar.methods.mixture import describe_parts

    check_folder(config, resume=resume)
    dev = load_dev_pairs(config)
    run = prepare(config, console=console)
    first = [parts for _, parts in zip(range(3), run.mixture.epoch(0), strict=False)]
    parameters = list(run.encoder.parameters())
    trained = [p for module in (run.encoder, *run.mixture.heads) for p in module.parameters() if p.requires_grad]
    shape = run.encoder.backbone.config
    # What autograd keeps of a layer for each token: about 10 widths around attention and norms, 3 of the feed-forward.
    width, inner = shape.hidden_size, getattr(shape, "intermediate_size", 4 * shape.hidden_size)
    kept = shape.num_hidden_layers * (10 * width + 3 * inner) * 4
    tokens = max(_tokens(method, batch, config) for parts in first for method, batch, _ in parts)
    numbers = sum(p.numel() for p in parameters)
    return Plan(
        facts=run.facts,
        sentences=len(run.texts.tokens),
        tokens=len(run.texts.tokens.flat),
        steps=run.total_steps,
        parameters=numbers,
        trained=sum(p.numel() for p in trained),
        memory_gib=(4 * numbers + 12 * sum(p.numel() for p in trained) + tokens * kept) / 2**30,
        batches=[describe_parts(parts, anchors=anchors) for parts in first],
        dev=f"dev pairs: {config.evaluate_on}: {len(dev):,} pairs",
    )


def _tokens(method: "Method", batch: object, config: TrainConfig) -> int:
    """Tokens that are in the encoder at once, at most, for a batch."""
    from nearfar.training.gradients import split_micro_batches

    assert method.count_tokens is not None
    micro_batches = split_micro_batches(
        method, method.extract_items(batch), config.micro_batch, config.micro_batch_tokens
    )
    return max(sum(method.count_tokens(micro_batch)) for micro_batch in micro_batches)


def _no_merge() -> None:
    """Without adapters there is nothing to merge."""
