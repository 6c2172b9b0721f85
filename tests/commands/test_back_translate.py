"""Back-translation to a file: translators, rows, kills and resumes, and errors."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import transformers

import nearfar
from nearfar.commands import back_translate as module
from nearfar.commands.back_translate import BLOCK
from nearfar.commands.back_translate import translator as translator_module
from nearfar.commands.back_translate.translator import load_translator, locate_translator
from nearfar.encoder import weights
from nearfar.types import NearfarError
from tests.tiny import save_tiny, sentences
from tests.tiny_seq2seq import save_tiny_fsmt, save_tiny_seq2seq, use_sacremoses

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_seq2seq(tmp_path_factory.mktemp("t5"))


@pytest.mark.parametrize("architecture", ["t5", pytest.param("marian", marks=pytest.mark.nightly)])
def test_batched_beam_search_equals_each_text_alone(architecture, tmp_path):
    save_tiny_seq2seq(tmp_path, architecture=architecture)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    config = transformers.GenerationConfig(
        max_length=13, num_beams=3, bad_words_ids=[[1]], decoder_start_token_id=2, eos_token_id=2, pad_token_id=1
    )
    if architecture != "t5":
        config.forced_eos_token_id = 2
    texts = sentences(7, longest=8)
    expected = []
    model.generation_config = config
    for text in texts:
        tokens = tokenizer(text, return_tensors="pt")
        written = model.generate(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
        expected.append(tokenizer.decode(written[0], skip_special_tokens=True))
    assert load_translator(tmp_path, max_length=12).translate(texts, beams=3) == expected
    assert len(set(expected)) > 1
    assert all(expected)


def test_wmt19_models_translate_batched_texts_as_each_text_alone(tmp_path, monkeypatch):
    use_sacremoses(monkeypatch)
    folder = save_tiny_fsmt(tmp_path / "en-de")
    translator = load_translator(folder, max_length=12)
    texts = ["a dog runs", "the cat", "two birds see the river by the hill"]
    alone = [translator.translate([text], beams=4)[0] for text in texts]
    assert translator.translate(texts, beams=4) == alone
    assert len(set(alone)) > 1
    assert translator.translate(texts[:1], beams=100) != translator.translate(texts[:1], beams=1)
    assert translator.translate(texts[:1], temperature=5.0) != translator.translate(texts[:1], temperature=5.0, seed=1)
    (folder / "merges.txt").unlink()
    with pytest.raises(NearfarError, match="en-de"):
        load_translator(folder, max_length=12)


def test_sampling_uses_the_full_softmax_at_the_temperature(tmp_path):
    save_tiny_seq2seq(tmp_path, scale=1.0)
    translator = load_translator(tmp_path, max_length=3)
    translator.model.generation_config.update(top_k=2, top_p=0.3)  # must be overridden
    temperature, count = 0.7, 4000
    model, tokenizer = translator.model, translator.tokenizer
    tokens = tokenizer("the dog runs", return_tensors="pt")
    with torch.no_grad():
        logits = model(**tokens, decoder_input_ids=torch.tensor([[2]])).logits[0, 0]
    logits[1] = -torch.inf  # suppressed by the model's generation config
    probabilities = torch.softmax(logits / temperature, dim=0)
    firsts = Counter()
    for seed in range(4):
        written = translator.translate(["the dog runs"] * (count // 4), temperature=temperature, seed=seed)
        firsts.update(text.split()[0] if text else "" for text in written)
    words = tokenizer.convert_ids_to_tokens(range(len(logits)))
    compared = [token for token in range(4, len(logits)) if probabilities[token] > 0.01]
    assert len(compared) > 6
    for token in compared:
        # special tokens are removed, so the word may also come after them
        assert firsts[words[token]] / count == pytest.approx(probabilities[token].item(), abs=0.035)


def test_sampling_is_seeded_and_leaves_the_random_state(folder):
    translator, texts = load_translator(folder, max_length=9), sentences(5)
    state = torch.get_rng_state()
    first, again, other = (translator.translate(texts, temperature=9.0, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(state, torch.get_rng_state())
    cold = translator.translate(texts, temperature=1e-4)
    assert cold == translator.translate(texts, beams=1) != first


def test_lengths_are_truncated(folder):
    translator = load_translator(folder, max_length=5)
    long = "a dog sees " * 40
    assert translator.translate([long]) == translator.translate(["a dog sees a dog sees"])
    assert len(translator.translate([long])[0].split()) <= 5
    assert load_translator(folder, max_length=500).max_length == 61
    assert translator.translate([]) == []


def test_an_encoder_is_not_a_translator(tmp_path):
    with pytest.raises(NearfarError, match="has no translation model of the model type 'bert'"):
        load_translator(save_tiny(tmp_path), max_length=9)


@pytest.mark.parametrize(("forced", "start", "refused"), [(None, 2, True), (7, 2, False), (None, 8, False)])
def test_a_multilingual_model_needs_a_target_language(folder, monkeypatch, forced, start, refused):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.src_lang = "en"
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda folder, **_: tokenizer)
    whole = transformers.T5ForConditionalGeneration.from_pretrained

    def load(*arguments, **flags):
        model, info = whole(*arguments, **flags)
        model.generation_config.update(forced_bos_token_id=forced, decoder_start_token_id=start)
        return model, info

    monkeypatch.setattr(transformers.AutoModelForSeq2SeqLM, "from_pretrained", load)
    if refused:
        with pytest.raises(NearfarError, match="translates between many languages"):
            load_translator(folder, max_length=9)
    else:
        load_translator(folder, max_length=9)


@pytest.mark.parametrize(
    ("cached", "online", "used"),
    [
        ({"main": True}, {}, "main"),
        ({"main": False, "refs/pr/4": True}, {"main": False}, "refs-pr-4"),
        ({}, {"main": True}, "main"),
        ({}, {"main": False, "refs/pr/4": True}, "refs-pr-4"),
        ({}, {"main": False}, None),
    ],
    ids=["cache", "cached conversion", "hub", "conversion of the hub", "no safetensors"],
)
def test_safetensors_come_from_the_cache_the_hub_or_its_conversion(tmp_path, monkeypatch, cached, online, used):
    def download(name, *, allow_patterns, revision="main", local_files_only=False):
        assert {"*.spm"} <= set(allow_patterns) - {"*.bin"} == set(allow_patterns)
        revisions = cached if local_files_only else online
        if revision not in revisions:
            raise OSError("no network")
        for known, has_safetensors in {**cached, revision: revisions[revision]}.items():
            folder = tmp_path / known.replace("/", "-")
            folder.mkdir(exist_ok=True)
            if has_safetensors:
                (folder / "model.safetensors").touch()
        return tmp_path / revision.replace("/", "-")

    for module_ in (weights, translator_module):
        monkeypatch.setattr(module_, "snapshot_download", download)
    titles = {"refs/pr/3": "Add a model card", "refs/pr/4": "Adding `safetensors` variant of this model"}
    proposals = [SimpleNamespace(title=title, git_reference=name) for name, title in titles.items() if name in online]
    monkeypatch.setattr(translator_module, "get_repo_discussions", lambda *_, **__: iter(proposals))
    if used is None:
        with pytest.raises(NearfarError, match="some/model: has no safetensors weights on the hub"):
            locate_translator("some/model")
    else:
        assert locate_translator("some/model").name == used


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
    assert metadata["finished"] == {"rows": len(expected), "empty": 9 - len(expected), "unchanged": 0}
    ways = {way: str(models[way]) for way in ("forward", "backward")}
    decoding = {"beams": 2, "temperature": None, "seed": None, "batch_size": 4, "max_length": 8}
    assert metadata["settings"].items() >= (ways | decoding | {"sentences": 9}).items()
    assert len(set(metadata["settings"]["weights"])) == 2
    assert "versions" in metadata["provenance"]


class FakeTranslator:
    """Upper-cases, adds the seed of a sample, returns nothing for some sentences, and can be killed."""

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
        drawn = f" {seed}" if temperature else ""
        return ["" if text.lower() in self.nothing else f"{text.upper()}{drawn}" for text in texts]


@pytest.fixture
def fake(monkeypatch):
    """Sentences 0 to 17 and some others have no translation; blocks are of 8."""
    untranslated = [TEXTS[index] for index in (*range(18), 23, 31, 39)]
    folders = iter(range(10**6))

    def load(folder, **settings):
        return FakeTranslator(untranslated[::2] if next(folders) % 2 == 0 else untranslated[1::2])

    monkeypatch.setattr(FakeTranslator, "left", None)
    monkeypatch.setattr(FakeTranslator, "read", [])
    monkeypatch.setattr(module, "load_translator", load)
    monkeypatch.setattr(module, "locate_translator", lambda name: name)
    monkeypatch.setattr(module, "fingerprint_model", lambda name: f"weights of {name}")
    return {"batch_size": 1, "progress": False}


def test_empty_translations_are_left_out_and_counted(fake, tmp_path):
    file = back_translate([*TEXTS, "UP"], tmp_path / "bt.tsv", **fake)
    kept = [text for index, text in enumerate(TEXTS) if index not in (*range(18), 23, 31, 39)]
    assert rows_of(file) == [(text, text.upper(), text.upper()) for text in [*kept, "UP"]]
    assert metadata_of(file)["finished"] == {"rows": 20, "empty": 21, "unchanged": 1}


def stopped(file, fake, *, batches):
    """Leave the work of a run that was killed after a number of batches in either direction."""
    FakeTranslator.left = batches
    with pytest.raises(KeyboardInterrupt):
        back_translate(TEXTS, file, **fake)
    FakeTranslator.left = None
    assert not file.exists()


def test_killed_while_it_translates(fake, tmp_path):
    fake["temperature"] = 9.0
    whole = back_translate(TEXTS, tmp_path / "whole.tsv", **fake).read_bytes()
    drawn = [row[2].rpartition(" ")[2] for row in rows_of(tmp_path / "whole.tsv")]
    assert len(set(drawn)) == len(drawn) > 8  # batches, here of one text, are sampled by different numbers
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


def test_other_settings_texts_or_weights_are_refused(fake, tmp_path, monkeypatch):
    file = tmp_path / "bt.tsv"
    stopped(file, fake, batches=2 * BLOCK)
    with pytest.raises(NearfarError, match="--max-length was 128, is 9"):
        back_translate(TEXTS, file, **fake | {"max_length": 9})
    before = back_translate(TEXTS, file, **fake).read_bytes()
    with pytest.raises(
        NearfarError, match=r"--beams was 5, is not given; --temperature was not given, is 0\.5; --seed"
    ):
        back_translate(TEXTS, file, **fake, temperature=0.5)
    with pytest.raises(NearfarError, match="the number of texts changed; the texts of --input changed"):
        back_translate(TEXTS[:-1], file, **fake)
    monkeypatch.setattr(module, "fingerprint_model", lambda name: "others")
    with pytest.raises(NearfarError, match="the files of the models changed"):
        back_translate(TEXTS, file, **fake)
    assert file.read_bytes() == before
    file.unlink()
    back_translate(TEXTS[:-1], file, **fake)  # without the file, new settings are fine


def test_a_finished_file_does_not_change(fake, tmp_path, capsys):
    file = back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    FakeTranslator.read.clear()
    back_translate(TEXTS, file, **fake | {"progress": True})
    assert "is already finished; nothing to do." in capsys.readouterr().err
    assert not FakeTranslator.read


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, r"without bt\.tsv\.json"),
        ("{", "is not a complete JSON file"),
        ('{"kind": "other"}', r"is damaged, or not of nearfar back-translate .* Remove it and bt\.tsv to start again"),
    ],
)
def test_files_of_other_programs(fake, tmp_path, metadata, message):
    (tmp_path / "bt.tsv").write_text("precious\n")
    if metadata:
        (tmp_path / "bt.tsv.json").write_text(metadata)
    with pytest.raises(NearfarError, match=message):
        back_translate(TEXTS, tmp_path / "bt.tsv", **fake)
    assert (tmp_path / "bt.tsv").read_text() == "precious\n"
    if metadata:
        (tmp_path / "bt.tsv").unlink()
        with pytest.raises(NearfarError, match=message):
            back_translate(TEXTS, tmp_path / "bt.tsv", **fake)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 3, "temperature": 0.5}, "--beams 3 and --temperature 0.5"),
        ({"output": "bt.txt"}, r"must be a file that ends in \.tsv"),
        ({"column": "text"}, r"sentences\.txt"),
        ({"texts": []}, r"sentences\.txt: holds no texts"),
        ({"texts": "table.tsv"}, r"table\.tsv: is a table; name the column of the texts with --column"),
    ],
)
def test_errors(fake, tmp_path, settings, message):
    given = {"texts": TEXTS, "output": tmp_path / "bt.tsv"} | fake | settings
    with pytest.raises(NearfarError, match=message):
        back_translate(**given)
    assert not list(tmp_path.iterdir())
