"""Versions of nearfar and of the packages it runs with, for results, bug reports and ``nearfar --version``."""

__version__ = "0.2.0.dev0"


def package_version(name: str) -> str | None:
    """The version of an installed distribution, or None if it is not installed.

    For nearfar it is the version of the running code. The metadata of an editable install may be older.
    """
    if name == "nearfar":
        return __version__

    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
