"""A description that anyone may have sealed: what it cannot say is refused in a sentence."""

import json
import shutil
from dataclasses import fields

import pytest

from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.store.records import own_digest
from sweeps.store.stated_types import misfit
from sweeps.store.sweep_file import FILE, Cell, SweepFile
from sweeps.systems.load import load_sweep
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

GONE = object()
VALUES = {
    "missing": GONE,
    "null": None,
    "true": True,
    "zero": 0,
    "a number": -1.5,
    "a large number": 10**30,
    "a text": "x",
    "an empty text": "",
    "a path": "../../etc/passwd",
    "a list": [],
    "a list of lists": [[]],
    "a list of texts": ["x", "x"],
    "a list of tables": [{}],
    "a table": {},
    "a table of tables": {"a": {"b": []}},
}
NAMES = [one.name for one in fields(SweepFile)]
CELLS = [one.name for one in fields(Cell)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_ranked_sweep(tmp_path_factory.mktemp("sweep"))


def sealed(whole, target, name, value, *, cell):
    target.mkdir()
    for path in whole.iterdir():  # the file alone is changed
        if path.name != FILE:
            (target / path.name).symlink_to(path)
    path = target / FILE
    shutil.copy(whole / FILE, path)
    described = json.loads(path.read_text())
    described.pop("checksum")
    place = described["cells"][0] if cell else described
    place.pop(name, None)
    if value is not GONE:
        place[name] = value
    path.write_text(json.dumps(described | {"checksum": own_digest(described)}))
    return path.parent


PLACES = [(name, False) for name in NAMES] + [(name, True) for name in CELLS]


@pytest.mark.parametrize(("name", "cell"), PLACES)
def test_no_value_of_any_field_ends_in_another_error(whole, tmp_path, name, cell):
    refused = 0
    for number, value in enumerate(VALUES.values()):
        folder = sealed(whole, tmp_path / str(number), name, value, cell=cell)
        try:
            load_sweep(folder)
        except BadInput as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused or name in ("cell", "settings")


def test_the_message_has_file_field_and_types(whole, tmp_path, capsys):
    folder = sealed(whole, tmp_path / "a", "seeds", ["one"], cell=False)
    assert main(["report", str(folder)]) == 2
    message = capsys.readouterr().err
    assert f"{folder}/{FILE}: seeds must be a list of whole numbers, got ['one']" in message
    folder = sealed(whole, tmp_path / "b", "coverage", "all", cell=True)
    with pytest.raises(BadInput, match="cells, number 1: coverage must be a number or null"):
        load_sweep(folder)


def test_what_the_command_writes_fits():
    cell = {"cell": "c1", "coverage": 1, "settings": {"a": 1}}
    table = {"sweep": "s", "question": "q", "split": "test", "measures": ["RR"], "primary": "RR"}
    table |= {"baseline": "c1", "cells": [cell]}
    assert misfit(SweepFile, table) == ""
    assert misfit(SweepFile, table | {"more": 1}) == "has an unknown field 'more'"
    assert misfit(SweepFile, []) == "must be a table, got []"
