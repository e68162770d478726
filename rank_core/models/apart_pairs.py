"""Query and chunks as rows of their own, so that neither is read in the light of the other."""

import numpy as np
from numpy import int32
from numpy.typing import NDArray

from rank_core.batches import Chunk, PairEncoder

NOTHING: NDArray[int32] = np.zeros(0, dtype=int32)
NUM_MARKS = 3  # of a row: [CLS] [SEP] text [SEP]


class ApartPairs(PairEncoder):
    """A document is its query, then its chunks, each a row [CLS] [SEP] text [SEP] of its own."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The query's row and the chunks' rows."""
        texts = [chunk.text for chunk in super().chunks(query, doc_id)]
        return [Chunk(NOTHING, text) for text in (query, *texts)]
