"""geometry from models and files to measures, notes and plots; measures against evaluate and plain formulas."""

from pathlib import Path

import numpy as np
import pytest

from nearfar import Encoder, NearfarError
from nearfar.cli import main
from nearfar.commands.evaluate import evaluate
from nearfar.commands.geometry import geometry
from nearfar.commands.geometry import inputs as module
from nearfar.evaluation.results import GeometryResult, PlottedTexts
from nearfar.evaluation.tables import result_markdown
from nearfar.types import ScoredPair
from tests.tiny import make_workspace, save_tiny, write_labelled, write_pairs

pytestmark = pytest.mark.long


def letters(texts):
    """Counts of the letters a to z: similar strings have similar vectors."""
    return np.array([[text.count(chr(97 + n)) for n in range(26)] for text in texts], dtype=np.float32)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two tiny encoders, scored pairs and labelled texts, and no other data."""
    make_workspace(tmp_path)
    save_tiny(tmp_path / "other", seed=1)
    write_pairs(tmp_path / "task.tsv", seed=8)
    write_labelled(tmp_path / "labelled.tsv", ["bad", "good", "good"] * 4)
    monkeypatch.chdir(tmp_path)
    for name in ("load_pairs", "load_task", "load_labelled"):
        load = getattr(module, name)

        def load_local(spec, load=load):
            if spec.split(":")[0] in ("stsb", "sst2"):
                raise NearfarError(f"{spec} is nowhere.")
            return load(spec)

        monkeypatch.setattr(module, name, load_local)
    return tmp_path


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable plots."""
    monkeypatch.setattr("nearfar.commands.geometry._draw", lambda *_: [])


OWN = {"pairs": "pairs.tsv", "task": "task.tsv", "labelled": "labelled.tsv", "positive_above": 1.0, "progress": False}
FLAGS = "--pairs pairs.tsv --task task.tsv --labelled labelled.tsv --positive-above 1".split()


def read(file: str) -> list[tuple[float, str, str]]:
    lines = [line.split("\t") for line in Path(file).read_text(encoding="utf-8").splitlines()[1:]]
    return [(float(score), first, second) for score, first, second in lines]


def test_from_flags_to_files(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["geometry", "tiny", str(workspace / "other"), "--output", "out", *FLAGS]) == 0
    names = ["spectrum.png", "layers-1.png", "layers-2.png", "pairs.png", "labels.png"]
    assert {path.name for path in Path("out").iterdir()} == {*names, "geometry.json", "geometry.md"}
    assert all(Path("out", name).read_bytes().startswith(b"\x89PNG") for name in names)
    result = GeometryResult.load("out/geometry.json")
    assert (result.schema, result.kind, result.plots, result.unavailable) == (1, "geometry", names, {})
    assert result.labelled == PlottedTexts(spec="labelled.tsv", texts=12, labels=["bad", "good"])
    assert Path("out/geometry.md").read_text(encoding="utf-8") == result_markdown(result)
    printed = capsys.readouterr().out
    for shown in ("Geometry on pairs.tsv", "best layer on task.tsv", f"{result.models['tiny'].uniformity:.3f}"):
        assert shown in printed


def test_measures_use_distinct_texts_and_positive_pairs(workspace: Path, no_plots: None) -> None:
    rows = read("pairs.tsv")
    first = rows[0]
    with Path("pairs.tsv").open("a", encoding="utf-8") as file:
        file.write(f"3\t{first[1]}\t{rows[1][1]}\n")  # repeated texts
    result = geometry("tiny", output="out", **OWN)
    rows = read("pairs.tsv")
    texts = sorted({text for row in rows for text in row[1:]})
    assert len(texts) < 2 * len(rows)
    x = Encoder.from_pretrained("tiny").encode(texts, normalize=True).astype(np.float64)
    cosines = x @ x.T
    off_diagonal = ~np.eye(len(texts), dtype=bool)
    positives = [(texts.index(a), texts.index(b)) for score, a, b in rows if score > 1]
    assert 1 < len(positives) < len(rows)
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(cosines)[::-1], 0))
    model = result.models["tiny"]
    assert model.alignment == pytest.approx(np.mean([2 - 2 * cosines[i, j] for i, j in positives]), abs=1e-5)
    assert model.uniformity == pytest.approx(np.log(np.exp(-2 * (2 - 2 * cosines[off_diagonal])).mean()), abs=1e-5)
    assert model.mean_cosine == pytest.approx(cosines[off_diagonal].mean(), abs=1e-5)
    assert model.spectrum[:20] == pytest.approx((singular / singular[0])[:20], abs=1e-5)
    assert 1 < model.effective_rank < 32
    assert np.exp(-2) < model.isotropy < 1
    assert (model.dim, model.pooling, model.warning) == (32, "mean", None)
    pairs_info = result.pairs
    assert (pairs_info.pairs, pairs_info.positives, pairs_info.texts) == (len(rows), len(positives), len(texts))
    assert pairs_info.instead_of is None


def test_scores_of_layers_equal_evaluations_with_that_pooling(workspace: Path, no_plots: None) -> None:
    layers = geometry(["tiny"], output="out", **OWN).models["tiny"].layers
    assert {pooling: len(scores) for pooling, scores in layers.items()} == {"cls": 3, "mean": 3, "max": 3}
    assert layers["cls"][0] is None  # at the embedding layer all [CLS] vectors are equal
    for layer, pooling in ((0, "max"), (1, "cls"), (1, "mean"), (2, "max")):
        scored = evaluate("tiny", tasks="task.tsv", pooling=f"layer:{layer}:{pooling}", resamples=0, progress=False)
        expected = scored.tasks["task.tsv"].spearman.all.score
        assert layers[pooling][layer] == pytest.approx(expected, abs=0.01)
    assert len({score for scores in layers.values() for score in scores}) > 5


