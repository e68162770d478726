"""Stored vectors are those of sentence-transformers, code by code."""

import numpy as np
import pytest

from rank_core.retrieval.stored import (
    Ranges,
    binary_codes,
    binary_values,
    int8_codes,
    int8_values,
    ranges_of,
    vector_bytes,
)

VECTORS = np.random.default_rng(3).normal(size=(300, 20)).astype(np.float32)
VECTORS[:, 7] = 0.25  # a dimension without a range
VECTORS[5] = 0.0


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers.util.quantization")


def test_codes_are_those_of_the_library_and_values_are_its_own(library):
    ranges = ranges_of([VECTORS[:120], VECTORS[120:]], 20)
    code_ND = int8_codes(VECTORS, ranges)
    assert code_ND.dtype == np.int8
    np.testing.assert_array_equal(code_ND, library.quantize_embeddings(VECTORS, "int8"))
    beyond_ND = 2 * VECTORS
    np.testing.assert_array_equal(
        int8_codes(beyond_ND, ranges),
        library.quantize_embeddings(beyond_ND, "int8", ranges=np.stack(ranges)),
    )
    expected = library._dequantize_embeddings(code_ND, "int8", np.stack(ranges))
    np.testing.assert_allclose(int8_values(code_ND, ranges), expected, atol=1e-6)
    assert (np.abs(int8_values(code_ND, ranges) - VECTORS) <= ranges.steps + 1e-6).all()


@pytest.mark.parametrize("dimensions", [20, 16, 3])
def test_signs_are_packed_as_the_library_packs_them(library, dimensions):
    vector_ND = VECTORS[:, :dimensions]
    code_NB = binary_codes(vector_ND)
    np.testing.assert_array_equal(code_NB, library.quantize_embeddings(vector_ND, "ubinary"))
    signed = (code_NB.astype(np.int16) - 128).astype(np.int8)
    np.testing.assert_array_equal(signed, library.quantize_embeddings(vector_ND, "binary"))
    np.testing.assert_array_equal(binary_values(code_NB, dimensions), vector_ND > 0)
    assert code_NB.nbytes == len(VECTORS) * vector_bytes("binary", dimensions)


def test_codes_by_hand():
    ranges = Ranges(np.float32([0, -1]), np.float32([255, 254]))
    vector_ND = np.float32([[0, -1], [1.5, 0], [255, 254], [-3, 300]])
    code_ND = int8_codes(vector_ND, ranges)
    assert code_ND.tolist() == [[-128, -128], [-127, -127], [127, 127], [-128, 127]]
    assert int8_values(code_ND, ranges)[:, 0].tolist() == [0, 1, 255, 0]
    assert binary_codes(np.float32([[1, 0, -1, 2, 0, 0, 0, 0, 3]])).tolist() == [[0b10010000, 128]]
