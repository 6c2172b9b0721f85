"""Versions of nearfar and of the packages it runs with, for results, bug reports and ``nearfar --version``."""


def package_version(name: str) -> str | None:
    """The version of an installed distribution, or None if it is not installed.

    For nearfar it is ``nearfar.__version__``, the version of the running code. The metadata of an editable install may be
    older.
    """
    if name == "nearfar":
        from nearfar import __version__

        return __version__

    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
