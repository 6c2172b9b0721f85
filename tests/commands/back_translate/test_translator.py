"""Translation with tiny random models, compared with transformers' generation for each text alone, and errors."""

import json
import shutil
import warnings
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
import transformers

import nearfar.commands.back_translate.translator as module
from nearfar.commands.back_translate.translator import load_translator, locate_translator, weights_digest
from nearfar.types import NearfarError
from tests.tiny import save_tiny, sentences
from tests.tiny_seq2seq import save_tiny_fsmt, save_tiny_seq2seq, use_sacremoses

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_seq2seq(tmp_path_factory.mktemp("t5"))


@pytest.mark.parametrize("architecture", ["t5", "bart", "marian"])
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


def test_nothing_is_printed(folder, capfd):
    translator = load_translator(folder, max_length=9)
    translator.translate(["a dog", ""], temperature=1.0)
    translator.translate(["a dog", ""], beams=2)
    assert capfd.readouterr() == ("", "")
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", stacklevel=1)


def test_float16_weights_are_read_as_float32(tmp_path):
    transformers.AutoModelForSeq2SeqLM.from_pretrained(save_tiny_seq2seq(tmp_path)).half().save_pretrained(tmp_path)
    assert load_translator(tmp_path, max_length=9).model.dtype == torch.float32


def test_an_encoder_is_not_a_translator(tmp_path):
    with pytest.raises(NearfarError, match="has no translation model of the model type 'bert'"):
        load_translator(save_tiny(tmp_path), max_length=9)


def test_missing_weights(tmp_path):
    save_tiny_seq2seq(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_layers": 3}))
    with pytest.raises(NearfarError, match="weights are missing or misshapen, the first is encoder"):
        load_translator(tmp_path, max_length=9)


def test_only_safetensors(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(NearfarError, match="is pickled"):
        load_translator(tmp_path, max_length=9)


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


def test_the_fingerprint_covers_the_weights(folder, tmp_path):
    assert weights_digest(folder) == weights_digest(folder)
    assert weights_digest(folder) != weights_digest(save_tiny_seq2seq(tmp_path, seed=5))


class Hub:
    """A mock of the hub and its cache: which revisions of one model have safetensors."""

    def __init__(self, root, *, cached=(), online=None, proposals=()):
        self.root, self.cached, self.online, self.proposals = root, dict(cached), online, proposals
        self.asked = []
        for revision, safe in self.cached.items():
            self._make(revision, safe)

    def _make(self, revision, safe):
        folder = self.root / "snapshots" / revision.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        if safe:
            (folder / "model.safetensors").touch()
        return str(folder)

    def download(self, name, *, allow_patterns, revision="main", local_files_only=False):
        assert "*.spm" in allow_patterns
        assert "*.bin" not in allow_patterns
        if local_files_only:
            if revision not in self.cached:
                raise OSError("not cached")
            return self._make(revision, self.cached[revision])
        self.asked.append(revision)
        if self.online is None:
            raise OSError("no network\nat all")
        return self._make(revision, self.online[revision])

    def discussions(self, name, *, author, discussion_type, discussion_status):
        assert (author, discussion_type, discussion_status) == ("SFconvertbot", "pull_request", "open")
        return iter(self.proposals)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    def make(**revisions):
        created = Hub(tmp_path, **revisions)
        monkeypatch.setattr(module, "snapshot_download", created.download)
        monkeypatch.setattr(module, "get_repo_discussions", created.discussions)
        return created

    return make


CONVERSION = SimpleNamespace(title="Adding `safetensors` variant of this model", git_reference="refs/pr/4")
OTHER = SimpleNamespace(title="Add a model card", git_reference="refs/pr/3")


def test_a_local_folder_is_used_unchanged(folder):
    assert locate_translator(folder) == folder
    assert locate_translator(str(folder)) == folder


@pytest.mark.parametrize("name", ["/nowhere/model", "./model", "a/b/c", "model"])
def test_a_name_that_is_neither_folder_nor_hub_name_raises(name, hub):
    asked = hub().asked
    with pytest.raises(NearfarError, match="no such model folder"):
        locate_translator(name)
    assert not asked


@pytest.mark.parametrize(
    ("revisions", "used", "asked"),
    [
        ({"cached": {"main": True}}, "main", []),
        ({"cached": {"main": False, "refs/pr/4": True}}, "refs-pr-4", []),
        ({"online": {"main": True}}, "main", ["main"]),
        (
            {"online": {"main": False, "refs/pr/4": True}, "proposals": [OTHER, CONVERSION]},
            "refs-pr-4",
            ["main", "refs/pr/4"],
        ),
    ],
    ids=["cache", "cached conversion", "hub", "conversion of the hub"],
)
def test_safetensors_come_from_the_cache_the_hub_or_its_conversion(hub, revisions, used, asked):
    available = hub(**revisions)
    assert locate_translator("some/model").name == used
    assert available.asked == asked


def test_models_with_only_pickled_weights_are_refused(hub):
    hub(online={"main": False}, proposals=[OTHER])
    with pytest.raises(NearfarError, match="some/model: has no safetensors weights on the hub"):
        locate_translator("some/model")


def test_no_network(hub):
    hub()
    with pytest.raises(NearfarError, match=r"no translation model 'some/model'.*no network\. Give a folder"):
        locate_translator("some/model")
