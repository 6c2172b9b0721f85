"""The columns of rows choose the method."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearfar.cli import main
from nearfar.commands.train.choose import choose_method, resolve_config
from nearfar.config import (
    InfoNceConfig,
    NliOrderConfig,
    RegressionConfig,
    SclConfig,
    SgConfig,
    SgOpt1Config,
    SupconTextConfig,
    TrainConfig,
)
from nearfar.encoder.encoder import Encoder
from nearfar.methods.build import has_default_batch_size
from nearfar.types import NearfarError
from tests.invalid_input.cli_runner import assert_refused
from tests.tiny import save_tiny

ROOT = Path(__file__).parents[3]


def table(file: Path, *columns: str) -> str:
    file.write_text("\t".join(columns) + "\n" + "\t".join(f"a {column}" for column in columns) + "\n")
    return str(file)


def plain_model(folder: Path, width: int | None) -> Path:
    """A plain transformers model of this hidden size, or of none; modules.json makes it a sentence-transformers one."""
    start = folder / "start"
    start.mkdir()
    (start / "config.json").write_text(json.dumps({} if width is None else {"hidden_size": width}))
    return start


def trained_start(folder: Path, width: int | str | None) -> dict[str, Any]:
    """The setting of a sentence-transformers folder of this hidden size, or of none; ``default`` names no model."""
    if isinstance(width, str):
        return {}
    start = plain_model(folder, width)
    (start / "modules.json").write_text("[]")
    return {"model": start}


@pytest.mark.parametrize(
    ("columns", "method", "values"),
    [
        ("anchor positive", "info-nce", {"anchor_column": "anchor", "positive_column": "positive"}),
        ("id anchor positive negative", "info-nce", {"negative_column": "negative"}),
        ("question answer", "info-nce", {"anchor_column": "question", "positive_column": "answer"}),
        ("query document", "info-nce", {"anchor_column": "query", "positive_column": "document"}),
        ("query positive", "info-nce", {"anchor_column": "query", "positive_column": "positive"}),
        ("sent0 sent1 hard_neg", "info-nce", {"anchor_column": "sent0", "negative_column": "hard_neg"}),
        ("premise hypothesis label", "scl", {"hard_negatives": "contradiction", "pooling": "own"}),
        ("label text fine_label", "supcon-text", {}),
        ("score sentence1 sentence2 label", "regression", {}),
        ("caption", "sg-opt1", {"text_column": "caption"}),
    ],
)
def test_columns_choose_the_method(columns: str, method: str, values: dict[str, str], tmp_path: Path) -> None:
    choice = choose_method([table(tmp_path / "rows.tsv", *columns.split())])
    assert choice.method == method
    assert values.items() <= choice.values.items()
    assert method in choice.explain()
    assert "nearfar train METHOD" in choice.explain()


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("flickr8k", "info-nce"),
        ("microworld", "scl"),
        ("stsb:train", "regression"),
        ("sickr:train", "regression"),
        ("stsb-text", "sg-opt1"),
    ],
)
def test_named_sets_choose_it_without_being_read(name: str, method: str) -> None:
    assert choose_method([name]).method == method


@pytest.mark.parametrize(("width", "rate"), [(32, 2e-4), (384, 2e-4), (768, 2e-5), (None, 2e-5)])
def test_nli_rows_and_a_plain_transformers_model(width: int | None, rate: float, tmp_path: Path) -> None:
    """A start that was not trained on similarity has the recipe of docs/tables/recipes-nli.md."""
    start = plain_model(tmp_path, width)
    file = table(tmp_path / "nli.tsv", "premise", "text", "label")
    settings = {"data": file, "hypothesis_column": "text", "output": "x", "model": start, "order_weight": 0.3}
    config = resolve_config(None, settings)
    assert isinstance(config, NliOrderConfig)
    assert (config.order_pairs, config.dropout, config.pooling) == ("batch", 0, "cls")
    assert (config.order_weight, config.hypothesis_column, config.learning_rate) == (0.3, "text", rate)
    assert (config.sentences, config.second_weight) == ((), 0.1)
    own = resolve_config(None, {**settings, "sentences": "texts.txt"})
    assert (own.sentences, own.second_weight) == (("texts.txt",), 0.3)  # docs/tables/recipes-nli-sentences.md
    assert resolve_config(None, {**settings, "sentences": "texts.txt", "second_weight": 0.2}).second_weight == 0.2
    choice = choose_method([file], {"hypothesis_column": "text"}, model=str(start))
    assert "training by nli-order" in choice.explain()
    assert "docs/tables/recipes-nli.md" in choice.explain()


@pytest.mark.parametrize("width", [None, 32, 384, 768, "default"])
def test_nli_rows_and_a_start_trained_on_similarity(width: int | str | None, tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 and others of its hidden size have the recipe of docs/tables/recipes-nli-minilm.md."""
    file = table(tmp_path / "nli.tsv", "premise", "text", "label")
    settings: dict[str, Any] = {"data": file, "hypothesis_column": "text", "output": "x"}
    settings |= trained_start(tmp_path, width)
    small = width in (32, 384, "default")
    config = resolve_config(None, settings)
    assert isinstance(config, SclConfig)
    assert (config.learning_rate, config.start_weight) == ((1e-4, 0.5) if small else (2e-5, 0))
    assert (config.hard_negatives, config.pooling, config.dropout) == ("contradiction", "own", None)
    assert config.hypothesis_column == "text"
    model = str(settings.get("model", TrainConfig.model))
    choice = choose_method([file], {"hypothesis_column": "text"}, model=model)
    assert ("averaged with those of the start" in choice.explain()) == small
    # The average belongs to the recipe's learning rate, and adapters cannot be averaged with the start.
    own = resolve_config(None, {**settings, "learning_rate": 3e-5})
    assert (own.learning_rate, own.start_weight) == (3e-5, 0)
    adapters = resolve_config(None, {**settings, "lora_rank": 4})
    assert (adapters.learning_rate, adapters.start_weight) == (2e-5, 0)
    share = resolve_config(None, {**settings, "start_weight": 0.2})
    assert (share.learning_rate, share.start_weight) == (1e-4 if small else 2e-5, 0.2)


