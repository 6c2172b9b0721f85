"""Fewer random words, so that runs that train beside them are short."""

from collections.abc import Iterator

import pytest

from nearfar.encoder import tokens


@pytest.fixture(scope="module", autouse=True)
def few_random_words() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "TEXTS", 300)
        yield
