"""Atomic writes."""

import pytest

from rank_core.files import atomic_write


def test_a_file_is_replaced_only_when_complete(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with atomic_write(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old" and unfinished.parent == tmp_path
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failed_write_leaves_and_changes_nothing(tmp_path, error):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as unfinished:
        unfinished.write_text("half")
        raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
