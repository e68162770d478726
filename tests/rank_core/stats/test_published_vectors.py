"""Published per-query data through our tests, down to the printed digits.

The differences of Urbano's example are those of two systems of TREC-8 (Urbano, Lima and Hanjalic,
SIGIR 2019; the scores are published under CC BY-SA 4.0), those of PermTest are its sample of four
BM25 variants on 349 and 324 queries (Boytsov, Belova and Westfall, SIGIR 2013; Apache-2.0).
"""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rank_core.stats.bootstrap import crossed_weights
from rank_core.stats.multiplicity import CORRECTIONS, holm
from rank_core.stats.permutation import randomised_tukey
from rank_core.stats.scopes import confidence_interval, scope_test
from tests.rank_core.stats.matrices import SAKAI, matrix_of

# System 126 minus system 125 of the example, average precision in units of .0001, 50 topics.
URBANO = """
183 1413 317 282 249 2557 301 306 -1000 1658 1468 189 122 2230 2480 -337 -312 1216 147 291 -37 51
-411 793 2801 -349 57 -292 -1238 1097 2259 87 -501 -131 1518 139 312 2054 -300 355 -62 -156 550
-1294 1681 1724 -1884 -2 821 3102
"""
DELTA_Q = np.array(URBANO.split(), dtype=float) / 1e4


def permtest(measure: str) -> dict[str, np.ndarray]:
    """{row: values per query}; the files hold the digits behind the decimal point."""
    digits = {"map": 4, "ndcg": 5}[measure]
    lines = (Path(__file__).parent / f"permtest_{measure}.txt").read_text().splitlines()
    rows = [np.array(line.split(), dtype=float) / 10**digits for line in lines]
    return {str(number): values for number, values in enumerate(rows)}


def test_urbano_s_example_has_its_published_t_test() -> None:
    test = scope_test(DELTA_Q[None], np.zeros((1, 50)))
    assert test.p_queries == pytest.approx(0.0013193972, abs=5e-11)
    assert test.delta / test.se_queries == pytest.approx(3.4072971705, abs=5e-11)
    assert test.delta == pytest.approx(0.053008, abs=5e-7)
    low, high = confidence_interval(test, scope="queries")
    assert (low, high) == pytest.approx((0.0217446, 0.0842714), abs=5e-8)
    assert math.isnan(test.p_both)


def test_urbano_s_example_has_its_published_sign_permutation_and_bootstrap_tests() -> None:
    """Sign test: topics within .01 tie. The other two published values are simulations as well."""
    wins, losses = int((DELTA_Q > 0.01).sum()), int((DELTA_Q < -0.01).sum())
    assert (wins, losses) == (31, 13)
    assert stats.binomtest(wins, wins + losses).pvalue == pytest.approx(0.009559879, abs=5e-10)
    num = 100_000
    matrix = matrix_of({"125": np.zeros(50), "126": DELTA_Q})
    rng = np.random.default_rng(1)
    (permuted,) = randomised_tukey(matrix, rng=rng, num_permutations=num)
    assert permuted.p == pytest.approx(0.001188, abs=3 * math.sqrt(0.0012 / num))
    weights = crossed_weights(matrix, rng=rng, num_replicates=num)
    shifted_B = weights.queries_BQ @ (DELTA_Q - DELTA_Q.mean())
    share = float((np.abs(shifted_B) >= DELTA_Q.mean()).mean())
    assert share == pytest.approx(0.000586, abs=3 * math.sqrt(0.0006 / num))


@pytest.mark.parametrize(
    ("measure", "published"), [("map", (0.207, 0.1483, 0.0)), ("ndcg", (0.0628, 0.3304, 0.0))]
)
def test_the_sample_of_permtest_has_its_published_unadjusted_values(
    measure: str, published: tuple[float, ...]
) -> None:
    """Each pair on its own: its labels are the only ones that are exchanged."""
    scores = permtest(measure)
    found = [
        randomised_tukey(
            matrix_of({"0": scores["0"], other: scores[other]}),
            rng=np.random.default_rng(2),
            num_permutations=10_000,
        )[0].p
        for other in "123"
    ]
    # Three standard errors of ten thousand permutations here and as many there are below .017.
    assert found == pytest.approx(published, abs=0.017)
    assert found[2] < 3e-4


def test_holm_of_the_t_tests_of_permtest_has_its_known_values() -> None:
    scores = permtest("map")
    p_t = [stats.ttest_rel(scores[other], scores["0"]).pvalue for other in "123"]
    assert holm(p_t) == pytest.approx([0.2872, 0.2872, 1.7e-5], rel=0.01)


def test_the_randomised_tukey_test_lies_beside_the_blocked_one_of_normal_theory() -> None:
    """Sakai's three systems on twenty topics: .2567, .0957 and .8550 by the studentised range with
    the residual of the two-way table."""
    scores = {name: np.array(text.split(), dtype=float) / 10 for name, text in SAKAI.items()}
    score_KQ = np.stack(list(scores.values()))
    residual_KQ = score_KQ - score_KQ.mean(axis=1, keepdims=True) - score_KQ.mean(axis=0)
    error = float(((residual_KQ + score_KQ.mean()) ** 2).sum()) / 38
    found = randomised_tukey(
        matrix_of(scores), rng=np.random.default_rng(4), num_permutations=10_000
    )
    blocked = [
        float(stats.studentized_range.sf(one.statistic / math.sqrt(error / 20), 3, 38))
        for one in found
    ]
    assert blocked == pytest.approx([0.2567, 0.0957, 0.8550], abs=5e-5)
    assert [one.p_adjusted for one in found] == pytest.approx(blocked, abs=0.06)


P_ADJUST = {
    "bonferroni": (0.04, 0.16, 0.12, 0.02),
    "holm": (0.03, 0.06, 0.06, 0.02),
    "simes-hochberg": (0.03, 0.04, 0.04, 0.02),
    "hommel": (0.03, 0.04, 0.04, 0.02),
    "fdr_bh": (0.02, 0.04, 0.04, 0.02),
    "fdr_by": (0.041667, 0.083333, 0.083333, 0.041667),
}


@pytest.mark.slow
def test_our_corrections_stand_where_they_should_among_all_of_p_adjust() -> None:
    """The six adjustments of R's example by statsmodels; Holm and Benjamini-Hochberg are ours."""
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = [0.01, 0.04, 0.03, 0.005]
    for method, expected in P_ADJUST.items():
        assert multitest.multipletests(p, method=method)[1] == pytest.approx(expected, abs=5e-7)
    rng = np.random.default_rng(5)
    for num in (1, 2, 17, 60):
        values = rng.uniform(size=num) ** 2
        of = {name: multitest.multipletests(values, method=name)[1] for name in P_ADJUST}
        ours = {name: CORRECTIONS[name](values) for name in ("holm", "bh")}
        assert ours["holm"] == pytest.approx(of["holm"], rel=1e-12)
        assert ours["bh"] == pytest.approx(of["fdr_bh"], rel=1e-12)
        assert (ours["bh"] <= of["hommel"] + 1e-12).all()
        assert (of["hommel"] <= of["simes-hochberg"] + 1e-12).all()
        assert (of["simes-hochberg"] <= ours["holm"] + 1e-12).all()
        assert (ours["holm"] <= of["bonferroni"] + 1e-12).all()
        assert (ours["bh"] <= of["fdr_by"] + 1e-12).all()
