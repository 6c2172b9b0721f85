"""Convert the files of a download into files of the local data folder, and check their numbers of rows."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nearfar.commands.get_data.recipes import Recipe, recipes_for
from nearfar.commands.get_data.tree import SourceFile
from nearfar.data.published_rows import PUBLISHED_ROWS
from nearfar.data.sources import normalize_whitespace
from nearfar.disk import disk_errors, flush
from nearfar.types import NearfarError

EMPTY, UNLABELLED = "with an empty text", "without a label or score"


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

    @property
    def published(self) -> int | None:
        """The published number of rows."""
        return PUBLISHED_ROWS.get(self.file)

    @property
    def warning(self) -> str | None:
        """One sentence if the number of rows is not the published one; dropped empty texts count as rows."""
        if self.published is None or self.published in (self.rows, self.rows + self.dropped.get(EMPTY, 0)):
            return None
        return f"{self.file}: {self.rows:,} rows, but {self.published:,} are published. The source may be incomplete."


def convert(files: Sequence[SourceFile], targets: Collection[str], output: Path) -> Iterator[ConvertedFile]:
    """Write each of ``targets`` whose inputs are among ``files``; yields each file after it is written.

    White space is normalised, and rows with an empty text are dropped and counted.

    Raises:
        NearfarError: a file of the download is damaged or not in its published format (with file and line), a file
            without a row, or the disk cannot be written. Files that were yielded are complete.
    """
    done: set[str] = set()
    for recipe in recipes_for(targets):
        inputs = None if recipe.target in done else recipe.find(files)
        if inputs is not None:
            done.add(recipe.target)
            yield _write(recipe, inputs, output)


def _write(recipe: Recipe, inputs: Sequence[SourceFile], output: Path) -> ConvertedFile:
    file = output / recipe.target
    temporary = file.with_name(file.name + ".new")
    dropped: Counter[str] = Counter()
    rows = 0
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8", newline="\n") as stream:
                if recipe.columns:
                    stream.write("\t".join(recipe.columns) + "\n")
                for _, fields in recipe.reader(inputs):
                    values = None if fields is None else [normalize_whitespace(value) for value in fields]
                    if values is None:
                        dropped[UNLABELLED] += 1
                    elif not all(values):
                        dropped[EMPTY] += 1
                    else:
                        rows += 1
                        stream.write("\t".join(values) + "\n")
            shown = tuple(one.shown for one in inputs)
            if not rows:
                raise NearfarError(f"{', '.join(shown)}: no rows for {recipe.target}; the download is incomplete.")
            flush(temporary)
            temporary.replace(file)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    return ConvertedFile(file=recipe.target, rows=rows, dropped=dict(dropped), inputs=shown)
