"""``nearfar push``: one commit with all files of a model folder, and a model card in place of its README.md."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.commands.model_card import is_own_card, model_card
from nearfar.commands.soup import SOUP_FILE
from nearfar.config.calls import accepts_settings
from nearfar.config.verbs import PushConfig
from nearfar.disk import read_text
from nearfar.disk.checks import path_errors
from nearfar.disk.model_folder import model_of_run
from nearfar.encoder.folder_checks import ADAPTER, read_object
from nearfar.encoder.weights import CARD, path_of
from nearfar.evaluation.results import EvaluationResult
from nearfar.types import NearfarError

LOGIN = " Log in by hf auth login, or set HF_TOKEN to a token that may write."


@dataclass(frozen=True)
class PushResult:
    """What was uploaded, or in a dry run would be."""

    name: str
    """The repository, ``owner/name``."""
    files: dict[str, int]
    """Path in the repository -> bytes, with the card."""
    card: str
    """The text of README.md."""
    is_own_card: bool
    """Whether nearfar wrote the card; False for a README.md of the user's."""
    url: str | None
    """Where the commit or the pull request is; None in a dry run."""


@accepts_settings(PushConfig)
@path_errors()
def push(model: str | Path, name: str, config: PushConfig) -> PushResult:
    """Upload a model folder to ``name`` on the Hugging Face Hub, which is created if it is missing.

    Settings can be given by name: ``push("runs/mine", "me/my-encoder", private=True)``; see
    :class:`nearfar.PushConfig`. All files go into one commit, so that a stopped upload changes nothing on the hub. A
    README.md that nearfar did not write is uploaded as it is.

    Args:
        model: a finished run folder, or a model folder.
        name: ``owner/name``.
        config: the settings.

    Raises:
        NearfarError: no model in the folder, an invalid name, a result file that cannot be read; the hub cannot be
            reached, or refuses the token, the repository, the card or a file.
    """
    folder = model_of_run(Path(model))
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        raise NearfarError(f"{model}: is no model folder: it has neither modules.json nor config.json.")
    adapter = folder / ADAPTER
    if adapter.is_file() and path_of(base := str(read_object(adapter).get("base_model_name_or_path"))).is_dir():
        problem = f"the adapter belongs to the folder {base}, which nobody else has"
        raise NearfarError(f"{adapter}: {problem}; push that first and name it here, or train with --adapter merge.")
    if name.count("/") != 1:
        raise NearfarError(f"{name}: give owner/name, such as me/my-encoder.")
    evaluations = [EvaluationResult.load(file) for file in config.results]
    own = is_own_card(folder / CARD)
    if not own and (evaluations or config.examples):
        raise NearfarError(
            f"{folder / CARD}: is not nearfar's, so --results and --examples cannot be added. Remove it or the flag."
        )
    shown: dict[str, Any] = {"name": name, "results": evaluations, "examples": config.examples}
    card = model_card(folder, **shown) if own else read_text(folder / CARD)
    contents: dict[str, Path | bytes] = {**_files(folder), CARD: card.encode()}
    sizes = {path: len(one) if isinstance(one, bytes) else one.stat().st_size for path, one in contents.items()}
    url = None if config.dry_run else _upload(name, contents, config)
    return PushResult(name, dict(sorted(sizes.items())), card, own, url)


def _files(folder: Path) -> dict[str, Path | bytes]:
    """Path in the repository -> file, for all files but hidden ones, and the record of an average, which names folders.

    Raises:
        NearfarError: a file is a link to a place outside the folder.
    """
    found: dict[str, Path | bytes] = {}
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(folder)
        if not file.is_file() or inner == Path(SOUP_FILE) or any(part.startswith(".") for part in inner.parts):
            continue
        if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve()):
            raise NearfarError(
                f"{file}: is a link to {file.resolve()}, outside the model folder; replace it by a copy."
            )
        found[inner.as_posix()] = file
    return found


def _upload(name: str, contents: dict[str, Path | bytes], config: PushConfig) -> str:
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi()
    operations = [CommitOperationAdd(path_in_repo=path, path_or_fileobj=one) for path, one in contents.items()]
    try:
        api.create_repo(name, private=config.private or None, exist_ok=True)
        how: dict[str, Any] = {"revision": config.revision, "create_pr": config.pull_request}
        done = api.create_commit(name, operations, commit_message=config.message, **how)
    except Exception as error:  # of the hub, of the connection, or of the check of the name or the card
        status = getattr(getattr(error, "response", None), "status_code", None)
        said = str(getattr(error, "server_message", None) or error.__cause__ or error).strip().partition("\n")[0]
        raise NearfarError(
            f"{name}: {api.endpoint} cannot be reached or refused the upload: {f'{status}, ' if status else ''}{said}. "
            f"Nothing was uploaded.{LOGIN if status in (401, 403) else ''}"
        ) from error
    return str(done.pr_url or done.commit_url)