def test_without_data_a_message_is_printed_and_generated_pairs_are_measured(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geometry", "tiny", "--output", "out"]) == 0
    result = GeometryResult.load("out/geometry.json")
    assert result.plots == ["spectrum.png"]
    assert list(result.unavailable) == ["stsb:dev", "stsb", "sst2:test"]
    assert (result.pairs.spec, result.pairs.instead_of) == ("microworld:dev", "stsb:dev")
    assert result.task is result.labelled is result.models["tiny"].layers is None
    printed = " ".join(capsys.readouterr().out.split())
    page = " ".join(Path("out/geometry.md").read_text(encoding="utf-8").split())
    for line in ("NOT computed on stsb:dev", "Left out: sst2:test. sst2:test is nowhere.", "--pairs with a file"):
        assert line in printed
        assert line in page


@pytest.mark.parametrize("flag", ["pairs", "task", "labelled"])
def test_a_missing_named_set_raises_before_encoding(workspace: Path, flag: str) -> None:
    with pytest.raises(NearfarError, match="nowhere"):
        geometry({"f": lambda texts: pytest.fail("encoded")}, output="out", **{**OWN, flag: "nowhere.tsv"})


def test_sets_without_measurable_data_raise(workspace: Path) -> None:
    with pytest.raises(NearfarError, match=r"pairs\.tsv: no pair has a score above --positive-above 5; the highest"):
        geometry("tiny", output="out", **{**OWN, "positive_above": 5.0})
    Path("few.tsv").write_text("score\tsentence1\tsentence2\n5\ta\tb\n0\tc\td\n2\te\te\n5\tg\th\n")
    with pytest.raises(NearfarError, match=r"few\.tsv: 3 pairs of two different texts; a plot of pairs needs 4"):
        geometry("tiny", output="out", **{**OWN, "pairs": "few.tsv"})


def test_extremes_are_sampled_among_equal_scores() -> None:
    pairs = [ScoredPair(f"a{n}", f"b{n}", [0.0, 2.5, 5.0][n % 3]) for n in range(150)] + [ScoredPair("c", "c", 9.0)]
    chosen = [module._extremes(pairs, "p", seed) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    most, least = chosen[0]
    assert (len(set(most)), len(set(least))) == (20, 20)
    assert ({pair.score for pair in most}, {pair.score for pair in least}) == ({5.0}, {0.0})
    most, least = module._extremes(pairs[:9], "p", 0)
    assert len({*most, *least}) == 2 * len(most) == 8


def test_labelled_texts_are_the_first_rows_or_spread_over_a_sorted_file(workspace: Path, no_plots: None) -> None:
    seen: list[str] = []
    geometry({"f": lambda texts: seen.extend(texts) or letters(texts)}, output="out", **OWN, labelled_limit=5)
    assert [text.split()[-1] for text in seen[-5:]] == ["0", "1", "2", "3", "4"]
    write_labelled(workspace / "sorted.tsv", ["x"] * 30 + ["y"] * 11)
    options = {**OWN, "labelled": "sorted.tsv", "labelled_limit": 5}
    result = geometry({"f": lambda texts: seen.extend(texts) or letters(texts)}, output="out", **options)
    assert [text.split()[-1] for text in seen[-5:]] == ["0", "10", "20", "30", "40"]
    assert result.labelled == PlottedTexts(spec="sorted.tsv", texts=5, labels=["x", "y"])


def test_a_function_has_no_layers_and_no_settings(workspace: Path, no_plots: None) -> None:
    result = geometry({"letters": letters, "tiny": "tiny"}, output="out", **OWN)
    assert result.models["letters"].layers is None
    assert result.models["tiny"].layers is not None
    assert (result.models["letters"].pooling, result.models["letters"].dim) == (None, 26)
    with pytest.raises(NearfarError, match="pooling is a setting"):
        geometry({"letters": letters}, output="out", **OWN, pooling="mean")
    with pytest.raises(NearfarError, match=r"flat: returned shape \(3,\)"):
        geometry({"flat": lambda texts: np.zeros(3)}, output="out", **OWN)


def test_pooling_of_all_models_and_a_run_folder(workspace: Path, no_plots: None) -> None:
    (workspace / "run").mkdir()
    (workspace / "tiny").rename(workspace / "run" / "model")
    (workspace / "run" / "run.json").write_text("{}")
    result = geometry(["run", "other"], output="out", **OWN, pooling="layer:1:max")
    assert [model.pooling for model in result.models.values()] == ["layer:1:max"] * 2
    other = Encoder.from_pretrained("other", pooling="layer:1:max").encode
    again = geometry({"function": other}, output="out", **OWN).models["function"]
    assert result.models["other"].isotropy == pytest.approx(again.isotropy, abs=1e-4)


def test_a_collapsed_space_is_reported(workspace: Path, no_plots: None) -> None:
    result = geometry({"flat": lambda texts: np.ones((len(texts), 8))}, output="out", **OWN)
    assert "flat: The embeddings have collapsed" in result_markdown(result)
