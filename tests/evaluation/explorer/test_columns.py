"""Kinds of columns, and columns that give no colours."""

import pytest

from nearfar import NearfarError
from nearfar.evaluation.explorer.page import check_color_column, describe_column


@pytest.mark.parametrize(
    ("values", "kind", "categories"),
    [
        (["b", "a", "", "a"], "categories", ["a", "b"]),
        (["10", "9", "10", ""], "categories", ["9", "10"]),
        (["1.5", "-2", "0"], "categories", ["-2", "0", "1.5"]),
        ([str(n) for n in range(10)], "categories", [str(n) for n in range(10)]),
        ([str(n / 2) for n in range(11)], "numbers", []),
        ([*map(str, range(40)), ""], "numbers", []),
        ([*map(str, range(40)), "many"], "values", []),
        ([f"c{n:02d}" for n in range(30)], "categories", [f"c{n:02d}" for n in range(30)]),
        ([f"c{n}" for n in range(31)], "values", []),
        (["", ""], "values", []),
        (["nan", "inf"], "categories", ["inf", "nan"]),
    ],
)
def test_kind(values: list[str], kind: str, categories: list[str]) -> None:
    column = describe_column("c", values)
    assert (column.kind, column.categories, column.values) == (kind, categories, values)


def test_a_column_without_colours_is_refused() -> None:
    columns = [describe_column("id", [f"x{n}" for n in range(1200)]), describe_column("topic", ["a", "b"])]
    check_color_column(columns, "topic", "t.tsv")
    with pytest.raises(NearfarError, match=r"--color-by id: the column has 1,200 different values"):
        check_color_column(columns, "id", "t.tsv")
    with pytest.raises(NearfarError, match=r"--color-by tpic: t.tsv has no other column .* columns: id, topic"):
        check_color_column(columns, "tpic", "t.tsv")
    with pytest.raises(NearfarError, match="there are none"):
        check_color_column([], "topic", "t.txt")
