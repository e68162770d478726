"""The simulated tables of clusters are judged as the library judges them."""

import numpy as np
import pytest

from rank_core.stats.clusters import clustered
from rank_core.stats.compare import scope_test_of
from rank_core.stats.matrix import ScoreMatrix
from tests.benchmarks import clustered as benchmark
from tests.benchmarks.error_rates import _pair_tests


def test_many_tables_at_once_have_the_librarys_columns_and_p():
    rng = np.random.default_rng(1)
    sizes = np.array([1, 4, 2, 7, 3])
    score_NKSQ = rng.normal(size=(3, 4, 3, sizes.sum()))
    columns = benchmark._in_clusters(score_NKSQ, sizes)
    found = _pair_tests(benchmark._of_clusters(score_NKSQ, sizes), 0)
    names = np.repeat(np.arange(5), sizes).astype(str)
    for table, own, p_J in zip(score_NKSQ, columns, found.own, strict=True):
        ids = tuple(map(str, range(sizes.sum())))
        seeds = dict.fromkeys("abcd", (1, 2, 3))
        matrix = ScoreMatrix("", tuple("abcd"), ids, seeds, dict(zip("abcd", table, strict=True)))
        of_library = clustered(matrix, dict(zip(ids, names, strict=True)))
        for cell, score_SG in zip("abcd", own, strict=True):
            assert score_SG == pytest.approx(of_library.scores[cell], abs=1e-12)
        expected = [
            scope_test_of(of_library, (cell, "a"), paired_seeds=False, deterministic=()).p_both
            for cell in "bcd"
        ]
        assert p_J == pytest.approx(expected, rel=1e-6)
