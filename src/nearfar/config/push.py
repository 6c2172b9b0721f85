"""Settings of ``nearfar push``."""

from dataclasses import dataclass

from nearfar.config.bounds import File
from nearfar.config.values import Settings


@dataclass(frozen=True, kw_only=True)
class PushConfig(Settings):
    """Upload a model to the Hugging Face Hub with a model card of its training, data and scores.

    Log in first: hf auth login, or the environment variable HF_TOKEN. HF_ENDPOINT names another server.
    """

    private: bool = False
    """Create the repository as a private one; an existing repository stays as it is."""
    results: tuple[File, ...] = ()
    """Result files of nearfar evaluate whose scores the card shows."""
    message: str = "Upload model"
    """Message of the commit."""
    revision: str | None = None
    """Branch to upload to; it must exist. By default main."""
    pull_request: bool = False
    """Open a pull request in place of a commit."""
    dry_run: bool = False
    """List the files and show the card; upload nothing."""
