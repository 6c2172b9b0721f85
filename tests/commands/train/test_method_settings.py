"""Every setting of every method has its effect, and unusable settings are refused before anything is written."""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from inspect import get_annotations
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer import modules as st

from nearfar import Encoder, InfoNceConfig, NearfarError, SgOpt1Config, TrainConfig
from nearfar.commands.train import train
from nearfar.commands.train.inputs import TrainingSet, resolve_sets
from nearfar.commands.train.prepare import PreparedRun, prepare
from nearfar.config.values import field_types, flag
from nearfar.registry import METHODS
from nearfar.training.gradients import seed_rng
from tests.method_configs import config

pytestmark = pytest.mark.long

CAPS = {"max_positives": 1, "max_negatives": 2}
NLI: dict[str, Any] = {"head_layers": 1, "pooling": "cls", "order": "file"}
SIMCSE: dict[str, Any] = {"mlp": "none", "temperature": 0.2, "mlm_weight": 0.3, "pooling": "mean"}
SIMCSE["false_negative_margin"] = 0.0
INFO_NCE: dict[str, Any] = {"temperature": 0.2, "similarity": "dot", "false_negative_margin": 0.0}
PAIRS: dict[str, Any] = {"temperature": 0.2, "drift_weight": 0.7, "projection": 8, "false_negative_margin": 0.0}
KIM: dict[str, Any] = {**PAIRS, "views": "1-2", "view_pooling": "mean", "guide_dropout": True, "pooling": "mean"}
CHANGES: dict[str, dict[str, Any]] = {
    "sbert": NLI,
    "scl": {
        **NLI,
        **CAPS,
        **{"scl_weight": 0.9, "temperature": 0.3, "similarity": "cosine"},
        **{"hard_negatives": "none", "false_negative_margin": 0.0},
    },
    "augment": {**NLI, **CAPS},
    "simcse-unsup": SIMCSE,
    "simcse-sup": {**SIMCSE, "hard_negative_weight": 1.0},
    "sg": KIM,
    "sg-opt1": KIM,
    "sg-opt2": KIM,
    "sg-opt": KIM,
    "bt": {**PAIRS, "pooling": "mean"},
    "bt+sg-opt": KIM,
    "distill": {"list_weight": 1.0, "teacher_temperature": 0.1},
    "nli-order": {**INFO_NCE, "pooling": "cls", "directions": "both"},
    "info-nce": {**INFO_NCE, "hard_negative_weight": 1.0, "negative_column": None},
    "documents": INFO_NCE,
    "teacher-scores": {"temperature": 0.2, "teacher_temperature": 3.0, "false_negative_margin": 0.0},
}
"""Values of settings that change the loss, where :func:`another_value` would not do. By method."""
TESTED_SEPARATELY = {
    *("mlm_probability", "distinct_texts", "freeze_embeddings", "teacher", "vector_projection", "guide"),
    *(name for kind in METHODS.values() for name in field_types(kind) if name.endswith("_column")),
} - {"negative_column"}
"""Settings of other tests below."""
ANGLE = ("temperature", "angle_temperature", "cosine_weight", "in_batch_weight", "angle_weight", "in_batch_threshold")
NEEDED: dict[str, dict[str, dict[str, Any]]] = {
    "regression": {name: {"objective": "angle"} for name in ANGLE},
    "nli-order": {"order_unrelated": {"order_pairs": "batch"}},
    "teacher-scores": {"false_negative_margin": {"in_batch_weight": 1.0}},
    "distill": {name: {"list_weight": 1.0} for name in ("temperature", "teacher_temperature", "vector_weight")},
}
"""Method -> setting -> what it needs to have an effect."""
SHARED = {field.name for field in fields(TrainConfig)}


def another_value(config_class: type[TrainConfig], name: str) -> Any:
    """Return a value of a setting other than its default."""
    known, default = field_types(config_class)[name], getattr(config_class, name)
    if known.choices:
        return next(choice for choice in known.choices if choice != default)
    if known.scalar is bool:
        return not default
    if known.scalar is int:
        return default // 2 if default and default > 1 else 2
    assert known.scalar is float, f"{name}: name a value in CHANGES"
    return default / 2 if default else 0.3


def changes(method: str) -> dict[str, Any]:
    """Each setting of a method that changes the loss, with a value other than its default."""
    listed = CHANGES.get(method, {})
    own = [name for name in field_types(METHODS[method]) if name not in SHARED | TESTED_SEPARATELY | listed.keys()]
    return {**{name: another_value(METHODS[method], name) for name in own if not name.endswith("_column")}, **listed}


@pytest.fixture(scope="module")
def defaults() -> dict[str, list[float]]:
    """A cache of losses by the settings of a run."""
    return {}


