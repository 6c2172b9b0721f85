"""Baselines by name, for ``nearfar evaluate``.

===========================  ==========================================================================================
``bow``                      bags of words (:func:`nearfar.baselines.words.bag_of_words`)
``glove:FILE``               averaged word vectors of a text file (:class:`nearfar.baselines.words.Glove`)
``use``, ``use:PATH``        the Universal Sentence Encoder, published or unpacked (:mod:`nearfar.baselines.words`)
``wk:MODEL``                 SBERT-WK of a model's layers (:mod:`nearfar.baselines.sbert_wk`)
``whitening:MODEL``          BERT-whitening fitted on the evaluated texts of each task ("target" in the papers). This is
                             *transductive*: it uses the texts of the test set, though not its scores
``whitening:MODEL@TEXTS``    the same fitted on other sentences (:mod:`nearfar.baselines.whitening`)
``flow:MODEL``               BERT-flow fitted on the texts of each task; also transductive
``flow:MODEL@TEXTS``         the same fitted on other sentences (:mod:`nearfar.baselines.flow`)
===========================  ==========================================================================================

MODEL is a model folder, a run folder or a hub name. TEXTS is a source for :func:`nearfar.data.rows.load_sentences`: a
file with one sentence per line, or a named data set, as in ``whitening:bert-base-uncased@snli``. Settings of a baseline
follow its name: ``whitening:MODEL@TEXTS,pooling=first_last,dimensions=256`` (:data:`BASELINES`).

A baseline has precedence over a folder of the same name; write ``./use`` for the folder.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nearfar.types import Encode, NearfarError
from nearfar.validation import nearest


class Baseline(NamedTuple):
    """What the name of a baseline stands for."""

    syntax: str
    options: tuple[str, ...] = ()
    """Its settings, written as ``,name=value``."""
    fitted: bool = False
    """Whether it is fitted on texts: those after ``@``, or those of each task."""
    encoder: bool = False
    """Whether it uses the encoder that is named after the colon."""
    alone: bool = False
    """Whether the name alone is a spec."""


BASELINES: Mapping[str, Baseline] = {
    "bow": Baseline("bow", alone=True),
    "glove": Baseline("glove:FILE"),
    "use": Baseline("use or use:PATH", alone=True),
    "wk": Baseline("wk:MODEL", ("layer_start",), encoder=True),
    "whitening": Baseline(
        "whitening:MODEL or whitening:MODEL@TEXTS", ("pooling", "dimensions"), fitted=True, encoder=True
    ),
    "flow": Baseline("flow:MODEL or flow:MODEL@TEXTS", ("pooling",), fitted=True, encoder=True),
}
_PREFIX = re.compile(r"[a-z][a-z0-9_-]+:.")  # at least two characters: C: is a drive
_OPTION = re.compile(r",(\w+)=([^,=]*)$")


class Spec(NamedTuple):
    """The parts of a spec such as ``whitening:MODEL@TEXTS,pooling=cls``."""

    name: str
    source: str
    """A model; for ``glove`` and ``use`` a file or folder, empty for ``use`` alone."""
    texts: str | None
    options: dict[str, str]


def is_baseline(spec: str) -> bool:
    """Whether ``spec`` means a baseline, even if misspelt; imports no torch.

    True for each name in :data:`BASELINES`, alone or before a colon, and for any other word before a colon, for which
    :func:`open_baseline` suggests a name, unless there is a file or folder of that name.
    """
    name, colon, _ = spec.partition(":")
    if name in BASELINES and (colon or BASELINES[name].alone):
        return True
    return (spec in BASELINES or _PREFIX.match(spec) is not None) and not Path(spec).expanduser().exists()


def parse_spec(spec: str) -> Spec:
    """Split a spec into its parts.

    Raises:
        NearfarError: an unknown baseline or setting (with a suggestion), or a missing part.
    """
    name, _, source = spec.partition(":")
    if name not in BASELINES:
        known = ", ".join(one.syntax for one in BASELINES.values())
        raise NearfarError(f"{spec}: unknown baseline {name!r}.{nearest(name, list(BASELINES))} Known: {known}.")
    baseline = BASELINES[name]
    options: dict[str, str] = {}
    texts = None
    if not Path(source).expanduser().exists():  # else commas and at-signs belong to the path
        while found := _OPTION.search(source):
            source = source[: found.start()]
            options[found[1]] = found[2]
        if baseline.fitted and "@" in source:
            source, _, texts = source.rpartition("@")
    for option in options:
        if option not in baseline.options:
            known = f"It has: {', '.join(baseline.options) or 'none'}."
            raise NearfarError(f"{spec}: {name} has no setting {option!r}.{nearest(option, baseline.options)} {known}")
    if not (source or baseline.alone) or texts == "" or (name == "bow" and ":" in spec):
        raise NearfarError(f"{spec}: write {baseline.syntax}.")
    return Spec(name, source, texts, options)


def is_transductive(spec: str) -> bool:
    """Whether the baseline is fitted on the evaluated texts; raises as :func:`parse_spec`."""
    parts = parse_spec(spec)
    return BASELINES[parts.name].fitted and parts.texts is None


def is_per_task(spec: str) -> bool:
    """Whether vectors of texts of different tasks are not comparable; raises as :func:`parse_spec`."""
    return is_transductive(spec) or parse_spec(spec).name == "bow"


def open_baseline(
    spec: str,
    *,
    per_call: bool = False,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str | None = None,
    prompt: str | None = None,
    bf16: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Encode:
    """Return the encode function of ``spec`` (see the module docstring), fitted if necessary.

    Args:
        spec: a baseline by name.
        per_call: required by ``bow``, ``whitening:MODEL`` and ``flow:MODEL``, ignored by others: take dimensions from,
            or fit on, the texts of each call. The model's embeddings are cached, so that none is computed twice.
        pooling: pooling of the model, as in :meth:`nearfar.Encoder.from_pretrained`; the spec may set it instead.
        max_length: maximum number of tokens, as in :meth:`nearfar.Encoder.from_pretrained`.
        device: device of the model, as in :meth:`nearfar.Encoder.from_pretrained`.
        prompt: put before each text, as in :meth:`nearfar.Encoder.set_prompts`; by default the model's own.
        bf16: run the model in bfloat16.
        seed: seed for fitting a flow.
        progress: show progress bars.

    Raises:
        NearfarError: as :func:`parse_spec`; a setting that the baseline cannot use or that is given twice with
            different values, no texts to fit on, or an error of loading or fitting.
    """
    name, source, texts, options = parse_spec(spec)
    baseline = BASELINES[name]
    if (baseline.fitted and texts is None and not per_call) or (name == "bow" and not per_call):
        raise NearfarError(
            f"{spec}: is fitted on the texts of a task, but there is no task here. Sentences to fit a "
            f"whitening or flow on can be named: {name}:MODEL@TEXTS."
        )
    if not baseline.encoder:
        from nearfar.baselines.words import PUBLISHED, Glove, Use, bag_of_words

        given = {"pooling": pooling, "max_length": max_length, "device": device, "prompt": prompt}
        if own := [name for name, value in {**given, "precision": bf16 or None}.items() if value is not None]:
            raise NearfarError(f"{own[0]} is a setting of an encoder; {spec} has none.")
        if name == "bow":
            return bag_of_words
        return Glove.from_file(source) if name == "glove" else Use(source or PUBLISHED)
    if pooling is not None and (name == "wk" or options.get("pooling", pooling) != pooling):
        raise NearfarError(
            f"pooling {pooling!r}: {spec} has its own pooling, which contradicts it; remove the setting."
        )
    pooling = options.pop("pooling", pooling)
    numbers: dict[str, Any] = {key: _parse_number(spec, key, value) for key, value in options.items()}
    from nearfar.encoder.encoder import Encoder

    encoder = Encoder.from_pretrained(source, pooling=pooling, max_length=max_length, prompt=prompt, device=device)
    if name == "wk":
        from nearfar.baselines.sbert_wk import SbertWk

        return SbertWk(encoder, **numbers, bf16=bf16, progress=progress)
    from nearfar.baselines.whitening import CachedEncode, Whitening

    encode: Encode = partial(encoder.encode, precision="bf16" if bf16 else "fp32", progress=progress)
    fit: Callable[[Encode, Sequence[str]], Encode] = partial(Whitening.fit, **numbers)
    if name == "flow":
        from nearfar.baselines.flow import Flow

        fit = partial(Flow.fit, seed=seed, progress=progress)
    if texts is not None:
        from nearfar.data.rows import load_sentences

        return fit(encode, [row[0] for row in load_sentences(texts).rows])
    cached_encode = CachedEncode(encode)
    return lambda texts: fit(cached_encode, texts)(texts)


def _parse_number(spec: str, key: str, value: str) -> float:
    """An integer; for ``layer_start`` also a share of the depth, ``1/3`` or ``0.33``."""
    try:
        return int(value) if key == "dimensions" or value.isdecimal() else float(Fraction(value))
    except (ValueError, ZeroDivisionError):
        raise NearfarError(
            f"{spec}: {key} is {value!r}, but must be an integer, or as a layer_start a share, such as 1/3."
        ) from None
