"""Measures are tried on a toy run before anything is launched."""

import re
from importlib.util import find_spec

import pytest

from rank_core.errors import BadInput
from rank_core.evaluate import WORKING
from rank_core.measure_check import check_measures

GOOD = (
    *WORKING, "nDCG", "nDCG@1000", "P(rel=2)@5", "RR", "MRR@100", "MAP@100",
    "R(judged_only=True)@10", "nDCG(gains={1: 3})@10", "SetP", "SetR", "SetAP", "NumRet", "NumRel",
    "Judged",
)  # fmt: skip
# (name, what the refusal must say)
BAD = {
    "nDCG@0": "cutoff must be 1 or more", "Judged@0": "cutoff must be 1",
    "nDCG@-5": "problem parsing", "P@1.5": "cutoff must be a whole number",
    "nDCG@True": "cutoff must be a whole number", "AP(rel=0)": "rel must be 1 or more",
    "AP(rel=1.5)": "rel must be a whole number", "RBP(p=2)@10": "p must be a decimal number",
    "IPrec@5": "recall must be a decimal number", "IPrec@5.0": "recall must be 1.0 or less",
    "P": "needs a cutoff", "INST": "needs a max_rel", "SDCG": "needs a cutoff",
    "nDCG(dcg='ln')@10": "dcg must be log2, exp-log2", "hits@10": "not found", "": "problem",
    "RBP(p=0.8)": "no installed tool computes it", "ERR": "no installed tool computes it",
    "Accuracy": "undefined for some queries",
}  # fmt: skip
# Measures of optional packages, which are named if they are not installed.
EXTRA = {
    "BPM(max_rel=2)@10": "cwl_eval", "alpha_nDCG@10": "pyndeval", "ERR_IA@10": "pyndeval",
    "StRecall@10": "pyndeval", "NERR8(max_rel=2)@10": "cwl_eval",
}  # fmt: skip


def test_valid_measures_are_accepted():
    check_measures(GOOD)


@pytest.mark.parametrize("name", BAD)
def test_a_measure_that_cannot_be_computed_is_refused_with_the_reason_and_names_that_work(name):
    with pytest.raises(BadInput) as error:
        check_measures(["nDCG@10", name])
    assert BAD[name] in str(error.value) and repr(name) in str(error.value)


@pytest.mark.parametrize("name", EXTRA)
def test_a_measure_of_a_package_that_is_not_installed_is_refused_with_the_package(name):
    if find_spec(EXTRA[name]):
        check_measures([name])
        return
    with pytest.raises(BadInput, match=rf"no installed tool computes it.* {EXTRA[name]} "):
        check_measures([name])


def test_a_measure_is_named_once_whatever_its_spelling():
    for twice in (["nDCG@10", "nDCG@10"], ["MRR@10", "RR@10"], ["AP", "P@10", "AP(rel=1)"]):
        with pytest.raises(BadInput, match=f"'{re.escape(twice[0])}' and .* same measure"):
            check_measures(twice)


def test_the_grades_of_the_judgments_are_tried_too():
    check_measures(["ERR@20", "nDCG@10"], [{"q": {"a": 4, "b": -2}}])
    with pytest.raises(BadInput, match=r"'ERR@20'.*perl.* for grades from 0 to 7"):
        check_measures(["nDCG@10", "ERR@20"], [{"q": {"a": 1}}, {"q": {"a": 7, "b": 0}}])
    check_measures(["nDCG@10"], [{"q": {"a": 7}}])
