"""The catalog: names of the papers' tables and figures -> their study files, which are part of the package."""

import re
from collections.abc import Sequence
from pathlib import Path

from nearfar.types import NearfarError
from nearfar.validation import unknown_name_message

FOLDER = Path(__file__).parent / "tables"
PAPERS = {
    "liao": "Liao 2021, Sentence Embeddings using Supervised Contrastive Learning",
    "simcse-review": "A review of Gao et al. 2021, SimCSE",
    "gunel": "Gunel et al. 2021, Supervised Contrastive Learning for Pre-trained Language Model Fine-tuning",
    "kim": "Kim et al. 2021, Self-Guided Contrastive Learning for BERT Sentence Representations",
}
"""First words of a table's name -> the paper."""


def table_names(paper: str | None = None) -> list[str]:
    """The names of all tables and figures, or of those of one paper, by paper and then by number.

    >>> table_names("liao")[:2]
    ['liao-table-2', 'liao-table-3']
    """
    names = sorted((file.stem for file in FOLDER.glob("*.toml")), key=_order)
    return [name for name in names if paper is None or paper_of(name) == paper]


def paper_of(name: str) -> str:
    """The key in :data:`PAPERS` of a table's paper."""
    return next(paper for paper in PAPERS if name.startswith(f"{paper}-"))


def table_file(name: str) -> Path:
    """The study file of a table.

    Raises:
        NearfarError: no table of this name, with the nearest one, or with all names of the paper.
    """
    names = table_names()
    if name in names:
        return FOLDER / f"{name}.toml"
    paper = next((paper for paper in PAPERS if name == paper or name.startswith(f"{paper}-")), None)
    known = names if paper is None else table_names(paper)
    raise NearfarError(f"{unknown_name_message(name, known, what='table')} nearfar reproduce lists all.")


def check_names(names: Sequence[str]) -> None:
    """Raise a NearfarError for an unknown table, and for one that is named twice."""
    for place, name in enumerate(names):
        table_file(name)
        if name in names[:place]:
            raise NearfarError(f"{name}: is named twice; name it once.")


def _order(name: str) -> tuple[int, int, list[tuple[int, str]]]:
    """Papers in the order of :data:`PAPERS`; tables before figures; numbers by value."""
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
    return list(PAPERS).index(paper_of(name)), 0 if "-table-" in name else 1, parts
