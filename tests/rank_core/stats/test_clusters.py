"""Clusters of queries: by hand, against statsmodels, and against the tests of single queries."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.best import best_set
from rank_core.stats.clusters import clustered, design_effect, joined
from rank_core.stats.compare import compare_cells, scope_test_of
from rank_core.stats.family import correlations
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.permutation import randomised_tukey
from rank_core.stats.strata import compare_collections, over_collections
from tests.rank_core.stats.matrices import drawn, matrix_of

PLAIN = {"paired_seeds": False, "deterministic": ()}


def named(matrix: ScoreMatrix, clusters: str) -> dict[str, str]:
    return dict(zip(matrix.query_ids, clusters, strict=True))


def test_the_standard_error_by_hand() -> None:
    """d = 3, 1, 0, 0 in the clusters x, x, y, z: the means without x, y and z are 0, 4/3 and 4/3,
    their mean is 8/9, so that V_q = 2 / 3 * (64 + 16 + 16) / 81 = 64 / 81. Of independent queries
    the pseudo-values less their mean have the covariances M with tr M = 44/27 and tr M M =
    1168/729, so that V_q has 44^2 / 1168 = 121/73 degrees of freedom."""
    matrix = matrix_of({"A": [3.0, 1.0, 0.0, 0.0], "B": [0.0, 0.0, 0.0, 0.0]})
    test = scope_test_of(clustered(matrix, named(matrix, "xxyz")), ("A", "B"), **PLAIN)
    assert test.delta == pytest.approx(1.0, rel=1e-15)
    assert test.se_queries == pytest.approx(8 / 9, rel=1e-12)
    assert test.df_queries == pytest.approx(121 / 73, rel=1e-12)
    assert test.p_queries == pytest.approx(2 * stats.t.sf(9 / 8, 121 / 73), rel=1e-12)


@pytest.mark.parametrize(
    "sizes", [[5] * 20, [30, 15, 10, 5, 5, *[4, 4], *[3] * 4, *[2] * 4, *[1] * 7], [20, *[1] * 80]]
)
def test_the_degrees_of_freedom_are_those_of_a_chi_square_with_equal_moments(
    sizes: list[int],
) -> None:
    """Of V_q as a quadratic form of independent queries, whose matrix is that of the pseudo-values
    of single queries; G - 1 for clusters of one size, and as drawn values have it."""
    groups, Q, G = np.repeat(np.arange(len(sizes)), sizes), sum(sizes), len(sizes)
    own = of_groups(matrix_of({str(q): np.eye(Q)[q] for q in range(Q)}), groups)
    P_QG = np.array([own.scores[str(q)][0] - 1 / Q for q in range(Q)])
    form_QQ = P_QG @ P_QG.T / (G * (G - 1))
    form_QQ = form_QQ - form_QQ.mean(axis=0) - form_QQ.mean(axis=1)[:, None] + form_QQ.mean()
    df = np.trace(form_QQ) ** 2 / np.trace(form_QQ @ form_QQ)
    assert own.query_df[0] == pytest.approx(df, rel=1e-9)
    assert (df == pytest.approx(G - 1, rel=1e-9)) == (len(set(sizes)) == 1)
    assert own.query_df[0] <= G - 1
    drawn_NQ = np.random.default_rng(1).normal(size=(4000, Q))
    V_N = ((drawn_NQ @ form_QQ) * drawn_NQ).sum(axis=1)
    assert 2 * V_N.mean() ** 2 / V_N.var() == pytest.approx(df, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("icc", [0.0, 0.5, 0.9])
def test_clusters_of_very_uneven_size_keep_the_level(icc: float) -> None:
    """22 clusters, of which two have 45 of 100 queries; on G - 1 degrees of freedom the error is
    .09 to .13 (2,000 tables)."""
    groups = np.repeat(np.arange(22), [30, 15, 10, 5, 5, *[4, 4], *[3] * 4, *[2] * 4, *[1] * 7])
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(2000):
        delta_Q = icc**0.5 * rng.normal(size=22)[groups] + (1 - icc) ** 0.5 * rng.normal(size=100)
        own = of_groups(matrix_of({"A": delta_Q, "B": np.zeros(100)}), groups)
        wrong += scope_test_of(own, ("A", "B"), **PLAIN).p_queries < 0.05
    assert wrong / 2000 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)


def test_the_liang_zeger_variance_by_hand() -> None:
    """Of two clusters of two: the totals of deviations from 1 are 2 and -2, V_q = 2 * 8 / 16."""
    matrix = matrix_of({"A": [3.0, 1.0, 0.0, 0.0], "B": [0.0, 0.0, 0.0, 0.0]})
    test = scope_test_of(clustered(matrix, named(matrix, "xxyy")), ("A", "B"), **PLAIN)
    assert test.variance_queries == pytest.approx(1.0, rel=1e-15)


def of_groups(matrix: ScoreMatrix, groups: np.ndarray) -> ScoreMatrix:
    return clustered(matrix, dict(zip(matrix.query_ids, map(str, groups), strict=True)))


def test_parity_with_statsmodels() -> None:
    """Its cluster-robust covariance of a mean, with the small-sample factor, for equal clusters."""
    import statsmodels.api as sm

    rng = np.random.default_rng(3)
    groups = rng.permutation(np.repeat(np.arange(12), 5))
    delta_Q = rng.normal(0, 1, 12)[groups] + rng.normal(0, 1, 60)
    own = of_groups(matrix_of({"A": delta_Q, "B": np.zeros(60)}), groups)
    test = scope_test_of(own, ("A", "B"), **PLAIN)
    fit = sm.OLS(delta_Q, np.ones(60)).fit(
        cov_type="cluster", cov_kwds={"groups": groups}, use_t=True
    )
    assert test.se_queries == pytest.approx(float(fit.bse[0]), rel=1e-12)
    assert test.p_queries == pytest.approx(float(fit.pvalues[0]), rel=1e-9)
    assert test.df_queries == 11


def test_unequal_clusters_are_left_out_one_at_a_time() -> None:
    """Against statsmodels' fits without each cluster; with nearly equal clusters its own robust
    variance is close, and with one of half the queries far below."""
    import statsmodels.api as sm

    rng = np.random.default_rng(3)
    for sizes, least, most in (([5, 6] * 10, 0.97, 1.03), ([30] + [2] * 15, 1.5, 3.0)):
        groups = np.repeat(np.arange(len(sizes)), sizes)
        Q, G = len(groups), len(sizes)
        delta_Q = rng.normal(0, 1, G)[groups] + rng.normal(0, 0.3, Q)
        own = of_groups(matrix_of({"A": delta_Q, "B": np.zeros(Q)}), groups)
        se = scope_test_of(own, ("A", "B"), **PLAIN).se_queries
        without = [
            sm.OLS(delta_Q[groups != g], np.ones(Q - sizes[g])).fit().params[0] for g in range(G)
        ]
        assert se == pytest.approx(np.sqrt((G - 1) ** 2 / G * np.var(without, ddof=1)), rel=1e-9)
        fit = sm.OLS(delta_Q, np.ones(Q)).fit(cov_type="cluster", cov_kwds={"groups": groups})
        assert least < se / float(fit.bse[0]) < most


def test_correlations_are_those_of_the_clusters() -> None:
    """Against statsmodels' covariance of two means over the same clusters."""
    import statsmodels.api as sm

    rng = np.random.default_rng(4)
    groups = rng.permutation(np.repeat(np.arange(10), 6))
    Q = len(groups)
    common = rng.normal(0, 1, 10)[groups]
    delta = [common + rng.normal(0, 1, Q) for _ in range(2)]
    own = of_groups(matrix_of({"base": np.zeros(Q), "A": delta[0], "B": delta[1]}), groups)
    pairs = [("A", "base"), ("B", "base")]
    tests = [scope_test_of(own, pair, **PLAIN) for pair in pairs]
    found = correlations(own, pairs, tests, scope="queries")[0, 1]
    both = np.kron(np.eye(2), np.ones((Q, 1)))
    fit = sm.OLS(np.concatenate(delta), both).fit(
        cov_type="cluster", cov_kwds={"groups": np.tile(groups, 2)}
    )
    V = fit.cov_params()
    assert found == pytest.approx(V[0, 1] / np.sqrt(V[0, 0] * V[1, 1]), rel=1e-12)


