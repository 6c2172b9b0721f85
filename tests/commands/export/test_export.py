"""Models as ONNX and OpenVINO graphs: equal outputs, the files beside them, the comparison, and errors."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer

from nearfar import Encoder, ExportConfig, NearfarError, evaluate, export, train
from nearfar.commands.export import comparison
from nearfar.commands.export.graphs import open_source, outputs_of, write_openvino
from nearfar.commands.predict import predict
from nearfar.encoder.classifier import Classifier, open_classifier
from nearfar.encoder.exported import open_graph
from nearfar.encoder.training_encoder import TrainingClassifier
from nearfar.evaluation.results import ExportResult, load_result
from tests.invalid_input.cli_runner import assert_refused, run_cli
from tests.tiny import sentences

EXTRA = ("onnx", "onnxscript", "onnxruntime", "openvino")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not all(map(find_spec, EXTRA)), reason="needs the extra export: pip install 'nearfar[export]'"),
    pytest.mark.filterwarnings("ignore:.*were truncated"),
]

FORMATS = ("onnx", "openvino")
TEXTS = [*sentences(4, seed=2), "dog", "a dog " * 60]


def run_graph(folder: Path, items: list) -> np.ndarray:
    """The first output of the exported graph, computed in one padded batch."""
    encodings = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(items)
    values = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    names = json.loads((folder / "export.json").read_text())["inputs"]
    feeds = {name: np.array([getattr(one, values[name]) for one in encodings]) for name in names}
    if (folder / "model.onnx").exists():
        import onnxruntime

        return onnxruntime.InferenceSession(folder / "model.onnx").run(None, feeds)[0]
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    return openvino.compile_model(folder / "openvino_model.xml", "CPU", settings)(feeds)[0]


@pytest.fixture(scope="module", params=FORMATS)
def exported(models: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The encoder with Dense, Normalize and a prompt, exported."""
    folder = tmp_path_factory.mktemp("exported") / request.param
    export(models / "normalized", format=request.param, output=folder, evaluate_on=models / "pairs.tsv")
    return folder


def test_embeddings_are_those_of_the_encoder(models: Path, exported: Path) -> None:
    encoder = Encoder.from_pretrained(models / "normalized")
    for texts in (TEXTS, TEXTS[:1]):
        expected = encoder.encode(texts, precision="fp32")
        found = run_graph(exported, ["the dog: " + text for text in texts])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_an_exported_folder_is_an_encoder(models: Path, exported: Path, tmp_path: Path) -> None:
    original, encoder = (Encoder.from_pretrained(folder, device="cpu") for folder in (models / "normalized", exported))
    expected = original.encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(encoder.encode(TEXTS, precision="fp32"), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS[:1], prompt=""), original.encode(TEXTS[:1], prompt=""), atol=1e-2)
    assert encoder.max_length == original.max_length
    settings = json.loads((exported / "sentence_bert_config.json").read_text())
    assert (settings["module_output_name"], settings["max_seq_length"]) == ("sentence_embedding", original.max_length)
    assert (encoder.dim, encoder.pooling, encoder.prompts) == (original.dim, original.pooling, original.prompts)
    half = encoder.encode(TEXTS, dimensions=16, precision="fp32")
    np.testing.assert_allclose(half, original.encode(TEXTS, dimensions=16, precision="fp32"), atol=1e-5)
    scores = [
        evaluate(folder, pairs=(models / "pairs.tsv",), precision="fp32") for folder in (original.source, exported)
    ]
    first, second = ([task.spearman.all.score for task in score.tasks.values()] for score in scores)
    assert first == pytest.approx(second, abs=0.01)
    with pytest.raises(NearfarError, match="an exported graph cannot be saved; use the model"):
        encoder.save_pretrained(tmp_path / "again")
    with pytest.raises(NearfarError, match="its pooling cannot be changed; use --pooling"):
        Encoder.from_pretrained(exported, pooling="cls")
    with pytest.raises(NearfarError, match="an exported graph cannot be trained"):
        train("regression", data=models / "pairs.tsv", model=exported, output=tmp_path / "run", hold_out=0)


