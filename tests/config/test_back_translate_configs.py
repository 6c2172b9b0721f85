"""The configs of ``nearfar back-translate``: each loads, and translates with models of its architecture."""

from pathlib import Path

import pytest

from nearfar.cli import main
from nearfar.config import BackTranslateConfig, build
from nearfar.settings import read_toml
from tests.tiny_seq2seq import save_tiny_fsmt, save_tiny_seq2seq, use_sacremoses

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "fsmt": {"forward": "facebook/wmt19-en-de", "backward": "facebook/wmt19-de-en", "beams": 100, "temperature": None},
    "gunel": {"forward": "facebook/wmt19-en-de", "backward": "facebook/wmt19-de-en", "beams": 5, "temperature": 0.9},
    "opus-mt": {
        "forward": "Helsinki-NLP/opus-mt-en-de",
        "backward": "Helsinki-NLP/opus-mt-de-en",
        "beams": 5,
        "temperature": None,
    },
}


def test_each_config_has_the_settings_of_its_source() -> None:
    files = sorted((ROOT / "configs").glob("back-translate-*.toml"))
    assert [file.stem.removeprefix("back-translate-") for file in files] == list(EXPECTED)
    for file, expected in zip(files, EXPECTED.values(), strict=True):
        config = build(BackTranslateConfig, {"input": "a", "output": "b.tsv", **read_toml(file)}, source=file)
        assert {name: getattr(config, name) for name in expected} == expected
        assert f"nearfar back-translate configs/{file.name} --input" in file.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("fsmt", marks=pytest.mark.nightly), "gunel", "opus-mt"])
def test_a_config_translates_and_flags_override_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_sacremoses(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for seed, folder in enumerate(("there", "back")):
        if name == "opus-mt":
            save_tiny_seq2seq(Path(folder), seed=seed, architecture="marian")
        else:
            save_tiny_fsmt(Path(folder), seed=seed)
    Path("texts.txt").write_text("a dog runs\nthe cat\n")
    flags = ["--input", "texts.txt", "--forward", "there", "--backward", "back", "--max-length", "9"]
    file = str(ROOT / "configs" / f"back-translate-{name}.toml")
    assert main(["back-translate", file, *flags, "--output", "bt.tsv"]) == 0
    assert "Wrote sentences and their back-translations to bt.tsv" in capsys.readouterr().out
    lines = Path("bt.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["sentence", "a dog runs", "the cat"]
    settings = '"temperature": 0.9' if name == "gunel" else f'"beams": {EXPECTED[name]["beams"]}'
    assert settings in Path("bt.tsv.json").read_text()
