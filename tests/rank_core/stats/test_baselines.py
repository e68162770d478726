"""Baselines for all rows and per row: families, letters, losses."""

import numpy as np

from rank_core.stats.compare import by_slot, compare_with, letter, of_system
from rank_core.stats.multiplicity import holm
from tests.rank_core.stats.matrices import drawn

# FirstP and MaxP of two backbones: MaxP gains much on BERT and loses on ELECTRA.
EFFECTS = {"bert_firstp": 0.0, "bert_maxp": 0.1, "electra_firstp": 0.2, "electra_maxp": 0.1}
OWN = {"bert_maxp": "bert_firstp", "electra_maxp": "electra_firstp"}
SLOTS = ("bert_firstp", OWN)
MATRIX = drawn(EFFECTS)


def letters(found, slots=SLOTS):
    """The letters of every cell."""

    def of(cell):
        first, others = of_system(found, cell)
        return by_slot(cell, [one for one in (first, *others) if one is not None], slots)

    return ["".join(letter(one, n, 0.05) for n, one in enumerate(of(cell))) for cell in EFFECTS]


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
    assert letters(dict(reversed(found.items())), SLOTS[::-1]) == ["", "AB", "B", "A↓B"]


def test_a_letter_is_small_where_only_the_queries_carry_it():
    noisy = drawn(EFFECTS)
    # Seeds of MaxP that scatter by a tenth: the gain is there on every query, but not every time.
    noisy.scores["bert_maxp"][:] += np.array([[-0.1], [0.0], [0.1]])
    assert letters(compare_with(noisy, baselines=SLOTS))[1] == "ab"


def test_one_baseline_in_two_slots_keeps_two_comparisons():
    found = compare_with(MATRIX, baselines=SLOTS)
    first, others = of_system(found, "bert_maxp")
    assert first.baseline == others[0].baseline and first.family_size == 3
    assert by_slot("bert_maxp", (first, *others), SLOTS) == (first, others[0])
    assert of_system(found, "bert_firstp") == (None, ())
    assert by_slot("electra_firstp", of_system(found, "electra_firstp")[:1], SLOTS)[1] is None


def test_a_cell_that_is_its_own_baseline_is_left_out():
    every = {cell: f"{cell.split('_')[0]}_firstp" for cell in EFFECTS}
    assert compare_with(MATRIX, baselines=[every]) == compare_with(MATRIX, baselines=[OWN])