def test_the_result_has_the_numbers(models: Path, exported: Path) -> None:
    result = load_result(exported / "export.json")
    assert isinstance(result, ExportResult)
    original, graph = result.sides
    assert (original.name, graph.name) == ("nearfar fp32", f"{exported.name} fp32")
    assert (original.difference, original.cosine) == (None, None)
    assert graph.difference is not None
    assert 0 <= graph.difference < 1e-5
    assert graph.cosine is not None
    assert graph.cosine > 0.9999
    assert original.score == pytest.approx(graph.score, abs=0.01)
    assert all(side.texts_per_second and side.texts_per_second > 0 for side in result.sides)
    assert result.evaluated_on == str(models / "pairs.tsv")
    assert (result.width, result.normalized, result.pooling, result.problems) == (32, True, "mean", [])
    assert result.files == {part: (exported / part).stat().st_size for part in result.files}


def test_the_example_of_the_readme_runs_without_torch(exported: Path) -> None:
    text = (exported / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 13
    program = f"{example}\nimport sys\nassert 'torch' not in sys.modules\nassert 'nearfar' not in sys.modules"
    completed = subprocess.run(
        [sys.executable, "-c", program], cwd=exported, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == "(2, 32)\n"
    assert '"the dog: A man' in example


def test_a_graph_that_openvino_cannot_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text("<net")
    with pytest.raises(NearfarError, match=r"openvino_model\.xml: OpenVINO cannot read it \(.+\)\.$"):
        open_graph(tmp_path / "openvino_model.xml", "openvino", threads=1)
    (tmp_path / "model.onnx").write_text("x")
    with pytest.raises(NearfarError, match=r"model\.onnx: OpenVINO cannot read it \(.+\)\.$"):
        write_openvino(tmp_path / "model.onnx", tmp_path / "openvino_model.xml")


def test_a_graph_has_the_output_that_optimum_reads(exported: Path) -> None:
    if exported.name == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(exported / "model.onnx")
        assert [one.name for one in session.get_outputs()] == ["sentence_embedding", "last_hidden_state"]
        assert [one.shape for one in session.get_inputs()] == [["batch", "length"]] * 2
    else:
        import openvino

        outputs = openvino.Core().read_model(exported / "openvino_model.xml").outputs
        assert {"sentence_embedding", "last_hidden_state"} <= set().union(*(one.names for one in outputs))


def refuse_other_uses(folder: Path) -> None:
    """A classifier's graph is not trained, saved, exported, or opened as an encoder."""
    again = folder.with_name("again")
    for refused, what in (
        (lambda: Classifier.from_pretrained(folder).save_pretrained(again), "saved"),
        (lambda: export(folder, output=again), "exported again"),
        (lambda: Classifier.from_pretrained(folder, label_names=["a", "b"]), "trained"),
        (lambda: TrainingClassifier(Classifier.from_pretrained(folder), [], max_length=None, bf16=False), "trained"),
    ):
        with pytest.raises(NearfarError, match=f"an exported graph cannot be {what}; use the model that it was"):
            refused()
    with pytest.raises(NearfarError, match="its graph gives the logits of a classifier; use it with nearfar predict"):
        Encoder.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "quantize"),
    [("onnx", "none"), *(pytest.param("openvino", how, marks=pytest.mark.nightly) for how in ("none", "int8"))],
)
def test_an_exported_folder_is_a_classifier(models: Path, tmp_path: Path, kind: str, quantize: str) -> None:
    calibrate = models / "texts.txt" if quantize == "int8" else None
    result = export(
        models / "classifier",
        format=kind,
        quantize=quantize,
        calibrate=calibrate,
        output=tmp_path / "out",
        opset=19 if kind == "onnx" else None,
        evaluate_on=models / "labels.tsv",
        force=quantize == "int8",
    )
    assert (result.output, result.labels, result.metric) == ("logits", ["no", "yes"], "accuracy")
    assert result.opset == 19 or kind == "openvino"
    items = [("the dog runs", "a cat"), ("a bird", "the big dog runs in the park"), ("red", "blue"), ("a dog",)]
    original, classifier = map(Classifier.from_pretrained, (models / "classifier", tmp_path / "out"))
    expected, found = original.predict(items, precision="fp32"), classifier.predict(items)
    largest = np.abs(expected).max()
    assert (np.abs(found - expected).max() <= 1e-5 * largest) == (quantize == "none")
    assert np.abs(found - expected).max() <= 0.3 * largest
    assert (classifier.label_names, classifier.max_length) == (original.label_names, original.max_length)
    np.testing.assert_allclose(run_graph(tmp_path / "out", items[:3]), found[:3], atol=0.01 * largest)
    for folder in (models / "classifier", tmp_path / "out"):
        settings = {"input": models / "labels.tsv", "output": tmp_path / f"{folder.name}.tsv", "precision": "fp32"}
        assert predict(folder, **settings, progress=False).scores is not None
    if quantize == "none":
        tables = [pd.read_csv(tmp_path / f"{name}.tsv", sep="\t") for name in ("classifier", "out")]
        pd.testing.assert_frame_equal(*tables, rtol=0, atol=1e-5)
    refuse_other_uses(tmp_path / "out")


