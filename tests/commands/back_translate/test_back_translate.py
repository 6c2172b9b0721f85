"""Back-translation to a file: rows, kills and resumes, and errors."""

import json
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest

import nearfar
import nearfar.commands.back_translate.translator
from nearfar.commands.back_translate import BLOCK
from nearfar.commands.back_translate.translator import load_translator
from nearfar.disk.work import Work
from nearfar.types import NearfarError
from tests.tiny import sentences
from tests.tiny_seq2seq import save_tiny_seq2seq

pytestmark = pytest.mark.long

TEXTS = list(dict.fromkeys(sentences(60, seed=4)))[:40]


def back_translate(texts, output, **settings):
    """Back-translate sentences, or the file of that name."""
    if not isinstance(texts, list):
        return nearfar.back_translate(input=texts, output=output, **settings)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences.txt"
        file.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return nearfar.back_translate(input=file, output=output, **settings)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folders = [save_tiny_seq2seq(tmp_path_factory.mktemp("model"), seed=seed) for seed in (0, 1)]
    return {"forward": folders[0], "backward": folders[1], "max_length": 8, "progress": False}


def rows_of(file):
    lines = file.read_text(encoding="utf-8").split("\n")
    assert (lines[0], lines[-1]) == ("sentence\ttranslation\tpivot", "")
    return [tuple(line.split("\t")) for line in lines[1:-1]]


def metadata_of(file):
    return json.loads((file.parent / f"{file.name}.json").read_text(encoding="utf-8"))


def test_each_sentence_is_translated_forth_and_back(models, tmp_path):
    table = tmp_path / "in.tsv"
    rows = [*TEXTS[:9], TEXTS[0], f"  {TEXTS[1]} "]
    table.write_text("id\ttext\n" + "".join(f"{n}\t{text}\n" for n, text in enumerate(rows)), encoding="utf-8")
    file = back_translate(str(table), tmp_path / "new" / "bt.tsv", **models, column="text", beams=2, batch_size=4)
    plain = back_translate(TEXTS[:9], tmp_path / "plain.tsv", **models, beams=2, batch_size=4)
    assert plain.read_bytes() == file.read_bytes()
    forward, backward = (load_translator(models[way], max_length=8) for way in ("forward", "backward"))
    expected = []
    for text in TEXTS[:9]:
        pivot = forward.translate([text], beams=2)[0]
        if pivot and (translation := backward.translate([pivot], beams=2)[0]):
            expected.append((text, translation, pivot))
    assert rows_of(file) == expected
    assert len({translation for _, translation, _ in expected}) > 3
    metadata = metadata_of(file)
    assert metadata["finished"] == {
        "rows": len(expected),
        "empty": 9 - len(expected),
        "unchanged": 0,
        "bytes": file.stat().st_size,
    }
    assert metadata["settings"] | {"digest": ""} == {
        "forward": str(models["forward"]),
        "backward": str(models["backward"]),
        "beams": 2,
        "temperature": None,
        "seed": None,
        "batch_size": 4,
        "max_length": 8,
        "sentences": 9,
        "digest": "",
    }
    assert len(set(metadata["weights"].values())) == 2
    assert "versions" in metadata["provenance"]


def test_sampling(models, tmp_path):
    def sample(name, **settings):
        return back_translate(TEXTS[:9], tmp_path / f"{name}.tsv", **models, batch_size=3, **settings).read_bytes()

    first = sample("first", temperature=9.0)
    assert first == sample("again", temperature=9.0, seed=1)
    assert first != sample("seed", temperature=9.0, seed=2)
    assert first != sample("cooler", temperature=1.0)
    assert metadata_of(tmp_path / "first.tsv")["settings"]["beams"] is None


def test_batches_are_sampled_by_different_numbers(models, tmp_path):
    texts = [f"a dog runs {'x' * n}" for n in range(12)]  # unknown words become the same token, so all inputs are equal
    file = back_translate(texts, tmp_path / "bt.tsv", **models, batch_size=1, temperature=9.0)
    assert len({row[2] for row in rows_of(file)}) > 8


