"""The heavy packages that each verb may import on a small valid input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar
from nearfar.cli import VERBS
from nearfar.encoder.classifier import Classifier
from nearfar.encoder.encoder import Encoder
from tests.evaluation.report.cases import evaluation
from tests.tiny import make_workspace, sentences, write_colours
from tests.tiny_seq2seq import save_tiny_seq2seq

HEAVY = (
    *("torch", "transformers", "sentence_transformers", "datasets", "pandas", "pyarrow", "sklearn", "scipy"),
    *("scipy.stats", "matplotlib", "accelerate", "peft", "PIL", "sympy", "torch._dynamo"),
)
TORCH = {"torch"}
MODEL = {*TORCH, "transformers", "accelerate", "PIL", "scipy", "sympy", "torch._dynamo"}
"""Imported by transformers with a model."""
PARTS = {*MODEL, "pyarrow", "pandas"}
"""Vectors are encoded in parts, which are Parquet; pyarrow imports pandas where it is installed."""
SKLEARN = {*PARTS, "sklearn", "scipy.stats"}
WRITTEN = {*SKLEARN, "sentence_transformers", "datasets", "peft"}
"""Imported by sentence-transformers, which writes model folders."""
CHAINS: tuple[tuple[tuple[str, set[str]], ...], ...] = (
    (
        ("get-data --list", set()),
        ("reproduce", set()),
        ("study study.toml --output study --dry-run", set()),
        ("push tiny me/tiny --dry-run", {"huggingface_hub"}),
    ),
    (
        ("compare result.json result.json --resamples 10", {"scipy"}),
        ("compare scores.tsv --resamples 10", {"scipy", "pandas", "pyarrow"}),
        ("report result.json --output report.html", {"scipy", "pandas", "pyarrow"}),
    ),
    (
        ("env", TORCH),
        ("predict classifier --input texts.txt --output labels.tsv", MODEL),
        ("evaluate tiny --pairs pairs.tsv --resamples 10", MODEL),
        ("evaluate tiny --retrieval anchors.tsv --resamples 10", MODEL),
        ("back-translate --input texts.txt --output bt.tsv --forward there --backward there --max-length 8", MODEL),
        ("encode tiny --input texts.txt --output vectors.npy", PARTS),
        ("search dog --model normalized --input texts.txt", PARTS),
        (
            "mine --model tiny --data nli.tsv --anchor-column premise --positive-column hypothesis "
            "--relative-margin none --output mined.tsv",
            PARTS,
        ),
        ("dedup --model tiny --input texts.txt --output kept.txt --threshold 0.9", PARTS),
        ("threshold --model tiny --pairs judged.tsv --error 0.5 --output threshold.json", SKLEARN),
        ("evaluate tiny --labelled labelled.tsv --folds 2 --resamples 10", SKLEARN),
        ("finetune labelled.tsv --model tiny --batch-size 8 --validation-rows 20 --max-steps 1 --output run", SKLEARN),
        ("geometry tiny normalized --texts texts.txt --page page.html", SKLEARN),
        ("geometry tiny --pairs pairs.tsv --task pairs.tsv --output geometry", {*SKLEARN, "datasets", "matplotlib"}),
        (
            "train scl --model tiny --data nli.tsv --evaluate-on pairs.tsv --max-steps 1 --output trained",
            {*WRITTEN, "matplotlib"},
        ),
        ("adapt documents.txt --model tiny --hold-out 0 --max-steps 1 --output adapted", {*WRITTEN, "matplotlib"}),
        (
            "tune --data anchors.tsv --model tiny --hold-out 8 --max-steps 1 --budget 1e-6 --output tuned",
            {*WRITTEN, "matplotlib"},
        ),
        ("soup trained untrained --output averaged", {*WRITTEN, "matplotlib"}),
        ("static tiny --output static", {*WRITTEN, "matplotlib"}),
        ("demo --model tiny --max-steps 1 --output demo", {*WRITTEN, "matplotlib"}),
        ("study study.toml --output study --engine inline --resamples 10", {*WRITTEN, "matplotlib"}),
    ),
)
"""Commands that run one after the other in one process, and the packages that may be loaded after each. Each command
needs all packages of those before it, so that no command hides what the next one imports."""
EXPORT_CHAIN = (("export tiny --evaluate-on pairs.tsv --output exported", MODEL),)
"""In a process of its own, because it needs the extra ``export``."""
DRIVER = """if True:
    import json
    import sys
    from nearfar.cli import main
    commands, heavy = json.loads(sys.argv[1])
    for command in commands:
        status = main(command.split())
        print("loaded:", json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the verbs read that need no model: a result, a study and the folder of a tiny encoder."""
    folder = make_workspace(tmp_path_factory.mktemp("start"))
    result = evaluation("tiny", {"pairs.tsv": 50.0})
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    study = (
        'title = "a"\ncolumns = ["pairs.tsv"]\n[evaluate]\npairs = ["pairs.tsv"]\n[[rows]]\nid = "a"\nmodel = "tiny"\n'
    )
    (folder / "study.toml").write_text(study, encoding="utf-8")
    scores = [f"{system}\t{unit}\t0.{unit}" for system in "ab" for unit in (1, 2)]
    (folder / "scores.tsv").write_text("\n".join(["system\tunit\tscore", *scores]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def heavy(light: Path) -> Path:
    folder, tiny = light, light / "tiny"
    encoder = Encoder.from_pretrained(tiny)
    encoder.normalizes = True
    encoder.save_pretrained(folder / "normalized")
    Encoder.from_pretrained(tiny).save_pretrained(folder / "untrained")
    Classifier.from_pretrained(tiny, label_names=["warm", "cold"]).save_pretrained(folder / "classifier")
    save_tiny_seq2seq(folder / "there")
    write_colours(folder / "labelled.tsv")
    anchors = [f"{text}\t{text} {number}" for number, text in enumerate(sentences(20, longest=5))]
    (folder / "anchors.tsv").write_text("\n".join(["anchor\tpositive", *anchors]) + "\n", encoding="utf-8")
    documents = [
        f"{text} and what follows. {text} in the middle, {number}. {text} at the end, {number}."
        for number, text in enumerate(sentences(20))
    ]
    (folder / "documents.txt").write_text("\n".join(documents) + "\n", encoding="utf-8")
    judged = [f"{text} {number}\t{text}\t1" for number, text in enumerate(sentences(40, longest=5))]
    (folder / "judged.tsv").write_text("\n".join(["query\ttext\tlabel", *judged]) + "\n", encoding="utf-8")
    (folder / "texts.txt").write_text("\n".join(sentences(60, longest=5)[:20]) + "\n", encoding="utf-8")
    return folder


def test_every_verb_has_a_case() -> None:
    assert {command.split()[0] for chain in (*CHAINS, EXPORT_CHAIN) for command, _ in chain} == set(VERBS)


@pytest.mark.long
@pytest.mark.parametrize(
    "chain",
    [CHAINS[0], *(pytest.param(chain, marks=pytest.mark.nightly) for chain in (*CHAINS[1:], EXPORT_CHAIN))],
    ids=["light", "compare", "heavy", "export"],
)
def test_a_command_loads_what_it_needs(
    chain: tuple[tuple[str, set[str]], ...],
    light: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime") if chain is EXPORT_CHAIN else ():
        pytest.importorskip(package)
    workspace = light if chain is CHAINS[0] else request.getfixturevalue("heavy")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("NEARFAR_DATA", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(nearfar.__file__).parents[1]))  # absolute, for another working directory
    command = [sys.executable, "-c", DRIVER, json.dumps([[words for words, _ in chain], HEAVY])]
    completed = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
    reported = [line.removeprefix("loaded: ") for line in completed.stdout.splitlines() if line.startswith("loaded: ")]
    assert len(reported) == len(chain), completed.stderr
    for (words, allowed), line in zip(chain, reported, strict=True):
        status, loaded = json.loads(line)
        assert status == 0, (words, completed.stderr)
        assert set(loaded) <= allowed, (words, sorted(set(loaded) - allowed))
