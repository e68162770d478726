"""Derived numbers of published tables: exactly the known matches and mismatches are found."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rank_core.errors import BadInput
from rank_core.stats.published_checks import check_table, mean_gain
from rank_core.stats.published_tables import FOLDER, Rounded, read_table, rounded, shipped_tables

TABLES = shipped_tables()
FOUR = TABLES["boytsov-positional-table-1"].columns


def findings(name: str):
    return check_table(TABLES[f"boytsov-{name}"], TABLES)


def test_every_shipped_claim_is_found_as_recorded():
    found = [one for table in TABLES.values() for one in check_table(table, TABLES)]
    assert Counter(one.matches for one in found) == {True: 50, False: 22}
    assert [one for one in found if one.matches != one.expected] == []


def test_exactly_the_known_mismatches_are_found():
    wrong = [
        (one.table.removeprefix("boytsov-"), one.row)
        for table in TABLES.values()
        for one in check_table(table, TABLES)
        if not one.matches and "mean of three yearly means" not in one.claim
    ]
    assert wrong == [
        ("positional-table-1", "MaxP (DEBERTA)"),  # letters differ between Tables 1 and 5
        ("positional-table-3", "MaxP"),  # the label says six sets, the number is that of eight
        ("positional-table-4", "PARADE Transf-RAND-L2 (ELECTRA) over PARADE Max"),
        ("positional-table-5", "Zhang et al. MaxP over Zhang et al. FirstP"),
        ("positional-table-6", "4 chunks over FirstP (BERT) of Table 1"),
    ]


def test_the_average_gain_over_firstp_is_the_printed_one():
    gain = mean_gain(
        TABLES["boytsov-positional-table-1"],
        row="PARADE Attn",
        base="FirstP (BERT)",
        columns=FOUR,
    )
    assert gain == pytest.approx((5.04, 4.83, 5.25), abs=0.005)


# Recomputed from the cells; the table prints their signs.
GAINS = {
    "AvgP": 0.43,
    "MaxP": 1.84,
    "SumP": 1.12,
    "CEDR-DRMM": -0.88,
    "CEDR-KNRM": -0.23,
    "CEDR-PACRR": 2.65,
    "Neural Model1": 1.91,
    "PARADE Attn (ELECTRA)": 4.41,
    "PARADE Attn (DEBERTA)": 2.52,
    "PARADE Avg": 1.18,
    "PARADE Max": 3.34,
    "PARADE Transf-RAND-L2": 4.18,
    "PARADE Transf-RAND-L2 (ELECTRA)": 3.83,
    "PARADE Transf-PRETR-L6": 3.22,
    "LongP (Longformer)": 3.64,
    "LongP (BigBird)": -7.28,
    "LongP (JINA)": 2.06,
    "LongP (MOSAIC)": 2.35,
    "LongP (TinyLLAMA)": 3.07,
    "LongP (E5)": -1.12,
}


def test_the_other_average_gains_have_the_printed_signs():
    found = {
        one.row.split(" over ")[0]: one
        for one in findings("positional-table-1")
        if one.claim.endswith("its sign")
    }
    assert {row: round(one.value, 2) for row, one in found.items()} == pytest.approx(GAINS)
    assert all(one.printed == ("+" if GAINS[row] > 0 else "-") for row, one in found.items())
    assert all(one.matches for one in found.values())


def test_chunks_are_compared_with_one_chunk_and_not_with_firstp():
    first, other, step = findings("positional-table-6")
    assert (first.value, first.low, first.high) == pytest.approx((4.29, 4.09, 4.50), abs=0.005)
    assert first.matches
    assert other.value == pytest.approx(5.0, abs=0.05) and not other.matches
    assert step.value == pytest.approx(0.604, abs=5e-4) and step.matches
    table = TABLES["boytsov-positional-table-6"]
    for row, gain in (("2 chunks", 3.08), ("3 chunks", 3.69), ("5 chunks", 3.83), ("6 chunks", 4)):
        found = mean_gain(table, row=row, base="1 chunk", columns=FOUR)
        assert found[0] == pytest.approx(gain, abs=0.005)


def test_pooled_queries_give_every_row_and_the_mean_of_years_almost_none():
    found = findings("2022-table-4")
    pooled = [one for one in found if "43 + 45 + 57" in one.claim]
    yearly = [one for one in found if "yearly means" in one.claim]
    assert Counter(one.matches for one in pooled) == {True: 20}  # 19 models and BM25
    assert Counter(one.matches for one in yearly) == {False: 17, True: 2}
    assert pooled[0].row == "BM25" and pooled[0].value == pytest.approx(0.5453, abs=5e-5)


def test_the_label_of_the_beir_average_names_fewer_sets_than_it_averages():
    eight, six = findings("positional-table-3")
    assert (eight.matches, six.matches) == (True, False)
    assert (eight.value, six.value) == (0.4769, 0.431)


def test_percentages_of_the_text_are_checked_with_their_rounding():
    (zhang,) = findings("positional-table-5")
    assert (zhang.value, zhang.low, zhang.high) == pytest.approx((6.24, 6.0, 6.5), abs=0.04)
    ours = next(one for one in findings("positional-table-1") if "3.3 %" in one.claim)
    assert ours.matches and ours.value == pytest.approx(3.23, abs=0.005)
    low, high, as_named, as_meant = findings("positional-table-4")
    assert (low.low, low.high) == pytest.approx((8.8, 9.5), abs=0.04)
    assert [one.matches for one in (low, high, as_named, as_meant)] == [True, True, False, True]


@pytest.mark.parametrize("name", TABLES)
def test_a_shipped_table_is_named_as_its_file_and_has_a_source(name: str):
    table = TABLES[name]
    assert (FOLDER / f"{name}.json").exists() and table.source and table.title
    assert all(cell.value > 0 for row in table.cells.values() for cell in row.values())


def test_a_cell_keeps_the_digits_it_was_printed_with():
    assert rounded(".4100").half == pytest.approx(5e-5)
    assert rounded("17.8ab") == Rounded(17.8, 0.05, "ab")
    assert (rounded("12").low, rounded("12").high) == (11.5, 12.5)


TABLE = {
    "name": "mine",
    "title": "My table",
    "source": "nowhere",
    "columns": ["a", "b", "all"],
    "rows": {
        "base": [".40", ".50", ".45"],
        "new": [".44", ".50", ".48"],
        "none": [None, ".5", "0"],
    },
    "checks": [],
}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.json"
    path.write_text(json.dumps(TABLE | changes))
    return path


def check(folder: Path, **fields: Any):
    return check_table(read_table(write(folder, checks=[fields])), TABLES)


def test_a_table_of_one_s_own_is_checked(tmp_path: Path):
    gain = {"kind": "gain", "row": "new", "base": "base", "columns": ["a", "b"]}
    assert check(tmp_path, **gain, printed="5.0")[0].matches
    assert not check(tmp_path, **gain, printed="9.0")[0].matches
    assert not check(tmp_path, **gain, printed="-")[0].matches
    mean = {"kind": "mean", "columns": ["a", "b"], "printed_column": "all"}
    found = check(tmp_path, **mean, rows=["base", "new"])
    assert [(one.row, one.matches, one.expected) for one in found] == [
        ("base", True, True),
        ("new", True, True),
    ]
    (heavy,) = check(tmp_path, **mean, rows=["new"], weights=[9, 1])
    assert heavy.value == pytest.approx(0.446) and not heavy.matches


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"rows": {"base": [".40", ".50"]}}, "base must have 3 cells"),
        ({"rows": {"base": [".40", ".50", "x"]}}, "base: a cell must be a number"),
        ({"rows": {"base": [0.4, ".50", ".45"]}}, r"must be a text such as \"\.410\", got 0\.4"),
        ({"columns": ["a", "a", "b"]}, "columns must be named once"),
        ({"columns": "a"}, "columns must be a list, got 'a'"),
        ({"checks": None}, "checks must be a list, got None"),
        ({"checks": ["gain"]}, "every check must be a JSON object"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(tmp_path: Path, changes: Any, law: str):
    with pytest.raises(BadInput, match=law):
        read_table(write(tmp_path, **changes))


def test_a_file_that_is_no_table_is_refused_with_its_line(tmp_path: Path):
    (tmp_path / "bad.json").write_text('{\n"name": oops}')
    with pytest.raises(BadInput, match=r"bad\.json:2: not valid JSON"):
        read_table(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(BadInput, match="one JSON object, got list"):
        read_table(tmp_path / "list.json")
    with pytest.raises(BadInput, match="must be a file"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    ("fields", "law"),
    [
        ({"kind": "median"}, "unknown kind of mine, check 1 'median'"),
        ({"claim": "x"}, "mine, check 1: needs 'kind'"),
        ({"kind": "gain", "expect": "maybe"}, "unknown expect of mine"),
        ({"kind": "gain", "row": "new"}, "needs 'base'"),
        (
            {"kind": "gain", "row": "nwe", "base": "base", "columns": ["a"], "printed": "5"},
            "unknown row of mine 'nwe'; did you mean new",
        ),
        (
            {"kind": "gain", "row": "new", "base": "base", "columns": ["c"], "printed": "5"},
            "unknown column of mine 'c'",
        ),
        (
            {"kind": "gain", "row": "none", "base": "base", "columns": ["a"], "printed": "5"},
            "needs a number in a of none",
        ),
        (
            {"kind": "gain", "row": "new", "base": "none", "columns": ["all"], "printed": "5"},
            "needs a base above 0",
        ),
        (
            {"kind": "gain", "row": "new", "base": "base", "columns": [], "printed": "5"},
            "one column or more",
        ),
        (
            {"kind": "mean", "columns": ["a"], "printed_column": "all", "weights": [1, 2]},
            "weights must be one positive number per column",
        ),
        (
            {"kind": "same", "row": "new", "columns": ["a"], "table": "yours"},
            "unknown table of mine, check 1 'yours'",
        ),
    ],
)
def test_a_check_that_cannot_be_made_is_refused(tmp_path: Path, fields: Any, law: str):
    with pytest.raises(BadInput, match=law):
        check(tmp_path, **fields)