@pytest.mark.long
def test_flags_that_change_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line passes them on to the choice."""
    Encoder.from_pretrained(save_tiny(tmp_path / "plain")).save_pretrained(tmp_path / "tiny")
    file = tmp_path / "nli.tsv"
    rows = ("premise\thypothesis\tlabel", "a cat sleeps\ta cat\tentailment", "a dog runs\ta cat\tcontradiction")
    file.write_text("\n".join(rows))
    flags = ["train", "--data", str(file), "--output", str(tmp_path / "run"), "--model", str(tmp_path / "tiny")]
    flags += ["--hold-out", "0", "--max-steps", "1", "--dry-run"]
    for given, average in (([], True), (["--learning-rate", "5e-5"], False), (["--lora-rank", "2"], False)):
        assert main([*flags, *given]) == 0
        shown = capsys.readouterr().out
        assert "training by scl" in shown
        assert ("averaged with those of the start" in shown) == average


@pytest.mark.parametrize(("width", "rate"), [(384, 2e-4), (768, 2e-5)])
def test_pairs_and_a_plain_transformers_model(width: int, rate: float, tmp_path: Path) -> None:
    """A start that was not trained on similarity has the recipe of docs/tables/recipes-pairs-sentences.md."""
    start = plain_model(tmp_path, width)
    file = table(tmp_path / "pairs.tsv", "query", "document")
    config = resolve_config(None, {"data": file, "output": "x", "model": start, "temperature": 0.1})
    assert isinstance(config, InfoNceConfig)
    assert (config.directions, config.distinct_texts, config.pooling) == ("both", True, "cls")
    assert (config.anchor_column, config.positive_column) == ("query", "document")
    assert (config.learning_rate, config.temperature, config.dropout) == (rate, 0.1, 0)
    assert (config.sentences, config.second_weight) == (("vocabulary",), 0.3)
    own = resolve_config(None, {"data": file, "output": "x", "model": start, "sentences": "texts.txt"})
    assert (own.sentences, own.second_weight, own.dropout) == (("texts.txt",), 0.3, 0)
    second = resolve_config(None, {"data": file, "output": "x", "model": start, "second": "simcse-unsup"})
    assert (second.sentences, second.second_weight, second.second) == ((), 0.1, "simcse-unsup")
    assert second.dropout is None  # SimCSE needs the model's own
    assert "docs/tables/recipes-pairs-sentences.md" in choose_method([file], model=str(start)).explain()
    assert choose_method(["flickr8k"], model=str(start)).values["directions"] == "both"


@pytest.mark.parametrize("width", [None, 384, 768, "default"])
def test_pairs_and_a_start_trained_on_similarity(width: int | str | None, tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 and others of its hidden size have the recipe of docs/tables/recipes-pairs-minilm.md."""
    file = table(tmp_path / "pairs.tsv", "query", "document")
    settings: dict[str, Any] = {"data": file, "output": "x", **trained_start(tmp_path, width)}
    small = width in (384, "default")
    config, default = resolve_config(None, settings), InfoNceConfig(output="x")
    assert isinstance(config, InfoNceConfig)
    assert (config.learning_rate, config.start_weight) == ((4e-4, 0.7) if small else (default.learning_rate, 0))
    assert config.distinct_texts == small
    assert (config.directions, config.pooling, config.sentences) == ("query_to_doc", None, ())
    assert (config.anchor_column, config.positive_column) == ("query", "document")
    explained = choose_method([file], model=str(settings.get("model", TrainConfig.model))).explain()
    assert ("docs/tables/recipes-pairs-minilm.md" in explained) == small
    assert choose_method(["flickr8k"]).values["start_weight"] == 0.7
    # With a rate of the user's own only the average is left out.
    own = resolve_config(None, {**settings, "learning_rate": 3e-5})
    assert (own.learning_rate, own.start_weight, own.distinct_texts) == (3e-5, 0, small)
    beside = resolve_config(None, {**settings, "sentences": "texts.txt"})
    assert (beside.sentences, beside.start_weight) == (("texts.txt",), config.start_weight)
    assert beside.second_weight == (0.3 if small else 0.1)  # docs/tables/recipes-pairs-sentences-minilm.md
    own = resolve_config(None, {**settings, "sentences": "texts.txt", "second_weight": 0.2})
    assert own.second_weight == 0.2