def losses(run: PreparedRun) -> list[float]:
    """Losses of two batches, with dropout and slightly changed weights, so that the drift is not 0."""
    found = []
    run.encoder.train()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in run.encoder.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    for number, parts in zip(range(2), run.mixture.epoch(0), strict=False):
        for method, batch, weight in parts:
            seed_rng(3, number)
            found.append(weight * float(method.loss(batch).total.detach()))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_a_method_is_tested(method: str) -> None:
    own = {field.name for field in fields(METHODS[method])} - SHARED
    assert {name for name in own if not name.endswith("_column")} <= changes(method).keys() | TESTED_SEPARATELY
    assert own
    for name, value in changes(method).items():
        assert value != getattr(config(method, Path("folder")), name)


def cases() -> Iterator[Any]:
    """Every setting of every method; by day each on the first method that has it from the same class."""
    known: set[tuple[type, str]] = set()
    for method in METHODS:
        for name in changes(method):
            owner = next(kind for kind in METHODS[method].__mro__ if name in get_annotations(kind))
            marks = [pytest.mark.nightly] if (owner, name) in known else []
            known.add((owner, name))
            yield pytest.param(method, name, marks=marks)


@pytest.mark.parametrize(("method", "name"), list(cases()))
def test_a_setting_changes_the_loss(method: str, name: str, folder: Path, defaults: dict[str, list[float]]) -> None:
    start = {"data": (str(folder / "entailed.tsv"),)} if name in CAPS else {}
    start |= NEEDED.get(method, {}).get(name, {})
    key = f"{method} {start}"
    if key not in defaults:
        defaults[key] = losses(prepare(config(method, folder, **start)))
    after = losses(prepare(config(method, folder, **{**start, name: changes(method)[name]})))
    assert all(math.isfinite(loss) for loss in after)
    assert after != pytest.approx(defaults[key], rel=1e-4)


def test_settings_outside_the_loss(folder: Path) -> None:
    for method in ("sg", "bt", "bt+sg-opt"):
        kept, free = (
            [p.requires_grad for p in prepare(config(method, folder, freeze_embeddings=freeze)).encoder.parameters()]
            for freeze in (True, False)
        )
        assert all(free)
        assert kept.count(False) == 5  # embeddings of words, positions and types; two parameters of LayerNorm
    few, many = (
        prepare(config("simcse-unsup", folder, mlm_weight=1.0, mlm_probability=share)).mixture for share in (0.1, 0.9)
    )
    hidden = []
    for mixture in (few, many):
        _, (mlm, batch, _) = next(mixture.epoch(0))
        seed_rng(1)
        hidden.append(sum(len(item.tokens) for item in mlm.extract_items(batch)))
    assert 0 < hidden[0] < hidden[1] / 4


@pytest.mark.parametrize(
    ("method", "data"), [("info-nce", "again.tsv"), ("simcse-sup", "again.tsv"), ("nli-order", "nli.tsv")]
)
def test_batches_without_repeated_texts(method: str, data: str, folder: Path, tmp_path: Path) -> None:
    names = "anchor\tpositive\tnegative\n"
    (tmp_path / "again.tsv").write_text(names + "".join(f"a {n // 2}\tb {n}\tc {n}\n" for n in range(40)))
    labelled = (f"p {n // 2}\t{'no' if n % 12 == 1 else f'h {n}'}\t{2 * (n % 2)}\n" for n in range(40))
    (tmp_path / "nli.tsv").write_text("premise\thypothesis\tlabel\n" + "".join(labelled))
    repeated = {}
    for distinct in (False, True):
        settings = config(method, folder, data=(str(tmp_path / data),), distinct_texts=distinct)
        mixture, repeated[distinct] = prepare(settings).mixture, 0
        for epoch in range(5):
            batches = [batch for ((_, batch, _),) in mixture.epoch(epoch)]
            assert sorted(row for batch in batches for row in batch.rows) == list(range(40))
            assert [len(batch.rows) for batch in batches] == [10] * 4
            repeated[distinct] += sum(len(batch.sentences) < (30 if data == "again.tsv" else 15) for batch in batches)
    assert repeated[True] <= 5 < repeated[False]  # at most the last of an epoch


