"""Settings of ``nearfar geometry``."""

from collections.abc import Iterator
from dataclasses import dataclass

from nearfar.config.bounds import File, Logit, NumpySeed, Output, PageTexts, PlotPoints
from nearfar.config.encoder import EncoderOptions
from nearfar.config.values import flag
from nearfar.types import NearfarError

_OF_PAGE = ("texts", "column", "color_by")
_OF_OUTPUT = ("pairs", "positive_above", "task", "labelled")


@dataclass(frozen=True, kw_only=True)
class GeometryConfig(EncoderOptions):
    """Measure and plot the embedding spaces of one or more encoders, or write a page to explore your own texts.

    --output FOLDER: alignment, uniformity, layers and t-SNE plots, on scored pairs and labelled texts (STS-B and SST-2
    by default). --page FILE: an interactive map of --texts by one encoder, or by two, before and after. Give either or
    both.
    """

    # --- Output ---

    output: Output | None = None
    """Folder to write: geometry.json, the table geometry.md, and the plots. Uses --pairs, --task and --labelled."""
    page: Output | None = None
    """The .html file to write: an offline page with a map of --texts, search, and the nearest and farthest texts of
    each by one or two encoders. Needs --texts and no other data."""
    overwrite: bool = False
    """Replace PAGE, and files of these names in OUTPUT, even if nearfar did not write them."""

    # --- Page ---

    texts: File | None = None
    """Texts on the page: a named set, a text file with one text per line, or a .tsv, .csv, .jsonl or .parquet file,
    whose other columns are shown too."""
    column: str | None = None
    """Column of --texts with the texts; by default text."""
    color_by: str | None = None
    """Column of --texts that gives the points their colours at first: at most 30 different values, or numbers. The page
    has a menu of all such columns."""
    texts_limit: PageTexts = 50_000
    """Maximum number of texts on the page; of more distinct texts, a random sample is shown (see --seed)."""

    # --- Measures and plots ---

    pairs: File | None = None
    """Scored pairs to measure alignment and uniformity on: a named set, or a file with the columns score, sentence1,
    sentence2. Default: stsb:dev. microworld:dev is generated and needs no download."""
    positive_above: Logit | None = None
    """Alignment is measured on the pairs with a score above this. Default: 0.8 of the maximum score: 4 on STS-B (Gao et
    al. 2021, section 3), 0.8 of the highest score in a file."""
    task: File | None = None
    """Scored pairs to evaluate every layer and pooling on; by default stsb (its test split)."""
    labelled: File | None = None
    """Labelled texts to plot: a named set, or a file with the columns text, label; by default sst2:test."""
    labelled_limit: PlotPoints = 400
    """Number of labelled texts to plot."""
    seed: NumpySeed = 0
    """Seed of the sample for uniformity, of t-SNE, of the choice among pairs with equal scores, and of the sample of
    --texts."""

    def conflicts(self) -> Iterator[str]:
        """Values that exclude each other."""
        if self.output is None and self.page is None:
            yield "Name what to write: --output FOLDER for measures and plots, --page FILE for a page, or both."
        for names, output, needed in (
            (_OF_PAGE, self.page, "--page FILE"),
            (_OF_OUTPUT, self.output, "--output FOLDER"),
        ):
            for name in names:
                if output is None and getattr(self, name) is not None:
                    yield f"{flag(name)} needs {needed}."
        if self.page is not None and not self.page.lower().endswith((".html", ".htm")):
            yield f"--page {self.page}: must end in .html."
        if self.page is not None and self.texts is None:
            yield "--page needs --texts: the texts to show, as a file or a named set."

    def check_models(self, count: int) -> None:
        """Raise a NearfarError if a page of this number of models is asked for; it shows one or two."""
        if self.page is not None and count > 2:
            raise NearfarError(
                f"--page shows one model, or two (before and after), not {count}. Write a page for each pair."
            )
