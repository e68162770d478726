"""A trial has collapsed where its ranker gives every candidate of a query the same score."""

import pytest

from rank_core.records import Run
from rank_core.trial.trial_result import is_constant


@pytest.mark.parametrize(
    ("run", "collapsed"),
    [
        # The scores of a query may differ by less than 0.0001, as rounding makes them differ.
        ({"q": {"a": 1.0, "b": 1.0, "c": 1.0}}, True),
        ({"q": {"a": 5.0, "b": 5.00009}}, True),
        ({"q": {"a": 5.0, "b": 5.00011}}, False),
        ({"q": {"a": 0.0, "b": 0.005}}, False),  # small and healthy
        ({"q": {"a": 0.5, "b": 0.51}}, False),
        # Constant within each query, however queries differ.
        ({"q": {"a": 1.0, "b": 1.0}, "r": {"a": 3.0, "b": 3.0}}, True),
        ({"q": {"a": 1.0, "b": 1.0}, "r": {"a": 3.0, "b": 2.0}}, False),
        # A single candidate tells nothing.
        ({"q": {"a": 1.0}}, False),
        ({"q": {"a": 1.0}, "r": {"a": 2.0, "b": 2.0}}, True),
        ({}, False),
    ],
)
def test_scores_that_differ_by_rounding_alone_are_a_collapse(run: Run, collapsed: bool) -> None:
    assert is_constant(run) is collapsed
