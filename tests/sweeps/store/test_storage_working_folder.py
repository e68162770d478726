"""A command may be given in the folder of its storage, which may be unmounted and come back."""

import os
import shutil

import pytest

from sweeps.store.storage import Storage


def test_who_stands_in_a_storage_that_was_away_stands_in_it_again(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.chdir(folder)
    storage = Storage(str(folder))
    storage.open()
    shutil.copytree(folder, tmp_path / "disk")
    shutil.rmtree(folder)
    with pytest.raises(OSError, match="missing or not mounted"):
        storage.require()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    shutil.copytree(tmp_path / "disk", folder)
    storage.require()
    assert os.getcwd() == str(folder)