@pytest.mark.parametrize(("width", "rate"), [(384, 2e-4), (768, 2e-5)])
def test_triplets_and_a_plain_transformers_model(width: int, rate: float, tmp_path: Path) -> None:
    """A start that was not trained on similarity has the recipe of docs/tables/recipes-triplets.md."""
    start = plain_model(tmp_path, width)
    file = table(tmp_path / "triplets.tsv", "query", "document", "hard_neg")
    config = resolve_config(None, {"data": file, "output": "x", "model": start})
    assert isinstance(config, InfoNceConfig)
    assert (config.directions, config.distinct_texts, config.pooling) == ("query_to_doc", True, "cls")
    assert (config.anchor_column, config.positive_column, config.negative_column) == ("query", "document", "hard_neg")
    assert (config.learning_rate, config.dropout) == (rate, 0)
    assert config.sentences == ()  # random words help pairs, but not triplets
    choice = choose_method([file], model=str(start))
    assert "triplets (columns query, document, hard_neg)" in choice.explain()
    assert "docs/tables/recipes-triplets.md" in choice.explain()
    (start / "modules.json").write_text("[]")
    assert (choose_method([file], model=str(start)) == choose_method([file])) == (width == 384)
    assert ("distinct_texts" in choose_method([file], model=str(start)).values) == (width == 384)


@pytest.mark.parametrize(("width", "rate"), [(384, 2e-4), (768, 2e-5)])
def test_labelled_texts_and_a_plain_transformers_model(width: int, rate: float, tmp_path: Path) -> None:
    """A start that was not trained on similarity has the recipe of docs/tables/recipes-labels.md."""
    start = plain_model(tmp_path, width)
    file = table(tmp_path / "labelled.tsv", "text", "kind")
    config = resolve_config(None, {"data": file, "output": "x", "model": start, "label_column": "kind"})
    assert isinstance(config, SupconTextConfig)
    assert (config.temperature, config.epochs, config.pooling, config.dropout) == (0.1, 3, "cls", None)
    assert (config.sentences, config.second_weight, config.learning_rate) == (("own",), 0.1, rate)
    assert (config.label_column, config.start_weight) == ("kind", 0.3 if width == 384 else 0)
    choice = choose_method([file], {"label_column": "kind"}, model=str(start))
    assert "docs/tables/recipes-labels.md" in choice.explain()
    settings = {"data": file, "output": "x", "model": start, "label_column": "kind"}
    for own in ({"lora_rank": 4}, {"learning_rate": 3e-5}):
        changed = resolve_config(None, {**settings, **own})
        assert (changed.start_weight, changed.sentences) == (0, ("own",))
        assert changed.learning_rate == own.get("learning_rate", rate)