def test_a_classifier_of_embeddings_is_exported_with_its_head(models: Path, exported: Path, tmp_path: Path) -> None:
    classifier, original = open_classifier(exported), open_classifier(models / "normalized")
    assert classifier.label_names == original.label_names == ("a", "b", "c")
    assert np.concatenate(classifier.seen or []).tolist() == [0, 1, 2, 3]
    items = [(text,) for text in TEXTS]
    np.testing.assert_allclose(classifier.predict(items), original.predict(items, precision="fp32"), atol=1e-4)
    with pytest.raises(NearfarError, match="its graph gives embeddings, no logits"):
        Classifier.from_pretrained(exported)
    shutil.copytree(exported, tmp_path / "copy")
    (tmp_path / "copy" / "export.json").write_text("{}")
    with pytest.raises(NearfarError, match=r"export\.json: it lacks 'width'"):
        open_classifier(tmp_path / "copy")


def test_a_missing_runtime_is_named(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = {"onnx": "onnxruntime", "openvino": "openvino"}[exported.name]
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == runtime else found(name))
    with pytest.raises(NearfarError, match=rf"needs the package {runtime}; install with: pip install 'nearfar\[export"):
        Encoder.from_pretrained(exported)


@pytest.mark.parametrize("kind", FORMATS)
def test_int8_weights(models: Path, tmp_path: Path, kind: str) -> None:
    calibrate = models / "texts.txt" if kind == "openvino" else None
    settings = {"format": kind, "evaluate_on": models / "pairs.tsv", "calibrate": calibrate, "force": True}
    result = export(models / "normalized", output=tmp_path / "int8", quantize="int8", **settings)
    graph = result.sides[1]
    assert graph.name == f"{kind} int8"
    assert graph.cosine is not None
    assert 0.9 < graph.cosine < 0.9999999
    assert result.calibrated_on == (f"{calibrate}, 40 texts" if calibrate else None)
    file = tmp_path / "int8" / ("model.onnx" if kind == "onnx" else "openvino_model.xml")
    if kind == "onnx":
        import onnx

        operations = {node.op_type for node in onnx.load(file).graph.node}
        assert {"DynamicQuantizeLinear", "MatMulInteger"} <= operations
        return
    import openvino

    model = openvino.Core().read_model(file)
    constants = [one for one in model.get_ops() if one.get_type_name() == "Constant"]
    weights = [one.data for one in constants if str(one.get_element_type()) == "<Type: 'int8_t'>"]
    assert all(matrix.ndim == 2 for matrix in weights)
    # Two products of an activation and a weight may not exceed 16 bits: else the result depends on the processor.
    assert {int(np.abs(matrix.astype(int)).max()) for matrix in weights} == {64}
    assert "FakeQuantize" in {one.get_type_name() for one in model.get_ops()}


