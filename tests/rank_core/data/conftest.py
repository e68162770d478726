"""A home for ir_datasets with small collections in real formats, without network."""

from pathlib import Path

import pytest

from tests.rank_core.data import real_formats


@pytest.fixture(scope="session")
def ir_environment(tmp_path_factory):
    """The environment of a process that reads the collections; nothing listens on loopback port
    9."""
    home = tmp_path_factory.mktemp("ir-home")
    return {
        "IR_DATASETS_HOME": str(home),
        "IR_DATASETS_TMP": str(home / "tmp"),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }


@pytest.fixture
def ir_home(ir_environment, monkeypatch):
    """The home of this test run; every test starts with ir_datasets set up for it."""
    for name, value in ir_environment.items():
        monkeypatch.setenv(name, value)
    home = Path(ir_environment["IR_DATASETS_HOME"])
    real_formats.settle_ir_datasets(home)
    return home


@pytest.fixture(scope="session")
def _written(ir_environment):
    home, done = Path(ir_environment["IR_DATASETS_HOME"]), set()

    def write(name, *arguments):
        if (name, arguments) not in done:
            done.add((name, arguments))
            getattr(real_formats, name)(home, *arguments)

    return write


@pytest.fixture
def written(ir_home, _written):
    """`written("robust04")` puts a collection in place once in a session."""
    return _written
