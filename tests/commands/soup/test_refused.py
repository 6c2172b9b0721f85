"""Models, lists of models and outputs that soup refuses, each with one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from nearfar import Encoder, NearfarError, SoupConfig, soup
from nearfar.encoder.classifier import Classifier
from tests.commands.soup.helpers import weights
from tests.tiny import save_tiny


def changed(name: str, change: Callable[[Encoder], object]) -> str:
    encoder = Encoder.from_pretrained("a")
    change(encoder)
    encoder.save_pretrained(name)
    return name


def edit(file: str, **settings: Any) -> None:
    path = Path(file)
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def refuse(match: str, *models: str, **settings: Any) -> None:
    with pytest.raises(NearfarError, match=match):
        soup(*models, **{"output": "out", **settings})
    assert not Path("out").exists()
    assert not list(Path().glob(".out*"))


@pytest.mark.long
def test_models_that_differ_in_more_than_their_weights_are_refused(folder: Path) -> None:
    save_tiny(folder / "roberta", "roberta")
    refuse(
        "roberta: cannot be averaged with tiny: they have different architectures: class BertModel and RobertaModel",
        "tiny",
        "roberta",
    )
    refuse("they have different poolings: mean and cls", "tiny", "a")
    refuse("different normalization", "a", changed("n", lambda encoder: setattr(encoder, "normalizes", True)))
    refuse("different modules after the pooling", "a", changed("d", lambda encoder: encoder.add_dense()))
    refuse(
        "different maximum lengths: 62 and 20", "a", changed("m", lambda encoder: setattr(encoder, "max_length", 20))
    )
    refuse(
        "different prompts or similarities: prompts query None and q: ",
        "a",
        changed("q", lambda encoder: encoder.set_prompts(query="q: ")),
    )
    shutil.copytree("a", "heads")
    edit("heads/config.json", num_attention_heads=4)
    refuse("heads: .*different architectures: num_attention_heads 2 and 4", "a", "heads")
    shutil.copytree("a", "words")
    vocabulary = json.loads(Path("words/tokenizer.json").read_text())
    vocabulary["model"]["vocab"] |= {
        "dog": vocabulary["model"]["vocab"]["cat"],
        "cat": vocabulary["model"]["vocab"]["dog"],
    }
    Path("words/tokenizer.json").write_text(json.dumps(vocabulary))
    refuse("words: .*different tokenizers: vocabulary cat ", "a", "words")
    shutil.copytree("a", "cased")
    edit("cased/tokenizer.json", normalizer=None)
    refuse("cased: .*different tokenizers: normalizer", "a", "cased")


@pytest.mark.long
def test_a_missing_pooler_is_a_different_shape(folder: Path) -> None:
    shutil.copytree("a", "bare")
    kept = {key: value for key, value in weights("bare").items() if not key.startswith("pooler")}
    save_file(kept, "bare/model.safetensors", metadata={"format": "pt"})
    refuse(r"bare: .*different shapes of weights: backbone\.pooler\.dense\.weight \(32, 32\) and None", "a", "bare")


@pytest.mark.long
def test_models_that_are_no_encoders_are_refused(folder: Path) -> None:
    Classifier.from_pretrained("tiny", label_names=["warm", "cold"]).save_pretrained("classifier")
    refuse("^classifier: is a classifier; soup averages sentence encoders", "classifier", "a")
    refuse("^classifier: is a classifier", "a", "classifier")
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text("{}")
    refuse("^adapter: is an adapter without its model", "a", "adapter")
    shutil.copytree("a", "adapted")
    Path("adapted/adapter_config.json").write_text("{}")
    refuse("nearfar does not load adapters; merge the adapter into the model", "a", "adapted")
    Path("empty").mkdir()
    refuse("empty: holds no config.json", "a", "empty")
    refuse("no such model folder", "a", "./nowhere")
    file = Path("b/model.safetensors")
    file.write_bytes(file.read_bytes()[:1000])
    refuse("b/model.safetensors: the weights are truncated or damaged", "a", "b")


@pytest.mark.long
def test_lists_of_models_that_cannot_be_averaged(folder: Path) -> None:
    refuse("two models or more are needed", "a")
    refuse(r"^\./a: is the same model as a; give it once, with a higher --weights", "a", "b", "./a")
    refuse("--weights 2: must be one number for each of the 2 models", "a", "b", weights="2")
    refuse("--weights 1,0: each must be above 0; as in 2,1,1", "a", "b", weights="1,0")
    refuse("--greedy: needs a dev set", "a", "b", greedy=True)
    refuse("--evaluate-on: nowhere.tsv: no such file", "a", "b", greedy=True, evaluate_on="nowhere.tsv")
    refuse(
        r"(?s)--evaluate-on: .*microworld:dev, or set .*Without --greedy, no dev",
        "a",
        "b",
        greedy=True,
        evaluate_on="stsb:dev",
    )
    Path("flat.tsv").write_text("score\tsentence1\tsentence2\n" + "3\ta dog\ta cat\n3\ta man\ta bird\n" * 3)
    refuse("flat.tsv: no correlation to choose the best step by", "a", "b", greedy=True, evaluate_on="flat.tsv")
    assert SoupConfig(output="out").weights is None


@pytest.mark.long
def test_an_output_that_exists_is_not_replaced(folder: Path) -> None:
    before = weights("b")
    with pytest.raises(NearfarError, match="--output b: already exists; choose another folder"):
        soup("a", "b", output="b")
    assert all(torch.equal(tensor, before[key]) for key, tensor in weights("b").items())
    Path("file").write_text("mine")
    with pytest.raises(NearfarError, match="--output file: already exists"):
        soup("a", "b", output="file")
    with pytest.raises(NearfarError, match=r"--output file/out: .*file is a file, not a folder"):
        soup("a", "b", output="file/out")
    Path("free").mkdir()
    soup("a", "b", output="free")
    assert Path("free/modules.json").exists()


@pytest.mark.long
def test_a_failed_save_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nearfar.disk.folders.publish", fail)
    refuse(r"out: cannot be written \(No space left on device\)", "a", "b")


@pytest.mark.long
def test_weights_that_are_not_numbers_with_a_point_must_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Encoder.from_pretrained

    def with_buffer(name: str | Path, **settings: Any) -> Encoder:
        encoder = opened(name, **settings)
        encoder.backbone.register_buffer("counts", torch.tensor([len(Path(name).name)]))
        return encoder

    monkeypatch.setattr(Encoder, "from_pretrained", with_buffer)
    shutil.copytree("a", "longer")
    refuse(r"longer: cannot be averaged with a: their backbone\.counts differ", "a", "longer")
    assert isinstance(opened("a").backbone, nn.Module)


@pytest.mark.long
def test_settings_that_change_no_vector_may_differ(folder: Path) -> None:
    edit("b/config.json", hidden_dropout_prob=0.3, transformers_version="4.0.0", architectures=["BertForMaskedLM"])
    assert len(soup("a", "b", output="out").used) == 2
