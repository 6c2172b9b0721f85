"""The files that a download makes: which recipe makes each, and what was dropped from it."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nearfar.commands.get_data.download import SourceFile
from nearfar.commands.get_data.recipes import Recipe, recipes_for
from nearfar.data.cells import normalize_whitespace
from nearfar.data.named_sets import PUBLISHED_ROWS
from nearfar.disk import create_folder, disk_errors, new_file
from nearfar.types import NearfarError

_OFFICIALLY_CASED = ("sts/STS1", "sts/STSB/")
_OFFICIALLY_LOWER = ("sts/STS14/deft-news.tsv", "sts/STS15/belief.tsv")
"""The files whose official text has upper-case letters, but not SentEval's; and those without them in both."""
EMPTY, NO_LABEL = "with an empty text", "without a label or score"


@dataclass(frozen=True, kw_only=True)
class ConvertedFile:
    """A file that was written to the local data folder."""

    file: str
    """Its path in the local data folder."""
    rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Why rows were dropped -> how many."""
    inputs: tuple[str, ...] = ()
    """The files of the download that it was made from."""
    lower_case: bool = False
    """Whether no text has an upper-case letter."""

    @property
    def published(self) -> int | None:
        """The published number of rows."""
        return PUBLISHED_ROWS.get(self.file)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about a number of rows that is not the published one, and about text that is not the official one.

        Dropped empty texts count as rows.
        """
        found = []
        if self.published not in (None, self.rows, self.rows + self.dropped.get(EMPTY, 0)):
            found.append(
                f"{self.file}: {self.rows:,} rows, but {self.published:,} are published. The source may be incomplete."
            )
        if self.lower_case and self.file.startswith(_OFFICIALLY_CASED) and self.file not in _OFFICIALLY_LOWER:
            found.append(
                f"{self.file}: all of its text is in lower case, as SentEval's script tokenises it. For the official "
                "text, on which most published scores are computed, convert the official package."
            )
        return tuple(found)


def plan(files: Sequence[SourceFile], targets: Collection[str]) -> dict[str, tuple[Recipe, list[SourceFile]]]:
    """Return the recipe and the inputs of each of ``targets`` that can be made from ``files``."""
    planned: dict[str, tuple[Recipe, list[SourceFile]]] = {}
    for recipe in recipes_for(targets):
        inputs = None if recipe.target in planned else recipe.find(files)
        if inputs is not None:
            planned[recipe.target] = recipe, inputs
    return planned


def convert(
    recipe: Recipe, inputs: Sequence[SourceFile], output: Path, *, record: Callable[[ConvertedFile], None]
) -> ConvertedFile:
    """Write the recipe's file into the folder ``output``, atomically.

    White space is normalised, and rows with an empty text are dropped and counted. ``record`` is called before the file
    gets its name: a file that exists is never without its record.

    Raises:
        NearfarError: an input is damaged or not in its published format (with file and line), there is no row, or the
            disk cannot be written. An existing file is then unchanged.
    """
    file = output / recipe.target
    dropped: Counter[str] = Counter()
    rows, lower_case = 0, True
    with disk_errors(file):
        create_folder(file.parent)
        with new_file(file) as temporary:
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                if recipe.columns:
                    stream.write("\t".join(recipe.columns) + "\n")
                for fields in recipe.reader(inputs):
                    values = None if fields is None else [normalize_whitespace(value) for value in fields]
                    if values is None:
                        dropped[NO_LABEL] += 1
                    elif not all(values):
                        dropped[EMPTY] += 1
                    else:
                        rows += 1
                        lower_case = lower_case and (text := "".join(values[1:])) == text.lower()
                        stream.write("\t".join(values) + "\n")
            shown = tuple(one.shown for one in inputs)
            if not rows:
                raise NearfarError(f"{', '.join(shown)}: no rows for {recipe.target}; the download is incomplete.")
            converted = ConvertedFile(
                file=recipe.target, rows=rows, dropped=dict(dropped), inputs=shown, lower_case=lower_case
            )
            record(converted)
    return converted
