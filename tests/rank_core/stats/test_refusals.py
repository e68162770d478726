"""What has no answer is refused by the name of the setting or the field."""

import math
from functools import partial

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.best import best_set
from rank_core.stats.bootstrap import crossed_weights, selected_gain
from rank_core.stats.compare import compare_cells, compare_with
from rank_core.stats.design import Goal, Variances, planned_power, planned_variances
from rank_core.stats.multiplicity import holm
from rank_core.stats.permutation import randomised_tukey
from rank_core.stats.racing import race_so_far
from rank_core.stats.ranks import rank_intervals
from rank_core.stats.scopes import confidence_interval, equivalence_p, paired_scope_test, scope_test
from rank_core.stats.variance import detectable_effect, homogeneity, sweep_components
from tests.rank_core.stats.matrices import A, B, matrix_of

RNG = np.random.default_rng(0)
PAIR = matrix_of({"base": A, "system": B})
ONE_RUN = matrix_of({"base": A[:1], "system": B[:1]})
ALONE = matrix_of({"base": A})
RACE = partial(race_so_far, {}, configurations=("A", "B"), seeds=(1, 2, 3))
REFUSED = [
    ("same queries, got 8 and 5", lambda: scope_test(A, B[:, :5])),
    ("seeds x queries", lambda: scope_test(A[0], B[0])),
    ("2 queries", lambda: scope_test(A[:, :1], B[:, :1])),
    ("finite", lambda: scope_test(np.where(A == 0.5, np.nan, A), B)),
    ("same seeds and queries", lambda: paired_scope_test(A, B[:2])),
    ("one run, got 3", lambda: scope_test(A, B, deterministic=(False, True))),
    ("scope 'query'", lambda: confidence_interval(scope_test(A, B), scope="query")),
    ("level", lambda: confidence_interval(scope_test(A, B), 95)),
    ("baseline 'bse'", lambda: compare_cells(PAIR, baseline="bse")),
    ("correction", lambda: compare_cells(PAIR, baseline="base", correction="bonferroni")),
    ("alpha", lambda: compare_cells(PAIR, baseline="base", alpha=5)),
    ("deterministic", lambda: compare_cells(PAIR, baseline="base", deterministic=["qld"])),
    ("one run, got 3", lambda: compare_cells(PAIR, baseline="base", deterministic=["base"])),
    ("baseline", lambda: compare_with(PAIR, baselines=[])),
    ("unknown baseline", lambda: compare_with(PAIR, baselines=["bm25"])),
    ("unknown baseline", lambda: compare_with(PAIR, baselines=[{"system": "bm25"}])),
    ("unknown cell", lambda: compare_with(PAIR, baselines=[{"parade": "base"}])),
    ("num_replicates", lambda: crossed_weights(PAIR, rng=RNG, num_replicates=0)),
    ("two seeds", lambda: planned_variances(ONE_RUN, baseline="base")),
    ("assurance", lambda: planned_variances(PAIR, baseline="base", assurance=0.4)),
    (
        "two seeds",
        lambda: planned_power(Variances(0.1, 0, 0.1), Goal(0.1), num_seeds=1, num_queries=9),
    ),
    ("seed >= 0", lambda: Variances(0.1, math.nan, 0.1)),
    ("delta", lambda: Goal(0)),
    ("margin", lambda: equivalence_p(scope_test(A, B), margin=0)),
    ("[0, 1]", lambda: holm([0.5, 1.5])),
    ("two cells", lambda: randomised_tukey(ALONE, rng=RNG)),
    ("num_permutations", lambda: randomised_tukey(PAIR, rng=RNG, num_permutations=0)),
    ("alpha", lambda: detectable_effect(5, alpha=0)),
    ("power", lambda: detectable_effect(5, power=1.0)),
    ("alpha", lambda: detectable_effect(5, alpha=0.5, power=0.4)),
    ("alpha", lambda: RACE(alpha=0.0)),
    *(("alpha", partial(best_set, PAIR, alpha=alpha)) for alpha in (0, 1.0)),
    *(("alpha", partial(rank_intervals, PAIR, alpha=alpha)) for alpha in (0.0, 0.5)),
    ("two seeds", lambda: selected_gain(ONE_RUN, baseline="base", rng=RNG)),
    ("baseline", lambda: selected_gain(ALONE, baseline="base", rng=RNG)),
    ("baseline", lambda: selected_gain(PAIR, baseline="cell9", rng=RNG)),
    ("baseline", lambda: sweep_components(PAIR, baseline="cell99")),
    ("got 0", lambda: homogeneity(ONE_RUN)),
]


@pytest.mark.parametrize(("word", "call"), REFUSED)
def test_what_has_no_answer_is_refused(word, call):
    with pytest.raises(BadInput) as refused:
        call()
    assert word in str(refused.value)