@pytest.mark.parametrize("width", [None, 384, 768, "default"])
def test_labelled_texts_and_a_start_trained_on_similarity(width: int | str | None, tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 and others of its hidden size have the recipe of docs/tables/recipes-labels-minilm.md."""
    file = table(tmp_path / "labelled.tsv", "text", "kind")
    settings: dict[str, Any] = {"data": file, "output": "x", "label_column": "kind"}
    settings |= trained_start(tmp_path, width)
    small = width in (384, "default")
    config, default = resolve_config(None, settings), SupconTextConfig(output="x")
    assert isinstance(config, SupconTextConfig)
    assert (config.learning_rate, config.start_weight) == ((2e-4, 0.3) if small else (default.learning_rate, 0))
    assert (config.temperature, config.epochs) == ((0.1, 3) if small else (default.temperature, default.epochs))
    assert (config.sentences, config.second_weight) == ((("own",), 0.1) if small else ((), 0.1))
    assert (config.pooling, config.dropout, config.label_column) == (None, None, "kind")
    given = {"label_column": "kind"}
    explained = choose_method([file], given, model=str(settings.get("model", TrainConfig.model))).explain()
    assert ("docs/tables/recipes-labels-minilm.md" in explained) == small
    # With a rate of the user's own only the average is left out, with a second objective only the sentences.
    own = resolve_config(None, {**settings, "learning_rate": 3e-5})
    assert (own.learning_rate, own.start_weight, own.sentences) == (3e-5, 0, config.sentences)
    second = resolve_config(None, {**settings, "second": "simcse-unsup"})
    assert (second.start_weight, second.sentences) == (config.start_weight, ())


@pytest.mark.parametrize(("width", "rate"), [(384, 2e-4), (768, 2e-5)])
def test_scored_pairs_and_a_plain_transformers_model(width: int, rate: float, tmp_path: Path) -> None:
    """A start that was not trained on similarity has the recipe of docs/tables/recipes-scored.md."""
    start = plain_model(tmp_path, width)
    file = table(tmp_path / "scored.tsv", "score", "one", "two")
    given = {"first_column": "one", "second_column": "two"}
    settings = {"data": file, "output": "x", "model": start, **given}
    config = resolve_config(None, settings)
    assert isinstance(config, RegressionConfig)
    assert (config.objective, config.dropout, config.pooling) == ("cosent", 0, "cls")
    assert (config.batch_size, config.epochs, config.warmup) == (32, 4, 0.1)
    assert (config.first_column, config.second_column, config.learning_rate) == ("one", "two", rate)
    assert (config.sentences, config.second_weight) == (("own",), 0.3)
    assert has_default_batch_size(config)
    own = resolve_config(None, {**settings, "objective": "mse", "epochs": 1})
    assert (own.objective, own.epochs, own.dropout) == ("mse", 1, 0)
    second = resolve_config(None, {**settings, "second": "simcse-unsup"})
    assert (second.sentences, second.dropout, second.second_weight) == ((), None, 0.1)
    assert "docs/tables/recipes-scored.md" in choose_method([file], given, model=str(start)).explain()
    assert choose_method(["stsb-clean"], model=str(start)).values["objective"] == "cosent"


@pytest.mark.parametrize("width", [None, 384, 768, "default"])
def test_scored_pairs_and_a_start_trained_on_similarity(width: int | str | None, tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 and others of its hidden size have the recipe of docs/tables/recipes-scored-minilm.md."""
    file = table(tmp_path / "scored.tsv", "score", "one", "two")
    given = {"first_column": "one", "second_column": "two"}
    settings: dict[str, Any] = {"data": file, "output": "x", **given}
    settings |= trained_start(tmp_path, width)
    small = width in (384, "default")
    config = resolve_config(None, settings)
    assert isinstance(config, RegressionConfig)
    assert (config.learning_rate, config.start_weight) == ((5e-5, 0.3) if small else (2e-5, 0))
    assert (config.objective, config.epochs, config.batch_size) == (("cosent", 4, 32) if small else ("mse", 10, 16))
    assert (config.pooling, config.dropout, config.sentences) == (None, None, ())
    assert (config.first_column, config.second_column) == ("one", "two")
    explained = choose_method([file], given, model=str(settings.get("model", TrainConfig.model))).explain()
    assert ("docs/tables/recipes-scored-minilm.md" in explained) == small
    # With a rate of the user's own only the average is left out, not the objective.
    own = resolve_config(None, {**settings, "learning_rate": 3e-5})
    assert (own.learning_rate, own.start_weight) == (3e-5, 0)
    assert own.objective == ("cosent" if small else "mse")


@pytest.mark.parametrize(("width", "rate"), [(384, 2e-4), (768, 5e-5)])
def test_sentences_and_a_plain_transformers_model(width: int, rate: float, tmp_path: Path) -> None:
    """A start that was not trained on similarity has the recipe of docs/tables/recipes-sentences.md."""
    start = plain_model(tmp_path, width)
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    for file in (str(tmp_path / "lines.txt"), table(tmp_path / "rows.tsv", "body")):
        config = resolve_config(None, {"data": file, "output": "x", "model": start})
        assert isinstance(config, SgOpt1Config)
        assert (config.views, config.dropout, config.batch_size, config.pooling) == ("0-0", 0, 64, "cls")
        assert config.learning_rate == rate
        assert has_default_batch_size(config)
        assert "docs/tables/recipes-sentences.md" in choose_method([file], model=str(start)).explain()
    assert config.text_column == "body"
    assert not has_default_batch_size(replace(config, batch_size=63))
    assert not has_default_batch_size(SgConfig(output="x", batch_size=64))  # no recipe


@pytest.mark.parametrize("width", [None, 384, 768, "default"])
def test_sentences_and_a_start_trained_on_similarity(width: int | str | None, tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 and others of its hidden size have the recipe of docs/tables/recipes-sentences-minilm.md."""
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    settings: dict[str, Any] = {"data": str(tmp_path / "lines.txt"), "output": "x"}
    settings |= trained_start(tmp_path, width)
    small = width in (384, "default")
    config, default = resolve_config(None, settings), SgOpt1Config(output="x")
    assert isinstance(config, SgOpt1Config)
    assert (config.learning_rate, config.start_weight) == ((1e-4, 0.85) if small else (default.learning_rate, 0))
    expected = ("0-0", 0, 64) if small else (default.views, default.dropout, default.batch_size)
    assert (config.views, config.dropout, config.batch_size) == expected
    assert config.pooling == ("own" if small else "cls")
    explained = choose_method([settings["data"]], model=str(settings.get("model", TrainConfig.model))).explain()
    assert ("docs/tables/recipes-sentences-minilm.md" in explained) == small
    own = resolve_config(None, {**settings, "learning_rate": 3e-5})
    assert (own.learning_rate, own.start_weight, own.views) == (3e-5, 0, expected[0])


def test_a_missing_start_is_for_training_to_refuse(tmp_path: Path) -> None:
    """The rows are read first, so their errors come before that of the model."""
    missing = str(tmp_path / "none")
    kinds = ("premise hypothesis label", "anchor positive", "anchor positive negative", "sentence1 sentence2 score")
    for number, columns in enumerate((*kinds, "text label")):
        file = table(tmp_path / f"{number}.tsv", *columns.split())
        choice = choose_method([file], model=missing)
        assert (choice.method, choice.values.get("start_weight")) == (choose_method([file]).method, None)


def test_other_formats(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "a", "label": 1}) + "\n")
    assert choose_method([str(tmp_path / "rows.jsonl")]).method == "supcon-text"
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    assert choose_method([str(tmp_path / "lines.txt")]).method == "sg-opt1"


def test_column_flags_say_what_the_rows_are(tmp_path: Path) -> None:
    file = table(tmp_path / "rows.tsv", "one", "two", "anchor", "positive", "text", "label")
    assert choose_method([file], {"anchor_column": "one", "positive_column": "two"}).values["anchor_column"] == "one"
    assert choose_method([file], {"negative_column": "two"}).columns == ("anchor", "positive", "two")
    assert choose_method([file], {"label_column": "label"}).method == "supcon-text"


@pytest.mark.parametrize(
    ("columns", "settings", "mentions"),
    [
        ("one two", {}, ("its columns (one, two) do not say", "--anchor-column --positive-column (pairs, info-nce)")),
        ("id text", {}, ("do not say what the rows are", "--text-column (sentences, sg-opt1)")),
        ("anchor positive text label", {}, ("can be pairs (anchor, positive) or labelled texts (text, label)",)),
        ("query positive document", {}, ("do not say",)),
        ("sentence1 sentence2 label", {}, ("do not say",)),
        ("anchor positive", {"anchor_column": "nothing"}, ("do not say",)),
    ],
)
def test_unclear_columns_are_listed(
    columns: str, settings: dict[str, str], mentions: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(NearfarError) as caught:
        choose_method([table(tmp_path / "rows.tsv", *columns.split())], settings)
    for mention in (*mentions, "rows.tsv", "nearfar train info-nce"):
        assert mention in str(caught.value)


def test_several_files_are_of_one_kind(tmp_path: Path) -> None:
    first, second = table(tmp_path / "a.tsv", "text", "label"), table(tmp_path / "b.tsv", "question", "answer")
    third = table(tmp_path / "c.tsv", "query", "document")
    assert choose_method([first, first]).method == "supcon-text"
    with pytest.raises(NearfarError, match=r"a\.tsv has labelled texts.*but .*b\.tsv has pairs"):
        choose_method([first, second])
    with pytest.raises(NearfarError, match=r"\(question, answer\), but .*\(query, document\)"):
        choose_method([second, third])


def test_settings_given_override_the_chosen_ones(tmp_path: Path) -> None:
    file = table(tmp_path / "nli.tsv", "premise", "hypothesis", "label")
    config = resolve_config(None, {"data": file, "output": "x", "temperature": 0.5, "hard_negatives": "all"})
    assert (config.temperature, config.hard_negatives, config.data) == (0.5, "all", (file,))  # type: ignore[attr-defined]
    with pytest.raises(NearfarError, match="no key is called 'anchor'"):
        resolve_config(None, {"data": file, "output": "x", "anchor": "a"})
    with pytest.raises(NearfarError, match="name your rows by --data FILE"):
        resolve_config(None, {"output": "x"})


def test_the_help_shows_it_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: nearfar train --data FILE --output RUN")
    assert shown.index("question and answer") < shown.index("sbert:")


def test_the_command_line_refuses_what_it_cannot_choose_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(["train", "--output", "x"], "name your rows by --data FILE")
    assert_refused(["train", "--data", "nowhere.tsv", "--output", "x"], "nowhere.tsv: no such file")
    Path("empty.tsv").write_text("")
    assert_refused(["train", "--data", "empty.tsv", "--output", "x"], "empty.tsv is empty")
    table(tmp_path / "rows.tsv", "one", "two")
    assert_refused(["train", "--data=rows.tsv", "--output", "x"], "do not say what the rows are")
    table(tmp_path / "pairs.tsv", "question", "answer")
    assert_refused(["train", "--data", "pairs.tsv", "--output", "x", "--premise-column", "question"], "do not say")
    assert_refused(["train", "--data", "pairs.tsv", "--output", "x", "--labels", "question"], "no flag is called")


@pytest.mark.parametrize(
    ("columns", "study", "row"),
    [
        (("anchor", "positive"), "recipes-pairs-minilm", "recipe"),
        (("anchor", "positive", "negative"), "recipes-triplets-minilm", "recipe"),
        (("premise", "hypothesis", "label"), "recipes-nli-minilm", "average"),
        (("text", "label"), "recipes-labels-minilm", "recipe"),
        (("sentence1", "sentence2", "score"), "recipes-scored-minilm", "recipe"),
        (("text",), "recipes-sentences-minilm", "recipe"),
    ],
)
def test_a_start_trained_on_similarity_has_what_was_measured(
    columns: tuple[str, ...], study: str, row: str, tmp_path: Path
) -> None:
    """Each setting of the study's row is that of the default, and the default sets nothing else."""
    content = tomllib.loads((ROOT / "studies" / "tables" / f"{study}.toml").read_text(encoding="utf-8"))
    (chosen,) = (one for one in content["rows"] if one["id"] == row)
    measured = {**content["train"], **chosen.get("train", {})}
    if measured["method"] == "simcse-sup":  # on NLI rows; without its layer and length info-nce on their triplets
        assert (measured.pop("mlp"), measured.pop("train_max_length"), measured["pooling"]) == ("none", 128, "own")
        measured |= {"method": "info-nce", "pooling": None}  # where none is the model's own
    file = table(tmp_path / "rows.tsv", *columns)
    choice, config = choose_method([file]), resolve_config(None, {"data": file, "output": "x"})
    assert choice.method == measured.pop("method")
    assert measured.pop("model") == config.model
    of_the_run = {"data", "limit", "precision", "evaluate_on", "evaluate_every", "keep"}
    settings = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in measured.items()
        if name not in of_the_run
    }
    assert {name: getattr(config, name) for name in settings} == settings
    assert {name for name in choice.values if not name.endswith("_column")} <= settings.keys()
