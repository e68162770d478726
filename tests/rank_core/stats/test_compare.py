"""Every cell against its baselines: families, corrections, effect sizes, letters, losses."""

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.compare import (
    compare_cells,
    compare_with,
    letter,
)
from rank_core.stats.multiplicity import holm
from rank_core.stats.scopes import confidence_interval, paired_scope_test, scope_test
from tests.rank_core.stats.matrices import drawn, matrix_of

SCORES = drawn({"base": 0.0, "better": 0.05, "same": 0.0, "worse": -0.05}).scores


def test_a_comparison_carries_the_scope_test_and_the_family_s_correction():
    found = compare_cells(matrix_of(SCORES), baseline="base", alpha=0.1, correction="holm")
    tests = [scope_test(SCORES[c.system], SCORES["base"]) for c in found]
    assert [c.p_both for c in found] == [t.p_both for t in tests]
    assert [c.p_seeds for c in found] == [t.p_seeds for t in tests]
    assert [c.p_both_adjusted for c in found] == holm([t.p_both for t in tests]).tolist()
    assert [c.p_queries_adjusted for c in found] == holm([t.p_queries for t in tests]).tolist()
    better = found[0]
    assert (better.ci_low, better.ci_high) == confidence_interval(tests[0], 0.9)
    assert better.mean_system == pytest.approx(SCORES["better"].mean())
    assert better.delta == pytest.approx(better.mean_system - better.mean_baseline)
    assert better.relative_gain == pytest.approx(better.delta / SCORES["base"].mean())
    assert better.num_queries == 60


def test_wins_ties_and_losses_are_counted_per_query_on_means_over_seeds():
    system_SQ = np.array([[0.2, 0.5, 0.1, 0.3], [0.4, 0.5, 0.1, 0.1]])
    base_SQ = np.array([[0.3, 0.4, 0.2, 0.2], [0.3, 0.4, 0.2, 0.2]])
    (found,) = compare_cells(matrix_of({"base": base_SQ, "system": system_SQ}), baseline="base")
    assert (found.wins, found.ties, found.losses) == (1, 2, 1)


def test_one_seed_has_the_queries_scope_only_and_is_outside_the_family_of_both():
    scores = SCORES | {"better": SCORES["better"][:1]}
    found = {c.system: c for c in compare_cells(matrix_of(scores), baseline="base")}
    single = found["better"]
    undefined = "p_seeds p_both p_both_adjusted ci_low ci_high"
    assert all(np.isnan(getattr(single, name)) for name in undefined.split())
    assert single.p_queries_adjusted < 0.05
    assert (single.num_seeds_system, single.num_seeds_baseline) == (1, 3)
    assert found["worse"].p_both_adjusted == pytest.approx(2 * found["worse"].p_both)
    assert {one.family_size for one in found.values()} == {2}


def test_paired_seeds_use_the_paired_test_and_demand_equal_seeds():
    found = compare_cells(matrix_of(SCORES), baseline="base", paired_seeds=True)
    assert found[0].p_both == paired_scope_test(SCORES["better"], SCORES["base"]).p_both
    seeds = {cell: (1, 2, 3) for cell in SCORES} | {"worse": (1, 2, 4)}
    with pytest.raises(BadInput, match="paired seeds need the same seeds in every cell"):
        compare_cells(matrix_of(SCORES, seeds=seeds), baseline="base", paired_seeds=True)


def test_a_baseline_declared_deterministic_gives_every_comparison_a_p():
    with_bm25 = matrix_of({"bm25": SCORES["base"][:1] - 0.1, **SCORES})
    undeclared = compare_cells(with_bm25, baseline="bm25")
    assert all(np.isnan(c.p_both) for c in undeclared)
    found = compare_cells(with_bm25, baseline="bm25", deterministic=["bm25"])
    scores = with_bm25.scores
    for c in found:
        test = scope_test(scores[c.system], scores["bm25"], deterministic=(False, True))
        assert (c.p_both, c.num_seeds_baseline) == (test.p_both, 1)
        assert c.ci_low < c.delta < c.ci_high
    paired = compare_cells(with_bm25, baseline="bm25", deterministic=["bm25"], paired_seeds=True)
    assert paired == found


# FirstP and MaxP of two backbones: MaxP gains much on BERT and loses on ELECTRA.
EFFECTS = {"bert_firstp": 0.0, "bert_maxp": 0.1, "electra_firstp": 0.2, "electra_maxp": 0.1}
OWN = {"bert_maxp": "bert_firstp", "electra_maxp": "electra_firstp"}
SLOTS = ("bert_firstp", OWN)
MATRIX = drawn(EFFECTS)


def letters(found):
    """The letters of every cell, those of a slot at its place."""

    def of(cell, slot):
        return next((one for one in found[slot] if one.system == cell), None)

    return [
        "".join(letter(of(cell, slot), n, 0.05) for n, slot in enumerate(found)) for cell in EFFECTS
    ]


def test_every_slot_is_a_family_of_its_own():
    found = compare_with(MATRIX, baselines=SLOTS)
    fixed, own = found["a"], found["b"]
    assert [one.system for one in fixed] == ["bert_maxp", "electra_firstp", "electra_maxp"]
    assert [(one.system, one.baseline) for one in own] == list(OWN.items())
    for slot in (fixed, own):
        assert {one.family_size for one in slot} == {len(slot)}
        adjusted = [one.p_both_adjusted for one in slot]
        assert adjusted == holm([one.p_both for one in slot]).tolist()
    gain, loss = own
    assert gain.delta > 0 > loss.delta


def test_letters_stand_for_slots_and_losses_are_marked():
    found = compare_with(MATRIX, baselines=SLOTS)
    assert letters(found) == ["", "AB", "A", "AB↓"]
    assert letters(dict(reversed(found.items()))) == ["", "AB", "B", "A↓B"]


def test_a_letter_is_small_where_only_the_queries_carry_it():
    noisy = drawn(EFFECTS)
    # Seeds of MaxP that scatter by a tenth: the gain is there on every query, but not every time.
    noisy.scores["bert_maxp"][:] += np.array([[-0.1], [0.0], [0.1]])
    assert letters(compare_with(noisy, baselines=SLOTS))[1] == "ab"


def test_a_cell_that_is_its_own_baseline_is_left_out():
    every = {cell: f"{cell.split('_')[0]}_firstp" for cell in EFFECTS}
    assert compare_with(MATRIX, baselines=[every]) == compare_with(MATRIX, baselines=[OWN])
