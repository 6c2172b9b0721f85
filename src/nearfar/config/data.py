"""Settings of ``nearfar get-data``."""

from dataclasses import dataclass

from nearfar.config.bounds import File, Output
from nearfar.config.values import Settings


@dataclass(frozen=True, kw_only=True)
class GetDataConfig(Settings):
    """Download public data sets into the data folder, convert downloads of your own, or list the sets.

    Without NAME and --source it lists all sets. A download that was interrupted is resumed by the same command.
    """

    source: File | None = None
    """Convert this instead of downloading: a folder, archive or file, as SentEval's data/downstream, GLUE's archives,
    or the official packages."""
    output: Output | None = None
    """The data folder to write; by default NEARFAR_DATA."""
    list: bool = False
    """List the sets: where each is, its rows and licence, the papers' tables that need it, and how to get it."""
    overwrite: bool = False
    """Make files again that exist in the data folder."""
