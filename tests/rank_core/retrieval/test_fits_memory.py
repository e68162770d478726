"""Where an index is read: in memory up to half of it, from the disk above."""

from types import SimpleNamespace

import pytest

from rank_core.retrieval import index
from rank_core.retrieval.index import DenseIndex

MEMORY = 8000


@pytest.mark.parametrize(("chunks", "fits"), [(100, True), (101, False)])
def test_an_index_in_memory_takes_half_of_it_at_most(monkeypatch, chunks, fits):
    """4 bytes x 10 dimensions x 100 chunks are half of 8,000 bytes, for one worker's share."""
    monkeypatch.setattr(index, "memory_bytes", lambda: MEMORY)
    share = SimpleNamespace(_start=7, _end=7 + chunks, model=SimpleNamespace(dimensions=10))
    assert DenseIndex.fits_memory.fget(share) == fits
