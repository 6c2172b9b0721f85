"""geometry --page: from a file of texts and models to a page, without any other data; and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

from nearfar import Encoder, NearfarError
from nearfar.cli import main
from nearfar.commands.geometry import geometry
from nearfar.commands.geometry.inputs import PageTexts, load_page_texts
from nearfar.config.encoding import GeometryConfig
from nearfar.evaluation.results import ExplorerPage, GeometryResult
from nearfar.evaluation.schema import result_schema
from tests.evaluation.explorer.pages import sorted_neighbours
from tests.evaluation.explorer.test_page import array, read_page
from tests.json_schema import problem
from tests.tiny import make_workspace, save_tiny, sentences

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny encoders, scored pairs, and 40 texts with other columns."""
    folder = tmp_path_factory.mktemp("explorer")
    make_workspace(folder)
    save_tiny(folder / "other", seed=1)
    lines = [f"{text}\t{'ab'[i % 2]}\t{i / 4}\tid{i}" for i, text in enumerate(distinct(40))]
    (folder / "texts.tsv").write_text("text\tkind\tsize\tid\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def workspace(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for entry in prepared.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    return tmp_path


def distinct(count: int) -> list[str]:
    return list(dict.fromkeys(sentences(3 * count, longest=8)))[:count]


def loaded(spec: str, *, column: str | None = None, limit: int = 50, seed: int = 0) -> PageTexts:
    return load_page_texts(GeometryConfig(texts=spec, page="p.html", column=column, texts_limit=limit, seed=seed))


def test_a_page_needs_no_other_data(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("geometry tiny other --texts texts.tsv --page page.html --color-by kind".split()) == 0
    assert sorted(path.name for path in workspace.iterdir() if not path.is_symlink()) == ["page.html"]
    _, data = read_page(Path("page.html"))
    assert data["models"] == ["tiny", "other"]
    assert data["texts"] == distinct(40)
    kinds = {"kind": "categories", "size": "numbers", "id": "values"}
    assert {one["name"]: one["kind"] for one in data["columns"]} == kinds
    assert data["colorBy"] == "kind"
    for side, model in enumerate(("tiny", "other")):
        vectors = Encoder.from_pretrained(model).encode(distinct(40), normalize=True)
        near, far, _ = sorted_neighbours(vectors, range(40))
        assert array(data["nearest"][side]["ids"], "<u2").reshape(40, 10).tolist() == near.tolist()
        assert array(data["farthest"][side]["ids"], "<u2").reshape(40, 5).tolist() == far.tolist()
    printed = " ".join(capsys.readouterr().out.split())
    average = array(data["change"], "<f4").mean()
    assert 0 < average < 1
    assert f"From tiny to other, the neighbourhood of a text changes by {average:.0%} on average" in printed
    assert "Wrote page.html: 40 texts of texts.tsv. Open it in a browser; it needs no network." in printed


def test_a_page_and_measures_together(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearfar.commands.geometry._draw", lambda *_: [])
    argv = "geometry tiny --texts texts.tsv --page page.html --output out --pairs pairs.tsv --task pairs.tsv"
    assert main([*argv.split(), "--positive-above", "1"]) == 0
    result = GeometryResult.load("out/geometry.json")
    assert result.page == ExplorerPage(
        file="page.html", spec="texts.tsv", texts=40, models=["tiny"], compared=10, mean_change=None, notes=[]
    )
    assert result.models["tiny"].uniformity < 0
    schema = result_schema()
    assert problem(json.loads(Path("out/geometry.json").read_text(encoding="utf-8")), schema) is None
    printed = capsys.readouterr().out
    assert "Geometry on pairs.tsv" in printed
    assert "Wrote page.html" in printed
    _, data = read_page(Path("page.html"))
    assert len(data["nearest"]) == 1
    assert "change" not in data


def test_functions_of_different_widths(workspace: Path) -> None:
    def letters(texts):
        return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])

    def lengths(texts):
        return np.array([[len(text), text.count(" "), 1] for text in texts])

    result = geometry({"letters": letters, "lengths": lengths}, texts="texts.tsv", page="p.html", progress=False)
    assert isinstance(result, ExplorerPage)
    assert result.models == ["letters", "lengths"]
    with pytest.raises(NearfarError, match=r"f: returned shape \(3, 2\) for 40 texts"):
        geometry({"f": lambda texts: np.ones((3, 2))}, texts="texts.tsv", page="q.html", progress=False)


def test_a_random_sample_of_more_texts_than_the_limit(workspace: Path) -> None:
    found = loaded("texts.tsv", limit=15, seed=3)
    assert found.notes(3) == ["15 of 40 distinct texts are shown, a random sample (seed 3)."]
    chosen = [distinct(40).index(text) for text in found.texts]
    assert (len(set(chosen)), chosen) == (15, sorted(chosen))
    assert found.columns["size"] == [str(i / 4) for i in chosen]
    assert loaded("texts.tsv", limit=15, seed=3).texts == found.texts
    assert loaded("texts.tsv", limit=15, seed=4).texts != found.texts


def test_repeated_texts_are_shown_once(workspace: Path) -> None:
    Path("texts.csv").write_text('text,n\na dog,1\n"a  dog",2\n"a cat, or two",3\na dog,4\n', encoding="utf-8")
    found = loaded("texts.csv")
    assert found.texts == ["a dog", "a cat, or two"]
    assert found.columns == {"n": ["1", "3"]}
    assert found.notes(0) == ["2 of 4 texts are repetitions; each distinct text is shown once."]


def test_values_of_any_type_become_text_and_lists_are_left_out(workspace: Path) -> None:
    rows = [
        {"body": "one", "n": 1, "x": 0.5, "flag": True, "none": None, "list": [1, 2]},
        {"body": "two", "n": 2, "x": float("nan"), "flag": False, "none": "some", "list": [3]},
    ]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = loaded("rows.jsonl", column="body")
    assert found.columns == {"n": ["1", "2"], "x": ["0.5", ""], "flag": ["true", "false"], "none": ["", "some"]}


def test_named_sets_and_generated_texts(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(loaded("microworld:test").texts) == 50
    folder = Path("data/nli/SNLI")
    folder.mkdir(parents=True)
    row = "a dog\ta cat\tneutral\n"
    (folder / "dev.tsv").write_text(f"premise\thypothesis\tlabel\n{row}", encoding="utf-8")
    (folder / "test.tsv").write_text(f"premise\thypothesis\tlabel\textra\n{row[:-1]}\tx\na man\ta dog\tneutral\ty\n")
    monkeypatch.setenv("NEARFAR_DATA", "data")
    found = loaded("snli:dev+test")
    assert found.texts == ["a dog", "a cat", "a man"]
    assert found.columns == {"label": ["neutral"] * 3}
    assert (found.rows, found.distinct) == (6, 3)


PAGE = "geometry tiny --page new.html"
REFUSED = {
    # id: command, message
    "a page that exists": ("geometry tiny --page there.html --texts texts.tsv", "--page there.html: exists; replace"),
    "a column that is missing": (f"{PAGE} --texts texts.tsv --column txt", "--texts texts.tsv: has no column 'txt'"),
    "no column of texts": (f"{PAGE} --texts pairs.tsv", "Name the column of the texts with --column"),
    "a colour of too many values": (f"{PAGE} --texts texts.tsv --color-by id", "with at most 30 different values"),
    "one text": (f"{PAGE} --texts one.txt", "holds a single text, 'same'; the page needs at least two"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_a_model_is_opened(
    workspace: Path, case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.html").write_text("mine", encoding="utf-8")
    Path("one.txt").write_text("same\nsame\n", encoding="utf-8")
    monkeypatch.setattr(Encoder, "from_pretrained", None)
    before = sorted(path.name for path in workspace.iterdir())
    command, message = REFUSED[case]
    assert main(command.split()) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in workspace.iterdir()) == before
    assert Path("there.html").read_text(encoding="utf-8") == "mine"
