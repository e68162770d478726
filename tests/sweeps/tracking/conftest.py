"""An MLflow database of each test's own."""

import shutil
from pathlib import Path

import pytest

from sweeps.tracking.client import connect


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An initialised MLflow database; making one takes a second, copying it does not."""
    database = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    connect(f"sqlite:///{database}")
    return database


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"
