"""TOML files of settings."""

import tomllib
from pathlib import Path
from typing import Any

from nearfar.types import NearfarError

MAX_CONFIG_BYTES = 2**20
"""Bytes of a config file; a larger file is something else."""


def read_toml(file: str | Path) -> dict[str, Any]:
    """The keys and values of a TOML file; they are not checked.

    Raises:
        NearfarError: no such file, no TOML, or too large for settings.
    """
    path = Path(file)
    try:
        if path.exists() and not path.is_file():  # a pipe or device could be read for ever
            raise NearfarError(f"{file}: cannot be read as TOML: it is {'a folder' if path.is_dir() else 'no file'}.")
        with path.open("rb") as opened:
            content = opened.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            raise NearfarError(
                f"{file}: cannot be read as TOML: it has over {MAX_CONFIG_BYTES:,} bytes, too many for settings."
            )
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise NearfarError(f"{file}: cannot be read as TOML: it is not UTF-8 text ({error.reason}).") from error
    except RecursionError:
        raise NearfarError(f"{file}: cannot be read as TOML: its values are nested too deeply.") from None
    except (OSError, ValueError) as error:  # tomllib's own errors among them
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NearfarError(f"{file}: cannot be read as TOML: {reason.rstrip('.')}.") from error
