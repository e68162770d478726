"""Query and chunks as rows of their own, so that neither is read in the light of the other."""

from collections.abc import Sequence

import numpy as np
from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, PairEncoder

NOTHING: NDArray[int32] = np.zeros(0, dtype=int32)
NUM_MARKS = 3  # of a row: [CLS] [SEP] text [SEP]


class ApartPairs(PairEncoder):
    """A document is its query, then its chunks, each a row [CLS] [SEP] text [SEP] of its own."""

    def rows(self, query: NDArray[int32], texts: Sequence[NDArray[int32]]) -> list[Chunk]:
        """The query's row and the chunks' rows."""
        return [Chunk(NOTHING, text) for text in (query, *texts)]
