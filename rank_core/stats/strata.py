"""One measure on several collections: every collection with its letters, and the mean over them.

Collections are fixed strata of equal weight, queries are nested in them. The k-th run of a system
is one trained model tested on all of them, so that its variance holds the run effect and its
interaction with the collections; or, of `separate_runs`, every collection has training runs of its
own, which are independent. The difference is the mean of the differences of the C collections,
V_q and V_e are the sums of their variances over C^2, V_s is the variance of the runs' means over
collections or, of separate runs, likewise a sum over C^2. Each part has Satterthwaite's degrees of
freedom.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any

import numpy as np

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from rank_core.stats.compare import ByLetter, CellComparison, Slot, compare_with
from rank_core.stats.matrix import SEPARATOR, ScoreMatrix
from rank_core.stats.scopes import Strata

_COUNTS = ("wins", "ties", "losses")


def over_collections(
    matrices: Sequence[ScoreMatrix], *, measure: str, separate_runs: Collection[str] = ()
) -> ScoreMatrix:
    """A matrix whose mean, V_q, V_s, V_e and covariances are those of the mean over collections.

    Its values are linear in the scores of each collection: deviations of queries, of separate runs
    and of the residual, scaled within their collection, on the mean. Its queries are numbered
    within collections. Raises `BadInput` for a system that a collection lacks, and for other
    seeds there unless runs are separate.
    """
    cells = matrices[0].cells
    for cell in dict.fromkeys(cell for one in matrices for cell in one.cells):
        for one in matrices:
            if cell not in one.cells:
                raise BadInput(
                    f"every system must be on every collection, but {cell} has no {one.measure}"
                )
            if cell not in separate_runs and one.seeds[cell] != matrices[0].seeds[cell]:
                raise BadInput(
                    f"the runs of {cell} must be the same on every collection, "
                    f"got the seeds {matrices[0].seeds[cell]} and {one.seeds[cell]}"
                )
    sizes = tuple(len(one.query_ids) for one in matrices)
    own_df = [one.query_df or (len(one.query_ids) - 1,) for one in matrices]
    scores: dict[str, Floats] = {}
    runs: dict[str, Strata] = {}
    for cell in cells:
        parts = [one.scores[cell] for one in matrices]
        if cell in separate_runs and min(map(len, parts)) > 1:
            scores[cell], runs[cell] = _separate(parts), tuple(map(len, parts))
        elif cell in separate_runs:  # with a single run somewhere their variance is unknown
            scores[cell] = _shared([part.mean(axis=0, keepdims=True) for part in parts])
        else:
            scores[cell] = _shared(parts)
    return ScoreMatrix(
        measure=measure,
        cells=cells,
        query_ids=tuple(
            f"{number}{SEPARATOR}{query_id}"
            for number, one in enumerate(matrices)
            for query_id in one.query_ids
        ),
        seeds={
            cell: tuple(range(len(scores[cell])))
            if cell in separate_runs
            else matrices[0].seeds[cell]
            for cell in cells
        },
        scores=scores,
        query_strata=sizes,
        query_df=tuple(chain.from_iterable(own_df))
        if any(one.query_df for one in matrices)
        else (),
        run_strata=runs,
        counted=sum(one.num_queries for one in matrices),
    )


def difference_of_collections(
    first: ScoreMatrix,
    second: ScoreMatrix,
    *,
    measure: str,
    separate_runs: Collection[str] = (),
) -> ScoreMatrix:
    """A matrix whose mean is that of the first collection minus that of the second, with the
    variances of `over_collections`: a difference of systems in it is the difference of their
    differences. Raises `BadInput` as that does."""
    # The mean of both, the second negated, is half of it.
    twice = [replace(first, scores={cell: 2 * score_SQ for cell, score_SQ in first.scores.items()})]
    twice += [
        replace(second, scores={cell: -2 * score_SQ for cell, score_SQ in second.scores.items()})
    ]
    return over_collections(twice, measure=measure, separate_runs=separate_runs)


def _scales(sizes: Sequence[int]) -> list[float]:
    """The factors of deviations within strata of these sizes, of which var / N of all N is the sum
    of the strata's var / n over C^2."""
    N = sum(sizes)
    # sum over strata of w^2 SS / (N (N - 1)) has to be sum of SS / (n (n - 1)) / C^2, where SS is a
    # stratum's sum of squares: solved for w.
    return [math.sqrt(N * (N - 1) / (n * (n - 1))) / len(sizes) for n in sizes]


def _shared(parts: Sequence[Floats]) -> Floats:
    """(S, Q of all collections): row s is the mean of run s and the deviations of its queries."""
    mean_S = np.mean([part.mean(axis=1) for part in parts], axis=0)
    scales = _scales([part.shape[1] for part in parts])
    deviations = [
        w * (y - y.mean(axis=1, keepdims=True)) for w, y in zip(scales, parts, strict=True)
    ]
    return mean_S[:, None] + np.hstack(deviations)


def _separate(parts: Sequence[Floats]) -> Floats:
    """(S of all collections, Q of all): row s of a collection is the mean over collections, its
    own deviation, that of the queries of all, and the residual on its own queries."""
    # The runs of a collection say nothing of the others' queries: there a row is the mean over
    # runs.
    base_1Q = _shared([part.mean(axis=0, keepdims=True) for part in parts])
    rows, at = [], 0
    sides = _scales([len(part) for part in parts]), _scales([part.shape[1] for part in parts])
    for v, w, y in zip(*sides, parts, strict=True):
        run_S1 = y.mean(axis=1, keepdims=True) - y.mean()
        row_SQ = base_1Q + v * run_S1
        row_SQ[:, at : (at := at + y.shape[1])] += (
            len(parts) * v * w * (y - y.mean(axis=0) - run_S1)
        )
        rows.append(row_SQ)
    return np.vstack(rows)


def compare_collections(
    matrices: Sequence[ScoreMatrix],
    mean: ScoreMatrix,
    *,
    baselines: Sequence[Slot],
    correction: str = "holm",
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
    num_families: int = 1,
) -> tuple[list[ByLetter], ByLetter]:
    """(the comparisons of each collection, those of their mean, which is `over_collections`).

    The comparisons of all collections with a baseline are one family: each collection's p-values
    are corrected by its own, then by the number of collections (Bonferroni). Those of the mean are
    another family. All of them share alpha with `num_families` where these are more. Wins, ties and
    losses of the mean are the sums of the collections'.
    """
    options: dict[str, Any] = {
        "baselines": baselines, "correction": correction, "alpha": alpha,
        "paired_seeds": paired_seeds, "deterministic": deterministic,
    }  # fmt: skip
    shared = max(num_families, len(matrices))
    of_collections = [compare_with(one, **options, num_families=shared) for one in matrices]
    of_mean = compare_with(mean, **options, num_families=num_families)

    counts: Counter[tuple[str, str, str, str]] = Counter()
    for letter, pairs in chain.from_iterable(by_letter.items() for by_letter in of_collections):
        for c, name in product(pairs, _COUNTS):
            counts[letter, c.system, c.baseline, name] += getattr(c, name)

    def counted(c: CellComparison, letter: str) -> CellComparison:
        # The scaled deviations of the mean's matrix are no scores of queries: wins are counted
        # where queries are, in each collection.
        summed: Any = {name: counts[letter, c.system, c.baseline, name] for name in _COUNTS}
        return replace(c, **summed)

    return of_collections, {
        letter: [counted(c, letter) for c in pairs] for letter, pairs in of_mean.items()
    }
