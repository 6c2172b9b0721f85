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

    from nearfar.commands.train.reading import Rows
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.training_encoder import TrainingEncoder
    from nearfar.methods import Method
    from nearfar.methods.mixture import Mixture


_OTHER_PAIRS = (
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


class Read(NamedTuple):
    """The rows of a run's objectives, read before the encoder is opened: what is wrong with them is told at once."""

    first: "Rows"
    second: "Rows | None"

    def parts(self, config: TrainConfig) -> "dict[str, tuple[Sequence[Sequence[object]], Sequence[object]]]":
        """Texts and labels or scores that are used, by the words for where they are from."""
        from nearfar.commands.train.recipes import second_of

        named = [(f"--data {' '.join(getattr(config, 'data', ()))}", self.first, config.limit)]
        if self.second is not None and (second := second_of(config)) is not None:
            named.append((f"the data of --second {config.second}", self.second, second.limit))
        return {what: (rows.rows[:limit], getattr(rows, "targets", None) or ()) for what, rows, limit in named}


@dataclass(frozen=True)
class Prepared:
    """Everything that a run is made of, ready to go."""

    encoder: "Encoder"
    texts: "TrainingEncoder"
    mixture: "Mixture"
    total_steps: int
    facts: list[str]
    merge: Callable[[], None]
    """To be called before the encoder is saved: puts adapters, where there are any, into its weights."""


def read(config: TrainConfig) -> Read:
    """Read the rows of the objective, and of the second one where there is one.

    Raises:
        NearfarError: rows that cannot be had, or that are malformed.
    """
    from nearfar.commands.train.reading import read_rows
    from nearfar.commands.train.recipes import second_of

    second, first = second_of(config), read_rows(config)
    with _told_of_second(config):
        return Read(first, None if second is None else read_rows(second))


def prepare(
    config: TrainConfig,
    rows: Read | None = None,
    *,
    processes: int = 1,
    device: str | None = None,
    console: "Console | None" = None,
) -> Prepared:
    """Encoder and methods on the ``rows``, with the heads that every fresh run of this config starts from.

    Without ``rows`` they are read. On ``console`` a bar is shown while many texts are tokenised.

    Raises:
        NearfarError: whatever would stop the run before its first step.
    """
    rows = rows or read(config)

    from nearfar.commands.train.recipes import Kitchen, follow, second_of, shrinks
    from nearfar.encoder.encoder import Encoder
    from nearfar.encoder.precision import resolve
    from nearfar.encoder.training_encoder import TrainingEncoder
    from nearfar.methods.mixture import Mixture
    from nearfar.training.gradients import seeded
    from nearfar.training.processes import Processes

    second = second_of(config)
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
        from_first=Processes().from_first,
        console=console,
    )
    seeded(config.seed)
    recipe = follow(config, Kitchen(texts, config.batch_size * processes, shrinks(config)), rows.first)
    parts, facts = [(recipe.method, 1.0), *recipe.beside], recipe.facts
    if second is not None and rows.second is not None:
        kitchen = Kitchen(texts, second.batch_size * processes, shrinks(config, second))
        with _told_of_second(config):
            other = follow(second, kitchen, rows.second)
        parts += [(method, config.second_weight * weight) for method, weight in ((other.method, 1.0), *other.beside)]
        facts = [*facts, *(f"second objective, {other.method.name}: {fact}" for fact in other.facts)]
    mixture = Mixture(tuple(parts))
    for head in mixture.heads:
        head.to(encoder.device)
    merge = _nothing
    if config.lora_rank is not None:
        from nearfar.encoder.lora import add_lora

        merge = add_lora(encoder, rank=config.lora_rank, alpha=config.lora_alpha)
    if cut := texts.tokens.truncated:
        length = min(config.train_max_length or encoder.max_length, encoder.max_length)
        facts = [*facts, f"{cut} of {len(texts.tokens)} sentences are over {length} tokens and cut there"]
    at_most = config.max_steps and config.max_steps * config.accumulate
    steps = -(-mixture.total_steps(config.epochs, at_most=at_most) // config.accumulate)
    return Prepared(encoder, texts, mixture, min(steps, config.max_steps or steps), facts, merge)


def _is_file(spec: str) -> bool:
    try:
        return is_file(as_path(spec))
    except NearfarError:
        return False


@contextmanager
def _told_of_second(config: TrainConfig) -> Iterator[None]:
    """Says of an error that it is of the second objective."""
    try:
        yield
    except NearfarError as error:
        raise NearfarError(f"--second {config.second}: {error}") from error


def load_dev(config: TrainConfig) -> list[ScoredPair]:
    """The pairs that choose the best step.

    Raises:
        NearfarError: they cannot be had, or no encoder can be scored on them; it says how to name others.
    """
    from nearfar.data.sts import load_pairs
    from nearfar.evaluation.correlation import undefined_because

    spec = config.evaluate_on
    try:
        pairs = load_pairs(spec)
    except NearfarError as error:
        raise NearfarError(f"--evaluate-on: {error}{'' if _is_file(spec) else _OTHER_PAIRS}") from error
    gold = [pair.score for pair in pairs]
    texts = {text for pair in pairs for text in pair[:2]}
    reason = undefined_because(gold, gold) or ("all texts are equal" if len(texts) < 2 else None)
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
    dev = load_dev(config)
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
    from nearfar.training.gradients import pieces_of

    assert method.tokens_of is not None
    pieces = pieces_of(method, method.items_of(batch), config.micro_batch, config.micro_batch_tokens)
    return max(sum(method.tokens_of(piece)) for piece in pieces)


def _nothing() -> None:
    """Without adapters there is nothing to merge."""
