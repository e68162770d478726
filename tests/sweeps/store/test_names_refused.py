"""A name that a file system does not allow is bad input at once: no waiting mends it."""

import time

import pytest

from rank_core.errors import BadInput
from sweeps.store.storage import Storage


@pytest.mark.parametrize("name", ["x" * 260, "x" * 5000])
def test_a_name_that_is_too_long_is_refused_at_once(name, tmp_path):
    storage = Storage(str(tmp_path))
    storage.open()
    storage.write("sweep.json", b"{}")
    started = time.monotonic()
    for attempt in (lambda: storage.write(f"{name}/a", b"x"), lambda: storage.read(f"{name}/a")):
        with pytest.raises(BadInput, match="File name too long"):
            attempt()
    assert time.monotonic() - started < 5
