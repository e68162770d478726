"""A published model for tests: `make test-real` fetches it; the product never needs it."""

import os
from pathlib import Path

import pytest

from rank_core.files import file_sha256

FOLDER = "RANKSWEEP_TEST_MINILM"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of sentence-transformers/all-MiniLM-L6-v2 with its published weights."""
    if not (named := os.environ.get(FOLDER)):
        pytest.skip(f"{FOLDER} names no folder: `make test-real` fetches the model")
    weights = Path(named, "model.safetensors")
    if not weights.is_file():
        pytest.skip("the package of the model cannot be had here")
    assert file_sha256(weights) == SHA256
    return Path(named)
