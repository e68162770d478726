"""Numbers as they are written: rounded once, with their sign, never more certain than they are."""

import math

import pytest

from sweeps.terminal.notation import (
    level_text,
    names_text,
    number,
    p_text,
    percent,
    range_text,
    relation,
    signed,
)


@pytest.mark.parametrize(
    ("value", "plain", "with_sign"),
    [
        (0.4567, "0.457", "+0.457"),
        (-0.4567, "−0.457", "−0.457"),
        (1.25, "1.250", "+1.250"),
        (-0.0004, "0.000", "+0.000"),  # a rounded 0 has no minus
    ],
)
def test_a_number_is_rounded_and_keeps_its_sign(value, plain, with_sign):
    assert (number(value), signed(value)) == (plain, with_sign)


def test_digits_are_those_that_are_asked_for():
    assert (number(0.45678, 4), signed(0.45678, 2)) == ("0.4568", "+0.46")
    assert number(math.nan) == p_text(math.nan) == percent(math.nan) == "—"


@pytest.mark.parametrize(
    ("p", "text", "in_sentence"),
    [
        (0.0001, "<.001", "<.001"),
        (0.000999, "<.001", "<.001"),
        (0.001, ".001", "= .001"),
        (0.0496, ".050", "= .050"),
        (0.25, ".250", "= .250"),
        (1.0, "1.000", "= 1.000"),
    ],
)
def test_a_p_value_has_three_decimals(p, text, in_sentence):
    assert (p_text(p), relation(p)) == (text, in_sentence)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (0.002, "under 1%"),  # not none
        (0.01, "1%"),
        (0.684, "68%"),
        (0.99, "99%"),
        (0.998, "over 99%"),  # not all
        (1.0, "100%"),
    ],
)
def test_a_share_is_none_or_all_only_if_it_is(share, text):
    assert percent(share) == text


def test_levels_ranges_and_lists_of_names():
    assert (level_text(0.05), level_text(0.1), level_text(0.001)) == ("95%", "90%", "99.9%")
    assert range_text(-0.01, 0.03) == "[−0.010, 0.030]"
    assert range_text(-0.01, 0.03, 2) == "[−0.01, 0.03]"
    assert (range_text(-1.5, 1.5), range_text(math.nan, math.nan)) == ("too wide", "—")
    assert names_text(["a"]) == "a" and names_text(["a", "b"]) == "a and b"
    assert names_text(["a", "b", "c"]) == "a, b and c"
    assert names_text(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
