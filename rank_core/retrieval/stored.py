"""Vectors in the precision in which an index stores them, and the numbers that a search reads.

Codes are those of `quantize_embeddings` of sentence-transformers 6.2: int8 has 256 steps between
the least and the largest value of each dimension over the collection, binary the sign of each. The
query stays in fp32, and a search multiplies it with the values of the codes, as
`semantic_search_faiss` and `semantic_search_usearch` rescore what they find: here every chunk.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Singles
from rank_core.settings.config import STORED

FP32, INT8, BINARY = STORED
STEPS = 255
"""Between the least and the largest value of a dimension."""


class Ranges(NamedTuple):
    """The least and the largest value of each dimension."""

    low_D: Singles
    high_D: Singles

    @property
    def steps(self) -> Singles:
        """step_D between neighbouring codes; 1 where all values are equal."""
        step_D = (self.high_D - self.low_D) / np.float32(STEPS)
        return np.where(step_D == 0, np.float32(1), step_D)


def vector_bytes(stored: str, dimensions: int) -> int:
    """The bytes of a stored vector.

    Examples:
        >>> [vector_bytes(stored, 384) for stored in ("fp32", "int8", "binary")]
        [1536, 384, 48]
    """
    return {FP32: 4 * dimensions, INT8: dimensions, BINARY: -(-dimensions // 8)}[stored]


def ranges_of(blocks: Iterable[Singles], dimensions: int) -> Ranges:
    """The ranges over blocks of vectors; infinite, the least above the largest, without any."""
    low_D = np.full(dimensions, np.inf, np.float32)
    high_D = -low_D
    for block_ND in blocks:
        np.minimum(low_D, block_ND.min(axis=0), out=low_D)
        np.maximum(high_D, block_ND.max(axis=0), out=high_D)
    return Ranges(low_D, high_D)


def int8_codes(vector_ND: Singles, ranges: Ranges) -> NDArray[np.int8]:
    """code_ND; values beyond the ranges get the code of their end."""
    code_ND = np.floor((vector_ND - ranges.low_D) / ranges.steps)
    return (np.clip(code_ND, 0, STEPS) - 128).astype(np.int8)


def int8_values(code_ND: NDArray[np.int8], ranges: Ranges) -> Singles:
    """The values that codes stand for: the lower ends of their steps."""
    return (code_ND.astype(np.float32) + np.float32(128)) * ranges.steps + ranges.low_D


def binary_codes(vector_ND: Singles) -> NDArray[np.uint8]:
    """Eight signs to a byte, 1 for values above 0 (`ubinary`; `binary` has these bytes less 128).
    The last byte is filled with zeros."""
    return np.packbits(vector_ND > 0, axis=-1)


def binary_values(code_NB: NDArray[np.uint8], dimensions: int) -> Singles:
    """1 where a value was above 0, else 0: products with a query rank as those with 1 and -1 do."""
    return np.unpackbits(code_NB, axis=-1, count=dimensions).astype(np.float32)
