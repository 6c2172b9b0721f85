"""Without the extra mteb: the message that names it, and a model that still encodes."""

import sys
from pathlib import Path

import pytest

from nearfar import NearfarError
from nearfar.mteb import MtebModel
from tests.tiny import save_tiny


@pytest.fixture(autouse=True)
def _no_mteb(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mteb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mteb", None)


def test_the_model_names_the_extra(tmp_path: Path) -> None:
    model = MtebModel(save_tiny(tmp_path / "tiny"))
    assert model.encode([{"text": ["a dog", "a cat"]}]).shape == (2, 32)
    with pytest.raises(NearfarError, match=r"nearfar\[mteb\]"):
        _ = model.mteb_model_meta
