"""A terminal that is as wide as the longest finding: tests of its words read lines."""

import pytest


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
