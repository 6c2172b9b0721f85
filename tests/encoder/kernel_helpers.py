"""Fake compilers for the compiled kernels, and assertions about whether the kernels are available."""

import warnings

import pytest

from nearfar.encoder import kernels
from nearfar.encoder.kernels import Kernels, build, kernels_status


def _compile() -> Kernels | None:
    try:
        return Kernels(build.load())
    except build.KernelBuildError:
        return None


COMPILED = _compile()
"""The kernels, on any processor whose machine has a compiler."""
needs_kernels = pytest.mark.skipif(COMPILED is None, reason="no compiler to build the kernels with")
implementations = pytest.mark.parametrize("implementation", [pytest.param("kernels", marks=needs_kernels), "plain"])
OUT = 'while [ "$1" != -o ]; do shift; done\n'


def next_process() -> None:
    """Clear the caches, as in a new process."""
    kernels.load.cache_clear()


def fallback_warning() -> str:
    """Assert that the kernels are not available; return the only warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert kernels.kernels() is None
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "\n" not in message
    assert message.startswith("the compiled kernels are not used: ")
    status = kernels_status()
    assert status["used"] is False
    assert status["why_not"] in message
    return message


def built() -> None:
    """Assert that the kernels are available, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.kernels() is not None
