"""Sizes in words, by hand."""

import pytest

from rank_core.units import size_text

SIZES = {
    0: "0 B",
    1023: "1,023 B",
    1024: "1.0 KiB",
    2**20 - 1: "1,024.0 KiB",
    2**20: "1.0 MiB",
    3 * 2**30 // 2: "1.5 GiB",
    5 * 2**40: "5.0 TiB",
    5000 * 2**40: "5,000.0 TiB",
}


@pytest.mark.parametrize("size", SIZES)
def test_a_size_is_in_the_largest_unit_of_which_there_is_one(size):
    assert size_text(size) == SIZES[size]