def test_a_graph_that_differs_is_refused_with_the_numbers(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MIN_COSINE", 1.5)
    settings = {"output": tmp_path / "out", "evaluate_on": models / "pairs.tsv"}
    with pytest.raises(NearfarError, match=r"smallest cosine is 1\.0+, below 1\.5.*--force") as caught:
        export(models / "normalized", **settings)
    assert "largest difference" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    result = export(models / "normalized", **settings, force=True)
    assert len(result.problems) == 1
    assert load_result(tmp_path / "out" / "export.json") == result


def test_the_verb_prints_a_table(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = ["export", str(models / "normalized"), "--output", str(out), "--evaluate-on", str(models / "pairs.tsv")]
    status, printed, _ = run_cli([*argv, "--max-length", "20"])
    assert status == 0
    for words in ("nearfar fp32", "onnx fp32", "smallest cosine", "texts/s", "spearman on", f"to {out}"):
        assert words in printed
    result = load_result(out / "export.json")
    assert isinstance(result, ExportResult)
    assert result.max_length == 20
    assert len(Tokenizer.from_file(str(out / "tokenizer.json")).encode("a dog " * 60).ids) == 20
    assert_refused(argv, f"--output {out}: exists; replace it by --overwrite")
    left = out.with_name(f".{out.name}.new")
    (left / "folder").mkdir(parents=True)  # of a process that was killed after the rename
    assert_refused(argv, f"--output {out}: exists; replace it by --overwrite")
    assert not left.exists()
    assert run_cli([*argv, "--overwrite"]).status == 0
    assert not list(tmp_path.glob(".*"))


def test_a_run_is_calibrated_and_compared_on_rows_that_it_held_out(models: Path, tmp_path: Path) -> None:
    rows = [f"{text}\t{text} {n}" for n, text in enumerate(sentences(60, longest=6))]
    (tmp_path / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n", encoding="utf-8")
    data = {"model": models / "plain", "data": tmp_path / "pairs.tsv", "hold_out": 20}
    train("info-nce", **data, output=tmp_path / "run", max_steps=1)
    config = ExportConfig(output="out", format="openvino", quantize="int8")
    source = open_source(tmp_path / "run" / "model")
    items, described = comparison.calibration_items(tmp_path / "run", source.model, config)
    held_out = [row.split("\t") for row in rows]
    assert described == f"the dev rows that {tmp_path / 'run'} held out, {len(items)} texts"
    assert 0 < len(items) < len(rows)
    assert {text for (text,) in items} <= {text for row in held_out for text in row}
    tested = comparison.comparison_rows(tmp_path / "run", source.model, config)
    assert (tested.metric, tested.source) == ("mrr@10", f"the test rows that {tmp_path / 'run'} held out")
    assert 0 < (tested.score(partial(outputs_of, source.model)) or 0) <= 100


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["nowhere/at/all"], ["nowhere/at/all: there is no such model folder"]),
        (["MODELS/plain", "--max-length", "9000"], ["max_length 9000"]),
        (["MODELS/plain", "--evaluate-on", "none.tsv"], ["none.tsv"]),
        (["MODELS/classifier", "--evaluate-on", "MODELS/pairs.tsv"], ["label"]),
        (["MODELS/plain", "--format", "openvino", "--quantize", "int8"], ["--calibrate FILE"]),
    ],
)
def test_bad_input(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    argv = [flag.replace("MODELS", str(models)) for flag in flags]
    assert_refused(["export", *argv, "--output", "out"], *words)
    assert list(tmp_path.iterdir()) == []


def test_an_architecture_that_cannot_be_traced(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(models / "plain", tmp_path / "model")

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Please report it.") from ValueError("a branch on data\nin forward")

    monkeypatch.setattr("torch.onnx.export", refuse)
    message = r"bert: torch .* cannot export this architecture to ONNX, .* \(a branch on data\)\.$"
    with pytest.raises(NearfarError, match=message):
        export(tmp_path / "model", output=tmp_path / "out", evaluate_on=models / "pairs.tsv")
    assert not (tmp_path / "out").exists()


def test_a_pooling_without_prompt_tokens_is_refused(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "normalized", tmp_path / "model")
    file = tmp_path / "model" / "1_Pooling" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "include_prompt": False}))
    with pytest.raises(NearfarError, match="include_prompt false"):
        export(tmp_path / "model", output=tmp_path / "out")
