"""Baselines for all rows and per row: families, letters, losses."""

import re

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.baselines import by_slot, compare_with, of_system
from rank_core.stats.compare import compare
from rank_core.stats.multiplicity import holm
from sweeps.report.results_table import ResultCell, ResultRow, caption, results_table
from sweeps.report.table import latex, markdown
from tests.rank_core.stats.matrices import matrix_of

# FirstP and MaxP of two backbones: MaxP gains much on BERT and loses on ELECTRA.
EFFECTS = {"bert_firstp": 0.0, "bert_maxp": 0.1, "electra_firstp": 0.2, "electra_maxp": 0.1}
OWN = {"bert_maxp": "bert_firstp", "electra_maxp": "electra_firstp"}
SLOTS = ("bert_firstp", OWN)


def matrix():
    rng = np.random.default_rng(0)
    query_Q = rng.uniform(0.2, 0.6, 60)
    scores = {
        cell: query_Q + effect + rng.normal(0, 0.05, (3, 60)) + rng.normal(0, 0.005, (3, 1))
        for cell, effect in EFFECTS.items()
    }
    return matrix_of(scores, "nDCG@10")


def rows(found):
    return [
        ResultRow(
            cell,
            "",
            cell,
            cell == "bert_firstp",
            3,
            3,
            (
                ResultCell(
                    "nDCG@10", float(matrix().scores[cell].mean()), 0.005, *of_system(found, cell)
                ),
            ),
        )
        for cell in EFFECTS
    ]


def test_a_fixed_slot_is_compare_itself():
    (found,) = compare_with(matrix(), baselines=["bert_firstp"], alpha=0.01)
    assert found == compare(matrix(), baseline="bert_firstp", alpha=0.01)


def test_every_slot_is_a_family_of_its_own():
    fixed, own = compare_with(matrix(), baselines=SLOTS)
    assert [one.system for one in fixed] == ["bert_maxp", "electra_firstp", "electra_maxp"]
    assert [(one.system, one.baseline) for one in own] == list(OWN.items())
    for slot in (fixed, own):
        assert {one.family_size for one in slot} == {len(slot)}
        adjusted = [one.p_both_adjusted for one in slot]
        assert adjusted == holm([one.p_both for one in slot]).tolist()
    gain, loss = own
    assert gain.delta > 0 > loss.delta


def test_letters_stand_for_slots_and_losses_are_marked():
    found = compare_with(matrix(), baselines=SLOTS)
    text = markdown(results_table(rows(found), slots=SLOTS))
    letters = ["".join(re.findall("<sup>(.*?)</sup>", line)) for line in text.splitlines()[2:]]
    assert letters == ["", "AB", "A", "AB↓"]
    swapped = markdown(results_table(rows(found[::-1]), slots=SLOTS[::-1]))
    letters = ["".join(re.findall("<sup>(.*?)</sup>", line)) for line in swapped.splitlines()[2:]]
    assert letters == ["", "AB", "B", "A↓B"]


def test_latex_aligns_the_letters_of_both_kinds_of_baseline():
    found = compare_with(matrix(), baselines=SLOTS)
    text = latex(results_table(rows(found), slots=SLOTS))
    assert re.findall(r"\$\^\{(.*?)\}\$ ", text) == [
        r"\hphantom{\mathrm{A}}\hphantom{\mathrm{B}\downarrow}",
        r"\mathrm{A}\mathrm{B}\hphantom{\downarrow}",
        r"\mathrm{A}\hphantom{\mathrm{B}\downarrow}",
        r"\mathrm{A}\mathrm{B}\downarrow",
    ]


def test_a_letter_is_small_where_only_the_queries_carry_it():
    noisy = matrix()
    # Seeds of MaxP that scatter by a tenth: the gain is there on every query, but not every time.
    noisy.scores["bert_maxp"][:] += np.array([[-0.1], [0.0], [0.1]])
    found = compare_with(noisy, baselines=SLOTS)
    line = markdown(results_table(rows(found), slots=SLOTS)).splitlines()[3]
    assert "<sup>ab</sup>" in line


def test_the_caption_says_what_every_letter_stands_for():
    text = caption(rows(compare_with(matrix(), baselines=SLOTS)), slots=SLOTS)
    assert (
        "(a/A: bert_firstp; b/B: the system's own baseline (bert_firstp, electra_firstp); " in text
    )
    assert "over 2-3 comparisons" in text


def test_one_baseline_in_two_slots_keeps_two_comparisons():
    found = compare_with(matrix(), baselines=SLOTS)
    first, others = of_system(found, "bert_maxp")
    assert first.baseline == others[0].baseline and first.family_size == 3
    assert by_slot("bert_maxp", (first, *others), SLOTS) == (first, others[0])
    assert of_system(found, "bert_firstp") == (None, ())
    assert by_slot("electra_firstp", of_system(found, "electra_firstp")[:1], SLOTS)[1] is None


def test_a_cell_that_is_its_own_baseline_is_left_out():
    every = {cell: f"{cell.split('_')[0]}_firstp" for cell in EFFECTS}
    assert compare_with(matrix(), baselines=[every]) == compare_with(matrix(), baselines=[OWN])


def test_baselines_that_do_not_exist_are_refused():
    with pytest.raises(BadInput, match="at least one baseline"):
        compare_with(matrix(), baselines=[])
    with pytest.raises(BadInput, match="unknown baseline"):
        compare_with(matrix(), baselines=["bm25"])
    with pytest.raises(BadInput, match="unknown baseline"):
        compare_with(matrix(), baselines=[{"bert_maxp": "bm25"}])
    with pytest.raises(BadInput, match="unknown cell"):
        compare_with(matrix(), baselines=[{"parade": "bert_firstp"}])