def test_a_further_set_combines_the_settings_of_the_run_with_its_own(folder: Path) -> None:
    given = config("sg", folder)
    assert resolve_sets(given) == [TrainingSet(given)]
    further: list[dict[str, Any]] = [
        {"method": "scl"},
        {"method": "supcon-text", "data": "x.tsv", "batch_size": 6, "limit": 9, "temperature": 0.1, "prompt": "p: "},
        {"data": [str(folder / "triplets.tsv")], "weight": 0.5},
        {"data": ["own"]},
    ]
    _, *sets = resolve_sets(config("sg", folder, seed=7, limit=20, lora_rank=2, drift_weight=0.0, sets=further))
    run: dict[str, Any] = {"output": str(folder / "run"), "model": str(folder / "noisy"), "seed": 7, "lora_rank": 2}
    expected = {"data": ("x.tsv",), "batch_size": 6, "limit": 9, "temperature": 0.1, "prompt": "p: "}
    assert [training_set.number for training_set in sets] == [2, 3, 4, 5]
    assert [training_set.config for training_set in sets] == [
        METHODS["scl"](**run, limit=20, batch_size=10),
        METHODS["supcon-text"](**run, **expected),
        InfoNceConfig(
            **run,
            **{"limit": 20, "batch_size": 10, "data": (str(folder / "triplets.tsv"),), "weight": 0.5},
            **{"distinct_texts": True, "negative_column": "negative"},
        ),
        SgOpt1Config(**run, limit=20, batch_size=64, data=("own",), views="0-0", weight=0.3, drift_weight=0.0),
    ]
    with pytest.raises(NearfarError, match="set 2: --dropout 0: simcse-unsup needs dropout"):
        resolve_sets(config("info-nce", folder, sets=({"method": "simcse-unsup"},), dropout=0.0))


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"temperature": 1.0}, "set 2: names neither data nor a method"),
        ({"method": "scl", "epochs": 3}, "set 2: epochs belongs to the run; set it by --epochs"),
        ({"method": "scl", "views": "0-1"}, "set 2: no key is called 'views'"),
        ({"method": "slc"}, "set 2: no method is called 'slc'"),
        ({"method": 3}, "set 2: no method is called '3'"),
        ({"method": "scl", "weight": -1}, "set 2: weight = -1: must be"),
        ({"data": "nowhere.tsv"}, "set 2: nowhere.tsv: "),
    ],
)
def test_invalid_tables_of_sets_are_refused(table: dict[str, Any], match: str, folder: Path) -> None:
    with pytest.raises(NearfarError, match=match):
        resolve_sets(config("sg", folder, sets=(table,)))


def test_a_mix_needs_sets(folder: Path) -> None:
    with pytest.raises(NearfarError, match="--mix weighted: mixes several sets of rows; give --data again"):
        config("sg", folder, mix="weighted")
    with pytest.raises(NearfarError, match=r"--mix-temperature 2\.0: needs --mix proportional"):
        config("sg", folder, sets=({"method": "scl"},), mix_temperature=2.0)


@pytest.fixture
def refuse(folder: Path, tmp_path: Path) -> Callable[..., None]:
    """Asserts that runs are refused before they start, on rows of their own if there are any."""

    def refused(match: str, method: str, rows: str = "", **settings: Any) -> None:
        if rows:
            (tmp_path / "own.tsv").write_text(rows)
            settings["data"] = (str(tmp_path / "own.tsv"),)
        with pytest.raises(NearfarError, match=match):
            train(config(method, folder, output=str(tmp_path / "run"), **settings))
        assert not (tmp_path / "run").exists()  # no files are left

    return refused


def test_too_few_or_too_similar_rows_are_refused(refuse: Callable[..., None]) -> None:
    pairs = "anchor\tpositive\n" + "".join(f"a {n}\tb {n}\n" for n in range(12))
    refuse(r"own.tsv: triplets need the columns anchor, positive, negative; or", "simcse-sup", pairs)
    texts = "label\ttext\n" + "".join(f"{'ab'[n % 2]}\ttext {n}\n" for n in range(12))
    refuse("The label 'rare' has a single text, 'the only one'", "supcon-text", f"{texts}rare\tthe only one\n")
    refuse("Every text has the label 'a'", "supcon-text", texts.replace("b\t", "a\t"))


@pytest.mark.parametrize("method", METHODS)
def test_a_missing_column_is_refused_with_the_flags_that_name_columns(method: str, refuse: Callable[..., None]) -> None:
    names = " ".join(flag(name) for name in field_types(METHODS[method]) if name.endswith("_column"))
    rows = "a\tb\n" + "one\tother\n" * 12
    refuse(rf"own.tsv.*(no column '\w+'|need the columns anchor).*Its columns: a, b.*{names}", method, rows)


@pytest.mark.parametrize("method", METHODS)
def test_equal_texts_are_refused(method: str, refuse: Callable[..., None]) -> None:
    names = "premise hypothesis sentence translation anchor positive negative text sentence1 sentence2 label score"
    rows = "".join("same\t" * 10 + f"{('entailment', 'neutral', 'contradiction')[n % 3]}\t{n}\n" for n in range(12))
    refuse("[Ee]qual|the same premise", method, "\t".join(names.split()) + f"\n{rows}")


def test_an_encoder_narrower_than_its_layers_is_refused(
    refuse: Callable[..., None], folder: Path, tmp_path: Path
) -> None:
    encoder = Encoder.from_pretrained(folder / "noisy")
    encoder.tail.append(st.Dense(32, 16))
    encoder.save_pretrained(tmp_path / "narrow")
    model = str(tmp_path / "narrow")
    refuse("a Dense module makes its embeddings 16 wide, its layers are 32", "sg", model=model)
    assert prepare(config("bt", folder, model=model)).encoder.dim == 16  # this variant compares no layers
