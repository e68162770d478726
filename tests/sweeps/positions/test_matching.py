"""Passages found in documents: hand-computed cases, and a plain algorithm as the reference."""

import numpy as np
import pytest

from sweeps.positions.passages import (
    SUBSEQUENCE,
    SUBSTRING,
    _masks,
    _subsequence,
    best_stretch,
    find_passage,
    longest_common_substring,
    plain,
)


def test_texts_are_compared_as_letters_and_digits_with_single_spaces():
    found = plain("  Don't\n\n(Panic) — 42!")
    assert found.text == "don t panic 42"
    origins = ["  Don't\n\n(Panic) — 42!"[place] for place in found.places]
    assert "".join(origins) == "Don't\nPanic)42"


def test_capitals_that_become_two_characters_keep_places_right():
    found = plain("İx Yes")
    assert len(found.text) == len(found.places) == 6
    assert "İx Yes"[found.places[found.text.index("yes")]] == "Y"


@pytest.mark.parametrize(
    ("passage", "document", "expected"),
    [
        ("abc", "xxabcxx", (3, 2)),
        ("abcd", "bcxabcx", (3, 3)),
        ("ab", "abxab", (2, 0)),  # the first of two
        ("abc", "xyz", (0, 0)),
        ("abc", "abc", (3, 0)),
    ],
)
def test_the_longest_common_substring_by_hand(passage, document, expected):
    assert longest_common_substring(passage, document) == expected


def table_substring(a, b):
    return max(
        (
            size
            for size in range(min(len(a), len(b)), 0, -1)
            for i in range(len(a) - size + 1)
            if a[i : i + size] in b
        ),
        default=0,
    )


def table_subsequence(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        above, row = row, [0]
        for place, y in enumerate(b):
            row.append(above[place] + 1 if x == y else max(row[-1], above[place + 1]))
    return row[-1]


def test_both_lengths_are_those_of_the_plain_algorithms():
    rng = np.random.default_rng(2)
    for _ in range(100):
        a, b = ("".join(rng.choice(list("abc "), rng.integers(1, 40))) for _ in range(2))
        assert _subsequence(_masks(a), len(a), b) == table_subsequence(a, b)
        length, start = longest_common_substring(a, b)
        assert length == table_substring(a, b)
        assert b[start : start + length] in a


def test_a_passage_that_is_there_word_for_word_is_found_where_it_starts():
    passage = "The quick brown fox, 3 times."
    match = find_passage(passage, "Before it!  the QUICK\nbrown fox 3 times and after")
    assert match == (12, 1.0, SUBSTRING)


def test_four_fifths_of_a_passage_in_one_piece_are_enough():
    passage = "abcdefghijklmnopqrst"  # 20 letters
    assert find_passage(passage, "xx abcdefghijklmnop yy") == (3, 0.8, SUBSTRING)
    # 15 letters are no substring match, and 75% a subsequence match.
    assert find_passage(passage, "xx abcdefghijklmno yy") == (3, 0.75, SUBSEQUENCE)
    assert find_passage(passage, "xx abcdefghijklm yy") is None


def test_a_changed_passage_is_found_as_a_subsequence():
    passage = "one two three four five six seven eight nine ten"
    document = "zz " * 30 + "one two 3 four five 6 seven eight 9 ten " + "zz " * 30
    match = find_passage(passage, document)
    assert match.method == SUBSEQUENCE and match.similarity > 0.7
    assert abs(match.start - 90) <= 1  # after thirty times "zz "


def test_a_match_starts_where_a_later_start_would_lose_some_of_it():
    document = "z" * 47 + "abc-def-ghi-jkl"
    assert best_stretch("abc+def+ghi+jkl", document) == (12, 47)
