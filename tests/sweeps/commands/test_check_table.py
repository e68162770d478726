"""`python -m sweeps check-table`: what it prints and how it ends."""

import json
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.commands.check_table import main

TABLE = {
    "name": "mine",
    "title": "My table",
    "source": "nowhere",
    "columns": ["nDCG@10"],
    "rows": {"base": [".400"], "new": [".440"]},
    "checks": [
        {
            "claim": "Gain",
            "kind": "gain",
            "row": "new",
            "base": "base",
            "columns": ["nDCG@10"],
            "printed": "10.0",
        }
    ],
}


def write(folder: Path, printed: str, **fields: str) -> str:
    path = folder / "mine.json"
    check = TABLE["checks"][0] | {"printed": printed} | fields
    path.write_text(json.dumps(TABLE | {"checks": [check]}))
    return str(path)


def test_without_an_argument_all_shipped_tables_are_as_recorded(capsys: pytest.CaptureFixture):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "72 claims recomputed: 50 match, 22 do not; all as recorded with the tables." in shown
    assert shown.count("MISMATCH") == 6
    assert "printed 5.0 %, from the cells +5.04 % [4.83, 5.25]" in shown
    assert "(17 of 19 rows)" in shown and "and 14 more" in shown


def test_a_shipped_table_is_chosen_by_name(capsys: pytest.CaptureFixture):
    assert main(["boytsov-positional-table-6"]) == 0
    shown = capsys.readouterr().out
    assert "3 claims recomputed: 2 match, 1 do not" in shown and "Table 1" in shown
    assert main(["zhang-2021-table-2"]) == 0
    assert "no derived numbers to check" in capsys.readouterr().out


def test_a_table_of_one_s_own_ends_with_1_if_a_claim_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    assert main([write(tmp_path, "10.0")]) == 0
    assert main([write(tmp_path, "12.0")]) == 1
    assert "not as expected: mine, Gain, new over base." in capsys.readouterr().out
    assert main([write(tmp_path, "12.0", expect="mismatch")]) == 0
    assert main([write(tmp_path, "10.0", expect="mismatch")]) == 1


def test_an_unknown_table_is_refused_with_the_known_ones(tmp_path: Path):
    with pytest.raises(BadInput, match="did you mean boytsov-positional-table-6"):
        main(["boytsov-positional-tabel-6"])
    with pytest.raises(BadInput, match=r"mine\.json does not exist"):
        main([str(tmp_path / "mine.json")])
