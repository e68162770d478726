"""Queries that are not alone: clusters of queries, such as those that ask for one document.

Queries of a cluster may have correlated scores; clusters are independent. The variance over queries
of a mean difference is the jackknife's that leaves out one cluster at a time (MacKinnon, Nielsen
and Webb 2023), with the degrees of freedom of Bell and McCaffrey (2002):

    V_q = (G - 1) / G * sum over clusters of (d without g - mean of these)^2

For clusters of one size it is the cluster-robust variance of Liang and Zeger (1986) with the factor
G / (G - 1) on G - 1 degrees of freedom, and of one query each the plain variance of a mean. Where a
cluster has many of the queries, their variance is far too small, as the mean follows that cluster.

`clustered` gives a matrix with a column per cluster, its pseudo-value, whose plain formulas are
these, so that every test, correlation and set of the best of a matrix is that of the clusters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from rank_core.arrays import Floats
from rank_core.errors import BadInput, shown
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Strata


def clustered(matrix: ScoreMatrix, cluster_of: Mapping[str, str]) -> ScoreMatrix:
    """The matrix of the clusters of its queries, `cluster_of[query_id]`: column g of a run is its
    mean plus G - 1 times what cluster g adds to it, without the mean of these. Where every query is
    a cluster of its own, the matrix itself.

    Raises `BadInput` for a query without a cluster, and for a single cluster.

    Examples:
        >>> import numpy as np
        >>> from rank_core.stats.clusters import clustered
        >>> from rank_core.stats.matrix import ScoreMatrix
        >>> scores = {"A": np.array([[0.1, 0.3, 0.5]])}
        >>> matrix = ScoreMatrix("RR", ("A",), ("q1", "q2", "q3"), {"A": (1,)}, scores)
        >>> clustered(matrix, {"q1": "x", "q2": "x", "q3": "y"}).scores["A"].round(3)
        array([[0.15, 0.45]])
    """
    if lacking := [query_id for query_id in matrix.query_ids if query_id not in cluster_of]:
        raise BadInput(
            f"every query needs a cluster, but {len(lacking)} of {len(matrix.query_ids)} have "
            f"none, such as {shown(lacking[0])}"
        )
    names = [cluster_of[query_id] for query_id in matrix.query_ids]
    columns, place_Q = _places(names)
    Q, G = len(names), len(columns)
    if G == Q:
        return matrix
    if G < 2:
        raise BadInput(
            f"a test needs two clusters of queries or more; all {Q} queries are in "
            f"{shown(names[0])}"
        )
    return replace(
        matrix,
        query_ids=columns,
        scores={
            cell: _pseudo_values(score_SQ, place_Q, G) for cell, score_SQ in matrix.scores.items()
        },
        query_df=(jackknife_df(np.bincount(place_Q)),),
        by_query=matrix,
        cluster_of=tuple(place_Q),
    )


def jackknife_df(sizes_G: ArrayLike) -> float:
    """The degrees of freedom of V_q over clusters of these sizes: those of a chi-square with its
    mean and variance if queries are independent (Bell and McCaffrey 2002); G - 1 for one size.

    A correlation within clusters would make them fewer, and the test far too cautious: simulated
    errors are then below .005 (`tests/benchmarks/clustered.py`), as the jackknife's variance is too
    large already.
    """
    q = np.asarray(sizes_G, dtype=np.float64)
    G, Q = len(q), q.sum()
    w = (G - 1) / (Q - q)
    # V_q is a multiple of v'v for pseudo-values v = H W (t - q T / Q) of the totals t, whose
    # covariances are diag(q); H takes the mean away. So v has the covariances H N H with
    # N = diag(d) - u u'.
    d, u = w**2 * q, w * q / np.sqrt(Q)
    n = d - u * u.sum()  # N 1
    trace = d.sum() - u @ u - n.sum() / G
    of_square = d @ d - 2 * d @ u**2 + (u @ u) ** 2 - 2 * n @ n / G + (n.sum() / G) ** 2
    return min(float(trace**2 / of_square), G - 1.0)


def joined(matrix: ScoreMatrix, keys: Sequence[str], num_queries: int) -> ScoreMatrix:
    """A mean over collections (`over_collections`) in which columns with the same key are one: a
    query, or a cluster, of several collections. `num_queries` counts each query once.

    The covariance of two collections is thereby in V_q; where none shares a key the matrix itself.
    """
    columns, place_N = _places(keys)
    N, G = len(keys), len(columns)
    if N == G:
        return matrix
    if G < 2:
        raise BadInput(f"a test needs two clusters of queries or more, got {shown(keys[0])} alone")
    # The scaled deviations of N columns have the sum of squares V N (N - 1); those of G columns
    # have to have V G (G - 1).
    scale = (G * (G - 1) / (N * (N - 1))) ** 0.5
    order_G, strata, df = _strata(place_N, matrix, G)
    rank_G = np.argsort(order_G)
    place_N = [int(rank_G[at]) for at in place_N]
    return replace(
        matrix,
        query_ids=tuple(columns[at] for at in order_G),
        scores={
            cell: score_SQ.mean(axis=1, keepdims=True) + scale * _sums(score_SQ, place_N, G)
            for cell, score_SQ in matrix.scores.items()
        },
        query_strata=strata,
        query_df=df,
        counted=num_queries,
    )


def _places(names: Iterable[str]) -> tuple[tuple[str, ...], list[int]]:
    """The different names by first appearance, and the place of each name among them."""
    place: dict[str, int] = {}
    places = [place.setdefault(name, len(place)) for name in names]
    return tuple(place), places


def _sums(score_SQ: Floats, place_Q: Sequence[int], G: int) -> Floats:
    """(S, G): the sums of the deviations from the means of the runs."""
    sum_GS = np.zeros((G, len(score_SQ)))
    np.add.at(sum_GS, np.asarray(place_Q), (score_SQ - score_SQ.mean(axis=1, keepdims=True)).T)
    return sum_GS.T


def _pseudo_values(score_SQ: Floats, place_Q: Sequence[int], G: int) -> Floats:
    """(S, G): those of the jackknife over clusters, on the means of the runs."""
    sizes_G = np.bincount(place_Q, minlength=G)
    # The mean without cluster g differs by its sum of deviations over the queries that are left.
    added_SG = (G - 1) * _sums(score_SQ, place_Q, G) / (len(place_Q) - sizes_G)
    # Of unequal clusters their mean is the jackknife's estimate of a bias, which a mean has not.
    added_SG -= added_SG.mean(axis=1, keepdims=True)
    return np.asarray(score_SQ.mean(axis=1, keepdims=True) + added_SG)


def _strata(
    place_N: Sequence[int], matrix: ScoreMatrix, G: int
) -> tuple[list[int], Strata, tuple[float, ...]]:
    """The columns in the order of their strata, the sizes of these, and their degrees of freedom
    where unequal clusters have fewer: a column belongs to the smallest of its collections, whose
    few degrees of freedom it has. A stratum has two columns or more."""
    sizes = matrix.query_strata
    starts = np.cumsum([0, *sizes])
    owner_G = np.zeros(G, dtype=np.intp)
    by_size = sorted(range(len(sizes)), key=lambda one: -sizes[one])
    for one in by_size:  # a smaller collection overwrites a larger one
        owner_G[list(place_N[starts[one] : starts[one + 1]])] = one
    columns = {one: np.flatnonzero(owner_G == one).tolist() for one in reversed(by_size)}
    kept = {one: places for one, places in columns.items() if len(places) > 1} or {by_size[-1]: []}
    # A single column has no variance of its own.
    next(iter(kept.values())).extend(places[0] for places in columns.values() if len(places) == 1)
    df = [matrix.query_df[one] / (sizes[one] - 1) for one in kept if matrix.query_df]
    df = [share * (len(places) - 1) for share, places in zip(df, kept.values(), strict=False)]
    strata = tuple(map(len, kept.values())) if len(kept) > 1 else ()
    return [at for places in kept.values() for at in places], strata, tuple(df)


def design_effect(delta_Q: Floats, cluster_of: Sequence[object]) -> float:
    """The variance of a mean over clustered queries over that of independent ones, of one value per
    query; 1 where nothing varies."""
    columns, place_Q = _places(map(str, cluster_of))
    Q, G = len(place_Q), len(columns)
    plain = float(np.var(delta_Q, ddof=1)) / Q
    if plain == 0 or G < 2:
        return 1.0
    value_1G = _pseudo_values(np.asarray(delta_Q, dtype=np.float64)[None], place_Q, G)
    return float(np.var(value_1G, ddof=1)) / G / plain


__all__ = ["clustered", "design_effect", "jackknife_df", "joined"]