def test_a_resumed_run_gives_the_same_bytes(models, tmp_path, monkeypatch):
    settings = {**models, "temperature": 9.0, "batch_size": 1}
    whole = back_translate(TEXTS[:12], tmp_path / "whole.tsv", **settings).read_bytes()
    finish_part, blocks = Work.finish_part, []

    def stop(self, part, record):
        finish_part(self, part, record)
        blocks.append(part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Work, "finish_part", stop)
        with pytest.raises(KeyboardInterrupt):
            back_translate(TEXTS[:12], tmp_path / "bt.tsv", **settings)
    assert not (tmp_path / "bt.tsv").exists()
    assert back_translate(TEXTS[:12], tmp_path / "bt.tsv", **settings).read_bytes() == whole
    assert len(blocks) == 1


class FakeTranslator:
    """A translator that upper-cases, returns nothing for some sentences, and can be killed."""

    left = None
    read: ClassVar[list[str]] = []

    def __init__(self, nothing=()):
        self.nothing = nothing

    def translate(self, texts, *, beams, temperature, seed):
        if FakeTranslator.left is not None:
            FakeTranslator.left -= 1
            if FakeTranslator.left < 0:
                raise KeyboardInterrupt
        FakeTranslator.read += texts
        return ["" if text.lower() in self.nothing else text.upper() for text in texts]


@pytest.fixture
def fake(monkeypatch):
    """Sentences 0 to 17 and some others have no translation; blocks are of 8."""
    untranslated = [TEXTS[index] for index in (*range(18), 23, 31, 39)]
    folders = iter(range(10**6))

    def load(folder, **settings):
        return FakeTranslator(untranslated[::2] if next(folders) % 2 == 0 else untranslated[1::2])

    monkeypatch.setattr(FakeTranslator, "left", None)
    monkeypatch.setattr(FakeTranslator, "read", [])
    monkeypatch.setattr(nearfar.commands.back_translate.translator, "load_translator", load)
    monkeypatch.setattr(nearfar.commands.back_translate.translator, "locate_translator", lambda name: name)
    monkeypatch.setattr(nearfar.commands.back_translate.translator, "weights_digest", lambda name: f"weights of {name}")
    return {"batch_size": 1, "progress": False}


def test_empty_translations_are_left_out_and_counted(fake, tmp_path):
    file = back_translate([*TEXTS, "UP"], tmp_path / "bt.tsv", **fake)
    kept = [text for index, text in enumerate(TEXTS) if index not in (*range(18), 23, 31, 39)]
    assert rows_of(file) == [(text, text.upper(), text.upper()) for text in [*kept, "UP"]]
    assert metadata_of(file)["finished"] == {"rows": 20, "empty": 21, "unchanged": 1, "bytes": file.stat().st_size}


def stopped(file, fake, *, batches):
    """Leave the work of a run that was killed after a number of batches in either direction."""
    FakeTranslator.left = batches
    with pytest.raises(KeyboardInterrupt):
        back_translate(TEXTS, file, **fake)
    FakeTranslator.left = None
    assert not file.exists()


def test_killed_while_it_translates(fake, tmp_path):
    whole = back_translate(TEXTS, tmp_path / "whole.tsv", **fake).read_bytes()
    for batches in range(0, 2 * len(TEXTS), 9):
        file = tmp_path / f"{batches}.tsv"
        stopped(file, fake, batches=batches)
        FakeTranslator.read.clear()
        assert back_translate(TEXTS, file, **fake).read_bytes() == whole
        first = batches // (2 * BLOCK) * BLOCK  # of the block that was not finished
        assert set(TEXTS) & set(FakeTranslator.read) == set(TEXTS[first:])
    assert not list(tmp_path.glob("*.partial"))


def test_a_damaged_block_is_translated_again(fake, tmp_path):
    whole = back_translate(TEXTS, tmp_path / "whole.tsv", **fake).read_bytes()
    stopped(tmp_path / "bt.tsv", fake, batches=4 * BLOCK)
    (tmp_path / "bt.tsv.partial/_nearfar/parts/block-000001.json").write_text('{"rows": [["a"]]}')
    assert back_translate(TEXTS, tmp_path / "bt.tsv", **fake).read_bytes() == whole


