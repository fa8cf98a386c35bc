"""Fixtures of the tuning tests."""

import pytest

from .rounds import shorten


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the programs that a session compares at its end."""
    shorten(monkeypatch.setattr)
