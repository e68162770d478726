"""Texts as a terminal shows them."""

import pytest

from sweeps.terminal.text import (
    about,
    clock,
    count,
    duration,
    milliseconds,
    numbered,
    shortened,
    wrapped,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 GPUs"), (0.5, "0.5 GPU"), (1, "1 GPU"), (2.0, "2 GPUs"), (1234567, "1,234,567 GPUs")],
)
def test_a_noun_follows_its_number(number, text):
    assert numbered(number, "GPU") == text


def test_a_long_label_keeps_its_beginning_and_more_of_its_end():
    label = "PARADE-Transformer pretrained 477/477"
    assert shortened(label, 40) == label
    assert shortened(label, 20) == "PARADE-T…ned 477/477" and len(shortened(label, 20)) == 20
    assert [len(shortened(label, columns)) for columns in range(1, 38)] == list(range(1, 38))


def test_a_label_loses_names_of_settings_but_no_values():
    label = "TopTwoP 96/48, head rate 1e-4, backbone rate 1e-5"
    assert shortened(label, 30) == "TopTwoP 96/48, h 1e-4, b 1e-5"
    assert shortened(label, 24) == "TopTwoP 96/48 1e-4 1e-5"
    assert shortened(label, 5) == "T…96/48 1e-4 1e-5"


def test_a_short_label_keeps_what_its_row_is_mixed_with():
    label = "64/0%, sentences, dims 48, as binary"
    assert shortened(f"{label} +BM25", 28) == "64/0% sentences 48 binary +BM25"
    assert shortened(f"{label} +RRF BM25", 44) == "64/0%, sentences, di 48, as binary +RRF BM25"


def test_further_lines_stand_below_the_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    first, second = wrapped("trials      " + "word " * 20).splitlines()
    assert first.startswith("trials      word") and second.startswith(" " * 12 + "word")
    assert wrapped("[1/2] " + "word " * 20, 6).splitlines()[1].startswith(" " * 6 + "word")


def test_milliseconds_have_three_digits_and_no_exponent():
    found = [milliseconds(ms) for ms in (0.4512, 10.06, 99.74, 100.4, 1284.2)]
    assert found == ["0.451", "10.1", "99.7", "100", "1,284"]


@pytest.mark.parametrize(
    ("seconds", "exact", "forecast"),
    [
        (0, "0 s", "0 s"),
        (0.4, "0 s", "0 s"),
        (1, "1 s", "1 s"),
        (59.6, "1 min", "1 min"),
        (89, "1 min 29 s", "1 min 29 s"),
        (100, "1 min 40 s", "2 min"),
        (200, "3 min 20 s", "3 min"),
        (3599.6, "1 h", "1 h"),
        (3600, "1 h", "1 h"),
        (7500, "2 h 5 min", "2 h 5 min"),
        (7525, "2 h 5 min", "2 h 5 min"),
        (86_399, "23 h 59 min", "1 d"),
        (86_400, "1 d", "1 d"),
        (273_600, "3 d 4 h", "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, exact, forecast):
    assert (duration(seconds), about(seconds)) == (exact, forecast)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (9.6, "0:10"), (65, "1:05"), (3599, "59:59"), (3599.6, "1h00"), (7500, "2h05")],
)
def test_a_clock_has_minutes_or_hours_first(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (4_200, "4 K"),
        (950_000, "950 K"),
        (1e6, "1.0 M"),
        (12_340_000, "12.3 M"),
        (4.1e9, "4.1 G"),
        (2.5e13, "25,000.0 G"),
    ],
)
def test_a_count_has_its_unit(number, text):
    assert count(number) == text