def test_clusters_of_one_query_change_no_bit() -> None:
    matrix = drawn({"A": 0.0, "B": 0.02, "C": 0.05, "D": 0.01, "E": 0.03})
    alone = clustered(matrix, {query_id: f"c{query_id}" for query_id in matrix.query_ids})
    assert alone is matrix
    assert compare_cells(alone, baseline="A") == compare_cells(matrix, baseline="A")
    assert best_set(alone) == best_set(matrix)


def test_equal_clusters_are_tests_of_their_means() -> None:
    """Clusters of one size are as a matrix of one query each with the mean scores."""
    matrix = drawn({"A": 0.0, "B": 0.02, "C": 0.05, "D": 0.01, "E": 0.03}, Q=60)
    own = clustered(matrix, {q: str(at // 3) for at, q in enumerate(matrix.query_ids)})
    means = replace(
        matrix,
        query_ids=tuple(map(str, range(20))),
        scores={c: y.reshape(len(y), 20, 3).mean(axis=2) for c, y in matrix.scores.items()},
    )
    for one, other in zip(
        compare_cells(own, baseline="A"), compare_cells(means, baseline="A"), strict=True
    ):
        kept = {n: v for n, v in asdict(one).items() if isinstance(v, float)}
        assert kept == pytest.approx({n: asdict(other)[n] for n in kept}, rel=1e-9)
        assert one.num_queries == 60
        assert one.wins + one.ties + one.losses == 60
    ours, theirs = best_set(own), best_set(means)
    assert ours.members == theirs.members
    assert ours.p == pytest.approx(theirs.p, rel=1e-9)


def test_wins_are_counted_on_queries() -> None:
    matrix = drawn({"A": 0.0, "B": 0.02})
    own = clustered(matrix, {q: str(at // 7) for at, q in enumerate(matrix.query_ids)})
    [one], [other] = (compare_cells(m, baseline="A") for m in (own, matrix))
    assert (one.wins, one.ties, one.losses) == (other.wins, other.ties, other.losses)
    assert one.delta == pytest.approx(other.delta, rel=1e-12)


def test_whole_clusters_are_permuted() -> None:
    """Two clusters have two ways to differ: no p below 1/2 can come of them, whatever their size;
    of twenty single queries that all differ alike p is near 0."""
    matrix = matrix_of({"A": np.ones(20), "B": np.zeros(20)})
    own = clustered(matrix, {q: str(at // 10) for at, q in enumerate(matrix.query_ids)})
    [pair] = randomised_tukey(own, rng=np.random.default_rng(1), num_permutations=4000)
    assert pair.p == pytest.approx(0.5, abs=0.03)
    assert pair.delta == 1.0
    [pair] = randomised_tukey(matrix, rng=np.random.default_rng(1), num_permutations=4000)
    assert pair.p < 0.001
    # Without variance the exact permutation of the signs of clusters decides: 2^(1 - 2).
    assert scope_test_of(own, ("A", "B"), **PLAIN).p_queries == 0.5


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ({"0": "x", "1": "y"}, "every query needs a cluster, but 2 of 4 have none, such as '2'"),
        (dict.fromkeys("0123", "x"), "two clusters of queries or more; all 4 queries are in 'x'"),
    ],
)
def test_refusals(clusters: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        clustered(matrix_of({"A": [3.0, 1.0, 0.0, 0.0]}), clusters)


def test_the_design_effect_of_equal_values_is_the_size_of_the_cluster() -> None:
    rng = np.random.default_rng(1)
    delta_Q = np.repeat(rng.normal(0, 1, 400), 5)
    clusters = np.repeat(np.arange(400), 5)
    assert design_effect(delta_Q, clusters.tolist()) == pytest.approx(5, rel=0.01)
    assert design_effect(rng.normal(0, 1, 2000), clusters.tolist()) == pytest.approx(1, abs=0.2)
    assert design_effect(np.zeros(4), list("aabb")) == 1.0


def on_shared(one: ScoreMatrix, other: ScoreMatrix, keys: list[str], num: int, **options):
    mean = over_collections([one, other], measure="mean", **options)
    return joined(mean, keys, num)


@pytest.mark.parametrize("order", [(3, 8), (8, 3)])
def test_a_shared_query_counts_with_the_smaller_collection(order: tuple[int, int]) -> None:
    """Its few degrees of freedom are those of the column: 3 + 8 queries of which one is shared are
    strata of 3 and 7, in either order of the collections, and not of 2 and 8."""
    rng = np.random.default_rng(1)
    parts = [matrix_of({"A": rng.normal(size=n), "B": rng.normal(size=n)}) for n in order]
    keys = ["shared", *(f"{c}{q}" for c, n in zip("xy", order, strict=True) for q in range(1, n))]
    keys.insert(order[0], "shared")
    found = on_shared(*parts, keys, sum(order) - 1)
    assert sorted(found.query_strata) == [3, 7]
    ends = np.cumsum(found.query_strata)
    own = int(np.searchsorted(ends, found.query_ids.index("shared"), side="right"))
    assert found.query_strata[own] == 3


def test_a_mean_over_collections_of_the_same_queries_is_that_of_paired_values() -> None:
    """All queries are in both: the mean over collections of each query is one value."""
    one, other = (drawn({"A": 0.0, "B": 0.02, "C": 0.01}, Q=40, seed=seed) for seed in (1, 2))
    other = replace(other, measure="other")
    mean = on_shared(one, other, [*one.query_ids, *other.query_ids], 40)
    of_both = replace(one, scores={c: (one.scores[c] + other.scores[c]) / 2 for c in one.cells})
    for pair in (("B", "A"), ("C", "A")):
        ours, theirs = (asdict(scope_test_of(m, pair, **PLAIN)) for m in (mean, of_both))
        welch = [own.pop("welch") for own in (ours, theirs)]
        assert ours == pytest.approx(theirs, rel=1e-9)
        assert welch[0] == pytest.approx(welch[1], rel=1e-9)
    assert mean.num_queries == 40


def test_the_covariance_of_collections_that_share_some_queries() -> None:
    """V_q is that of both collections and twice their covariance over the shared queries."""
    rng = np.random.default_rng(5)
    one, other = (
        matrix_of({"A": rng.normal(size=9), "B": np.zeros(9)}),
        matrix_of({"A": rng.normal(size=6), "B": np.zeros(6)}),
    )
    keys = [*"abcdefghi", *"abcxyz"]
    test = scope_test_of(on_shared(one, other, keys, 12), ("A", "B"), **PLAIN)
    d, e = one.scores["A"][0], other.scores["A"][0]
    covariance = ((d - d.mean())[:3] @ (e - e.mean())[:3]) / np.sqrt(9 * 8 * 6 * 5)
    expected = (d.var(ddof=1) / 9 + e.var(ddof=1) / 6 + 2 * covariance) / 4
    assert test.variance_queries == pytest.approx(expected, rel=1e-12)
    assert 4 < test.df_queries < 11
    assert test.delta == pytest.approx((d.mean() + e.mean()) / 2)


def test_collections_without_a_shared_query_change_no_bit() -> None:
    one, other = (drawn({"A": 0.0, "B": 0.02}, Q=20, seed=seed) for seed in (1, 2))
    mean = over_collections([one, other], measure="mean")
    assert joined(mean, [f"{c}{q}" for c in "xy" for q in one.query_ids], 40) is mean
    matrices = [one, replace(other, measure="other")]
    _, of_mean = compare_collections(matrices, mean, baselines=["A"])
    assert of_mean["a"][0].num_queries == 40


def test_a_single_shared_stratum_left_alone_joins_another() -> None:
    """Six queries, five of which are the other collection: none is a stratum of its own."""
    rng = np.random.default_rng(6)
    one, other = (
        matrix_of({"A": rng.normal(size=6), "B": np.zeros(6)}),
        matrix_of({"A": rng.normal(size=5), "B": np.zeros(5)}),
    )
    mean = on_shared(one, other, [*"abcdef", *"abcde"], 6)
    assert mean.query_strata == ()
    assert scope_test_of(mean, ("A", "B"), **PLAIN).df_queries == 5
