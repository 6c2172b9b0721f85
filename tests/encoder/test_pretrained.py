"""All loaders of models are called in one file, with trust_remote_code=False."""

import ast
from pathlib import Path

import pytest

import nearfar
from nearfar import NearfarError
from nearfar.encoder.pretrained import opening
from tests.source_trees import tree_of

SOURCE = Path(nearfar.__file__).parent
LOADER_FILE = SOURCE / "encoder" / "pretrained.py"
OWN_CLASSES = {"Encoder", "Classifier"}
LOADERS = {"SentenceTransformer", "CrossEncoder", "Transformer", "pipeline", "import_from_string"}
LOADING = {"from_pretrained", "from_file", "get_class_from_dynamic_module"}


def loaders_called(file: Path) -> list[tuple[ast.Call, str]]:
    """Descriptions of the calls in a file that can load a model, a tokenizer or a module from a library."""
    found = []
    for node in ast.walk(tree_of(file)):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        owner, _, name = called.rpartition(".")
        module_loaded = name == "load" and ("st." in called or "modules" in called)
        if (name in LOADING and owner not in OWN_CLASSES) or name in LOADERS or module_loaded:
            found.append((node, f"{file.relative_to(SOURCE)}: {called}"))
    return found


@pytest.mark.long
def test_loaders_are_called_in_one_file_only() -> None:
    elsewhere = [call for file in SOURCE.rglob("*.py") if file != LOADER_FILE for _, call in loaders_called(file)]
    own = (  # of nearfar, and of tokenizers for exported folders
        *("Glove.from_file", "Tokenizer.from_file"),
        *("export/graphs.py: kind.from_pretrained", "export/__init__.py: type(source.model).from_pretrained"),
    )
    assert [call for call in elsewhere if not call.endswith(own)] == []


def test_each_call_disables_remote_code() -> None:
    calls = loaders_called(LOADER_FILE)
    assert len(calls) >= 4
    for node, call in calls:
        values = {ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "trust_remote_code"}
        assert values == {"False"}, call


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (PermissionError(13, "Permission denied", "/there/x"), r"^/there/x: cannot be read \(Permission denied\)\.$"),
        (OSError("It looks broken.\nSee above."), r"^FILE: cannot be opened: It looks broken\.$"),
        (KeyError("vocab"), r"^FILE: cannot be opened: KeyError: 'vocab'\.$"),
        (ValueError("Errors in Dense:\n  too wide.\n  more"), r"^FILE: cannot be opened: Errors in Dense: too wide\.$"),
        (ImportError("needs tiktoken. Look there"), r"^FILE: cannot be opened: needs .* pip install sentencepiece"),
        (NearfarError("as it is"), "^as it is$"),
    ],
)
def test_library_errors_become_one_sentence_about_a_file(raised: Exception, message: str) -> None:
    with pytest.raises(NearfarError, match=message) as caught, opening(Path("FILE")):
        raise raised
    assert "\n" not in str(caught.value)