def test_work_of_other_weights_or_settings_is_refused(fake, tmp_path, monkeypatch):
    file = tmp_path / "bt.tsv"
    stopped(file, fake, batches=2 * BLOCK)
    with pytest.raises(NearfarError, match="--max-length was 128, is 9"):
        back_translate(TEXTS, file, **fake | {"max_length": 9})
    monkeypatch.setattr(nearfar.commands.back_translate.translator, "weights_digest", lambda name: "others")
    with pytest.raises(NearfarError, match="other weights"):
        back_translate(TEXTS, file, **fake)
    (tmp_path / "bt.tsv.partial/_nearfar/plan.json").write_text('{"kind": "nearfar back-translation", "format": 1}')
    with pytest.raises(NearfarError, match=r"plan\.json: is damaged"):
        back_translate(TEXTS, file, **fake)


def test_a_file_that_was_changed(fake, tmp_path):
    file = back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    changed = file.read_text() + "a\tb\tc\n"
    file.write_text(changed)
    with pytest.raises(NearfarError, match=r"bt\.tsv: was changed since it was written; choose another --output"):
        back_translate(TEXTS, file, **fake)
    assert file.read_text() == changed


def test_a_block_is_sorted_by_length(fake, tmp_path):
    back_translate(TEXTS, tmp_path / "bt.tsv", **fake | {"batch_size": 5})
    read = [text for text in FakeTranslator.read if text in TEXTS]
    assert read == sorted(TEXTS, key=len, reverse=True)


def test_a_finished_file_does_not_change(fake, tmp_path, capsys):
    file = back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    FakeTranslator.read.clear()
    back_translate(TEXTS, file, **fake | {"progress": True})
    assert "is already finished (19 rows); nothing to do." in capsys.readouterr().err
    assert not FakeTranslator.read


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (TEXTS, {"forward": "other/model"}, "--forward was Helsinki-NLP/opus-mt-en-de, is other/model. Give"),
        (TEXTS, {"batch_size": 2, "max_length": 9}, "--batch-size was 1, is 2; --max-length was 128, is 9"),
        (
            TEXTS,
            {"temperature": 0.5},
            "--beams was 5, is not given; --temperature was not given, is 0.5; --seed was not given, is 1",
        ),
        (TEXTS[:-1], {}, "the number of texts changed; the texts of --input changed"),
        (TEXTS[::-1], {}, "different inputs or settings: the texts of --input changed"),
    ],
)
def test_other_settings_are_refused(fake, tmp_path, texts, settings, message):
    file = back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    before = file.read_bytes()
    with pytest.raises(NearfarError, match=message):
        back_translate(texts, file, **fake | settings)
    assert file.read_bytes() == before
    file.unlink()
    back_translate(texts, file, **fake | settings)  # without the file, new settings are fine


def test_files_of_other_programs(fake, tmp_path):
    other_file = tmp_path / "mine.tsv"
    other_file.write_text("precious\n")
    with pytest.raises(NearfarError, match=r"without mine\.tsv\.json"):
        back_translate(TEXTS, other_file, **fake)
    (tmp_path / "bt.tsv.json").write_text("[]")
    with pytest.raises(NearfarError, match="was not written by nearfar back-translate"):
        back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    (tmp_path / "bt.tsv.json").write_text("{")
    with pytest.raises(NearfarError, match="is not a complete JSON file"):
        back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    assert other_file.read_text() == "precious\n"


@pytest.mark.parametrize("finished", [{}, {"finished": []}, {"finished": {"bytes": 1}}, {"finished": {"bytes": "1"}}])
def test_metadata_without_its_counts_is_damaged(fake, tmp_path, finished):
    file = back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    metadata = {name: value for name, value in metadata_of(file).items() if name != "finished"}
    (tmp_path / "bt.tsv.json").write_text(json.dumps(metadata | finished))
    with pytest.raises(NearfarError, match=r"bt\.tsv\.json: is damaged\. Remove it and bt\.tsv to start again"):
        back_translate(TEXTS, file, **fake)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 3, "temperature": 0.5}, "--beams 3 and --temperature 0.5"),
        ({"output": "bt.txt"}, r"must be a file that ends in \.tsv"),
        ({"column": "text"}, r"sentences\.txt"),
        ({"texts": []}, r"sentences\.txt: holds no texts"),
        ({"texts": "table.tsv"}, r"table\.tsv: is a table; name the column with the sentences by --column"),
    ],
)
def test_errors(fake, tmp_path, settings, message):
    given = {"texts": TEXTS, "output": tmp_path / "bt.tsv"} | fake | settings
    with pytest.raises(NearfarError, match=message):
        back_translate(**given)
    assert not list(tmp_path.iterdir())
