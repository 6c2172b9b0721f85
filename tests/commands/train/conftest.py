"""Rows of every method, written once; fewer random words, so that runs that train beside them are short."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nearfar.encoder import tokens
from tests.method_configs import write_data


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of :func:`tests.method_configs.config`, and NLI rows with two entailments per premise."""
    folder = write_data(tmp_path_factory.mktemp("data"))
    header, *rows = (folder / "nli.tsv").read_text().splitlines()
    premises = dict.fromkeys(row.split("\t")[0] for row in rows)
    more = [f"{premise}\tmore of {premise}\tentailment" for premise in premises]
    (folder / "entailed.tsv").write_text("\n".join([header, *rows, *more]) + "\n")
    return folder


@pytest.fixture(scope="module", autouse=True)
def few_random_words() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "TEXTS", 300)
        yield
