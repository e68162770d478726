"""What a sweep is on disk: one reader, one sentence for each damage."""

import json

import pytest

from rank_core.errors import BadInput
from sweeps.store.sweep_file import (
    Cell,
    SweepFile,
    parse_sweep_file,
    read_sweep_file,
    update_sweep_file,
)

SWEEP = SweepFile(
    sweep="x",
    question="Which?",
    split="test",
    measures=("P@5", "RR@10"),
    primary="P@5",
    baseline="a",
    cells=(Cell("a", "A", settings={"model.name": "firstp"}), Cell("b")),
    seeds=(1, 2),
    baselines={"b": "a"},
)


def test_a_description_reads_back_as_it_was_written(tmp_path):
    SWEEP.write(tmp_path)
    assert read_sweep_file(tmp_path) == SWEEP
    kept = json.loads((tmp_path / "sweep.json").read_text())
    assert kept["schema_version"] == 1 and "stopped" not in kept and "search" not in kept


def test_what_is_found_out_later_is_added_once(tmp_path):
    SWEEP.write(tmp_path)
    search = {"name": "race", "standings": ({"cell": "b", "left_after": None},)}
    assert update_sweep_file(tmp_path, stopped="the budget", search=search)
    assert not update_sweep_file(tmp_path, search=search)
    assert read_sweep_file(tmp_path).stopped == "the budget"


def test_fields_that_nobody_knows_are_passed_over():
    content = SWEEP.to_json() | {"novelty": 1, "correction": None}
    content["cells"][0]["novelty"] = 1
    assert parse_sweep_file(json.dumps(content).encode(), "x") == SWEEP


def test_a_folder_that_is_no_sweeps_is_refused_with_the_sweeps_in_it(tmp_path):
    message = f"DIR must be a sweep's folder, which holds sweep.json; found none in {tmp_path}"
    with pytest.raises(BadInput, match=f"{message}$"):
        read_sweep_file(tmp_path)
    for name in ("woods", "lakes"):
        (tmp_path / name).mkdir()
        SWEEP.write(tmp_path / name)
    with pytest.raises(BadInput, match=r"; it holds the folders of sweeps: lakes, woods$"):
        read_sweep_file(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"sweep": "\xff"}', "there/sweep.json: must be UTF-8 text"),
        (b'{\n"sweep": oops}', "there/sweep.json:2: not valid JSON"),
        (b"[1]", "must hold one JSON object, got list"),
        (b"{}", "missing: sweep, question"),
    ],
)
def test_a_file_that_is_none_is_refused(content, message):
    with pytest.raises(BadInput) as error:
        parse_sweep_file(content, "there")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cells", [1], "cells must be a list of cells with their names, got [1]"),
        ("cells", [{"cell": 1}], "cells must be a list of cells"),
        ("cells", [{"cell": "a"}, {"cell": "a"}], "each cell must appear once, found twice: a"),
        ("seeds", ["1"], "seeds must be a list of whole numbers"),
        ("measures", "P@5", "measures must be a list of texts"),
        ("alpha", "0.05", "alpha must be a number"),
        ("alpha", 5, "0 < alpha < 1 must hold"),
        ("rope", -1, "rope > 0 must hold"),
        ("paired_seeds", 1, "paired_seeds must be true or false"),
        ("experiment", 7, "experiment must be a text, got 7"),
        ("search", [], "search must be an object"),
        ("search", {"standings": [7]}, "search must be an object as the sweep wrote its search"),
        ("first_stage", {"P@5": "x"}, "first_stage must be an object as the sweep wrote"),
        ("baselines", {"b": 1}, "baselines must be an object"),
        ("cells", [{"cell": "a", "coverage": "x"}], "cells must be a list of cells"),
        ("confirms", {"sweep": "x"}, "confirms must name"),
        ("baseline", "z", "baseline must be one of cells, got 'z'; known: a, b"),
        ("baselines", {"b": "z"}, "baselines must map cells to cells, got 'z'"),
        ("primary", "AP", "primary must be one of measures"),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(name, value, message):
    content = json.dumps(SWEEP.to_json() | {name: value}).encode()
    with pytest.raises(BadInput) as error:
        parse_sweep_file(content, "there")
    assert message in str(error.value) and str(error.value).startswith("there/sweep.json: ")
