"""What all clusters of a test run have in common."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all machines of all clusters see."""
    return tmp_path_factory.mktemp("shared")
