"""Fixtures of the tests of chat models: a loopback server, a clock, a key."""

import pytest

from tests.rank_core.llm.server import PLANTED_KEY, VARIABLE, Clock, chat_server


@pytest.fixture
def server():
    """A chat server of the test's own."""
    with chat_server() as running:
        yield running


@pytest.fixture
def clock():
    """A clock that advances only by sleeping."""
    return Clock()


@pytest.fixture
def key(monkeypatch):
    """A key in the environment, which must not be shown."""
    monkeypatch.setenv(VARIABLE, PLANTED_KEY)
    return PLANTED_KEY
