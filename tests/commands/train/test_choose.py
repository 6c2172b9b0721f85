"""Arguments of nearfar.train; without a method, the columns of the rows choose it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nearfar import InfoNceConfig, SclConfig
from nearfar.cli import main
from nearfar.commands.train.choose import choose_method, resolve_config
from nearfar.commands.train.recipes import FROM_RAW
from nearfar.data.named_sets import VOCABULARY
from nearfar.encoder.encoder import Encoder
from nearfar.types import NearfarError
from tests.tiny import save_tiny

SCL = SclConfig(output="runs/a", data=("my.tsv",))


@pytest.mark.parametrize("data", ["my.tsv", Path("my.tsv"), ["my.tsv"], ("my.tsv",), [Path("my.tsv")]])
def test_a_method_by_name_with_data_in_any_form(data: Any) -> None:
    assert resolve_config("scl", {"data": data, "output": Path("runs/a")}) == SCL
    assert resolve_config(SclConfig(output="runs/a"), {"data": data}) == SCL
    assert resolve_config(SCL, {}) is SCL


def test_settings_override_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('method = "info-nce"\ndata = ["a.tsv"]\ntemperature = 0.1\nseed = 3\n')
    expected = InfoNceConfig(output="x", data=("b.tsv",), temperature=0.1, seed=4)
    assert resolve_config(file, {"output": "x", "data": "b.tsv", "seed": 4}) == expected


ROOT = Path(__file__).parents[3]


def table(file: Path, *columns: str) -> str:
    file.write_text("\t".join(columns) + "\n" + "\t".join(f"a {column}" for column in columns) + "\n")
    return str(file)


def plain_model(folder: Path, width: int | None) -> Path:
    """A plain transformers model of this hidden size, or of none."""
    start = folder / "start"
    start.mkdir()
    (start / "config.json").write_text(json.dumps({} if width is None else {"hidden_size": width}))
    return start


@pytest.mark.parametrize(
    ("columns", "method", "values"),
    [
        ("anchor positive", "info-nce", {"anchor_column": "anchor", "positive_column": "positive"}),
        ("id anchor positive negative", "info-nce", {"negative_column": "negative"}),
        ("query positive", "info-nce", {"anchor_column": "query", "positive_column": "positive"}),
        ("sent0 sent1 hard_neg", "info-nce", {"anchor_column": "sent0", "negative_column": "hard_neg"}),
        ("anchor positive negative positive_score negative_score", "teacher-scores", {"negative_column": "negative"}),
        ("query pos neg pos_scores neg_scores", "teacher-scores", {"positive_column": "pos", "negative_column": "neg"}),
        ("anchor positive score", "info-nce", {}),
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


RAW = {"distinct_texts": True, "directions": "both", "pooling": "cls", "dropout": 0.0}
RAW_BESIDE = {"sets": ({"data": [VOCABULARY], "weight": 0.3},)}
RATE = {"learning_rate": 2e-4}
SIMILAR, AVERAGE = {"distinct_texts": True}, {"learning_rate": 4e-4, "start_weight": 0.7}
TEXTS = {"sets": ({"data": ["texts.txt"]},)}


@pytest.mark.parametrize(
    ("similar", "width", "given", "expected"),
    [
        (True, 384, {}, SIMILAR | AVERAGE),
        (True, 32, {"learning_rate": 3e-5}, SIMILAR),  # the average belongs to the recipe's learning rate
        (True, 384, {"lora_rank": 4}, SIMILAR),  # adapters cannot be averaged with the start
        (True, 384, TEXTS, SIMILAR | AVERAGE),
        (True, 768, TEXTS, {}),  # wider than what the recipe was measured for
        (False, 384, {}, RAW | RAW_BESIDE | RATE),
        (False, 32, {"lora_rank": 4}, RAW | RAW_BESIDE | RATE),
        (False, 384, TEXTS, RAW | RATE),
        (False, 768, {}, RAW | RAW_BESIDE),
        (False, None, {}, RAW | RAW_BESIDE),
        # The method of a further set may need dropout.
        (
            *(False, 384, {"sets": ({"method": "simcse-unsup"},)}),
            {name: RAW[name] for name in RAW if name != "dropout"} | RATE,
        ),
    ],
)
def test_the_start_and_what_the_user_sets_choose_the_settings(
    similar: bool, width: int | None, given: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    """Of pairs; tests/docs/test_recommended.py has the recipes of all rows."""
    start = plain_model(tmp_path, width)
    if similar:
        (start / "modules.json").write_text("[]")
    file = table(tmp_path / "rows.tsv", "query", "document")
    common = {"data": (file,), "output": "x", "model": str(start), **given}
    columns = {"anchor_column": "query", "positive_column": "document"}
    assert resolve_config(None, common) == InfoNceConfig(**{**columns, **expected, **common})
    if not given:
        page = "with the settings of docs/measured/pairs.md" in choose_method([file], model=str(start)).explain()
        assert page == (width == 384 or not similar)


@pytest.mark.parametrize(
    ("rows", "given", "epochs", "few"),
    [
        (96, {}, 20, True),
        (999, {}, 8, True),
        (1000, {}, 8, False),
        (4000, {}, 3, False),
        (4000, {"limit": 50}, 20, True),
    ],
)
def test_few_labelled_texts_are_trained_on_more_often(
    rows: int, given: dict[str, Any], epochs: int, few: bool, tmp_path: Path
) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("text\tlabel\n" + "".join(f"text {row}\t{row % 2}\n" for row in range(rows)))
    choice = choose_method([str(file)], given)
    assert (choice.values["epochs"], "sets" not in choice.values) == (epochs, few)
    assert ("docs/guides/classify.md" in choice.explain()) == few
    plain = choose_method([str(file)], given, model=str(plain_model(tmp_path, 384)))
    assert plain.values == dict(FROM_RAW["labelled texts"].values) | {"learning_rate": 2e-4, "epochs": epochs}


@pytest.mark.parametrize(
    ("rows", "given", "few"),
    [(1999, {}, True), (2000, {}, False), (4000, {"limit": 300}, True), (300, {"learning_rate": 1e-5}, True)],
)
def test_few_pairs_are_passed_more_often(rows: int, given: dict[str, Any], few: bool, tmp_path: Path) -> None:
    file = tmp_path / "rows.tsv"
    file.write_text("question\tanswer\n" + "".join(f"question {row}\tanswer {row}\n" for row in range(rows)))
    choice = choose_method([str(file)], given)
    assert choice.rows == ("few pairs" if few else "pairs")
    rate = None if "learning_rate" in given else 2e-4 if few else 4e-4
    assert (choice.values.get("epochs"), choice.values.get("learning_rate")) == (5 if few else None, rate)
    plain = choose_method([str(file)], given, model=str(plain_model(tmp_path, 384)))
    assert plain.values.items() >= FROM_RAW["pairs"].values.items()


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


def test_column_flags_say_what_the_rows_are(tmp_path: Path) -> None:
    file = table(tmp_path / "rows.tsv", "one", "two", "anchor", "positive", "text", "label")
    assert choose_method([file], {"anchor_column": "one", "positive_column": "two"}).values["anchor_column"] == "one"
    assert choose_method([file], {"negative_column": "two"}).columns == ("anchor", "positive", "two")
    assert choose_method([file], {"label_column": "label"}).method == "supcon-text"


@pytest.mark.parametrize(
    ("columns", "settings", "mention"),
    [
        ("one\ttwo", {}, r"its columns \(one, two\) do not say.*--anchor-column NAME --positive-column NAME \(pairs"),
        ("anchor\tpositive\ttext\tlabel", {}, r"can be pairs \(anchor, positive\) or labelled texts \(text, label\)"),
        ("How do I reset it ?\tBy the blue switch .", {}, "If its first line is a row already, write a line"),
    ],
)
def test_unclear_columns_are_listed(columns: str, settings: dict[str, str], mention: str, tmp_path: Path) -> None:
    with pytest.raises(NearfarError, match=rf"rows\.tsv.*{mention}"):
        choose_method([table(tmp_path / "rows.tsv", *columns.split("\t"))], settings)


def test_several_files_are_of_one_kind(tmp_path: Path) -> None:
    first, second = table(tmp_path / "a.tsv", "text", "label"), table(tmp_path / "b.tsv", "question", "answer")
    assert choose_method([first, first]).method == "supcon-text"
    with pytest.raises(NearfarError, match=r"a\.tsv has labelled texts.*but .*b\.tsv has pairs"):
        choose_method([first, second])


def test_settings_given_override_the_chosen_ones(tmp_path: Path) -> None:
    file = table(tmp_path / "nli.tsv", "premise", "hypothesis", "label")
    config = resolve_config(None, {"data": file, "output": "x", "temperature": 0.5, "hard_negatives": "all"})
    assert (config.temperature, config.hard_negatives, config.data) == (0.5, "all", (file,))  # type: ignore[attr-defined]
    with pytest.raises(NearfarError, match="name your rows by --data FILE"):
        resolve_config(None, {"output": "x"})
    with pytest.raises(NearfarError, match="scl-finetune fine-tunes a classifier; use nearfar finetune"):
        resolve_config("scl-finetune", {"output": "x"})


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
