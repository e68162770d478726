"""Agreement of ranked lists: rank-biased overlap, and the first documents they have in common."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rank_core.arrays import Floats

Ranks = NDArray[np.int32]
"""(Q, V): the rank, from 1, of each document of each query; 0 where it is not ranked."""

PERSISTENCE = 0.9
"""With this p the first ten ranks have 86% of the weight."""


def ranks(
    lists: Mapping[str, Sequence[str]], queries: Sequence[str], places: Mapping[str, dict[str, int]]
) -> Ranks:
    """The ranks of a run in the rows of `queries`; a query that it lacks has none.

    `places` is {query_id: {doc_id: column}}: lists that are compared share it, and new documents
    are added to it.
    """
    columns = [
        [places[query_id].setdefault(doc_id, len(places[query_id])) for doc_id in lists[query_id]]
        if query_id in lists
        else []
        for query_id in queries
    ]
    width = max((len(places[query_id]) for query_id in queries), default=0)
    rank_QV = np.zeros((len(queries), width), dtype=np.int32)
    for row, own in enumerate(columns):
        rank_QV[row, own] = np.arange(1, len(own) + 1)
    return rank_QV


def rank_biased_overlap(left_QV: Ranks, right_QV: Ranks, p: float = PERSISTENCE) -> Floats:
    """(Q,) RBO_ext, from 0 to 1: rank-biased overlap extrapolated from lists without ties, which
    may be of unequal length (Webber, Moffat and Zobel 2010, eq. 32). NaN where both are empty.
    """
    last_QV = _deeper_rank(left_QV, right_QV)
    lengths = np.sort(np.stack([(r > 0).sum(axis=1) for r in (left_QV, right_QV)]), axis=0)
    short_Q1, long_Q1 = (length[:, None] for length in lengths)
    Q, D = len(last_QV), max(int(long_Q1.max(initial=0)), 1)
    depth_D = np.arange(1, D + 1)
    rows_QV = np.arange(Q)[:, None] * (D + 1) + last_QV
    # A document joins the overlap at the deeper one of its two ranks: one count for each (query,
    # depth). Column 0 collects those that are never common.
    new_QD = np.bincount(rows_QV.ravel(), minlength=Q * (D + 1)).reshape(Q, D + 1)[:, 1:]
    common_QD = new_QD.cumsum(axis=1)  # X_d, the documents in both lists down to depth d
    at_short_Q, at_long_Q = (
        np.where(n > 0, np.take_along_axis(common_QD, np.maximum(n - 1, 0), axis=1), 0)[:, 0]
        for n in (short_Q1, long_Q1)
    )
    short_Q, long_Q = short_Q1[:, 0], long_Q1[:, 0]
    # Beyond its end the short list is assumed to agree as before.
    beyond_QD = np.maximum(depth_D - short_Q1, 0) / np.maximum(short_Q1, 1)
    # X_d + X_s (d - s) / s, of equation 32.
    agreement_QD = (common_QD + at_short_Q[:, None] * beyond_QD) / depth_D
    weight_QD = np.where(depth_D <= long_Q1, (1 - p) * p ** (depth_D - 1.0), 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        at_end_Q = (at_long_Q - at_short_Q) / long_Q + np.where(
            short_Q > 0, at_short_Q / np.maximum(short_Q, 1), 0
        )
    return (agreement_QD * weight_QD).sum(axis=1) + at_end_Q * p**long_Q


def top_overlap(left_QV: Ranks, right_QV: Ranks, k: int = 10) -> Floats:
    """(Q,) the share of the first `k` documents, in any order, that two lists have in common;
    of fewer where both are shorter. NaN where both are empty."""
    last_QV = _deeper_rank(left_QV, right_QV)
    longest_Q = np.maximum((left_QV > 0).sum(axis=1), (right_QV > 0).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return ((last_QV > 0) & (last_QV <= k)).sum(axis=1) / np.minimum(longest_Q, k)


def num_documents(left_QV: Ranks, right_QV: Ranks) -> NDArray[np.int64]:
    """(Q,) the number of documents in either of two lists."""
    both_Q = (_deeper_rank(left_QV, right_QV) > 0).sum(axis=1)
    return np.asarray((left_QV > 0).sum(axis=1) + (right_QV > 0).sum(axis=1) - both_Q)


def _deeper_rank(left_QV: Ranks, right_QV: Ranks) -> Ranks:
    """(Q, V) the depth from which a document is in both lists; 0 if never."""
    width = min(left_QV.shape[1], right_QV.shape[1])  # later columns are of one list alone
    left_QV, right_QV = left_QV[:, :width], right_QV[:, :width]
    return np.where((left_QV > 0) & (right_QV > 0), np.maximum(left_QV, right_QV), 0)
