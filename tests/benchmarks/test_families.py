"""Small models of published families have the scores of the library that saved them."""

import pytest

from tests.benchmarks.families import FAMILIES, compared

pytest.importorskip("sentence_transformers", minversion="6.2", reason="extra serve")
QUICK = ("ms-marco-MiniLM", "Qwen3-Reranker", "e5", "potion", "PyLate")


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one.name not in QUICK), id=one.name)
        for one in FAMILIES
    ],
)
def test_a_family_is_read_as_its_own_library_reads_it(family, tmp_path):
    found = compared(family, tmp_path)
    assert not found.refused, found
    assert found.difference <= 1e-5 and not found.reordered, found
