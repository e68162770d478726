"""What a sweep is on disk: one reader, which takes nothing but what a command wrote."""

import json
from dataclasses import replace

import pytest

from rank_core.errors import BadInput
from sweeps.store.records import own_digest
from sweeps.store.sweep_file import (
    Cell,
    NoSweep,
    SweepFile,
    find_sweep,
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


@pytest.fixture
def woods(tmp_path):
    folder = tmp_path / "x" / "woods"
    folder.mkdir(parents=True)
    return find_sweep(str(folder))


def test_a_description_reads_back_as_it_was_written(woods):
    SWEEP.write(woods)
    assert read_sweep_file(woods) == read_sweep_file(woods.folder) == SWEEP
    kept = json.loads((woods.folder / "sweep.json").read_text())
    assert kept["schema_version"] == 3 and "stopped" not in kept and "search" not in kept


def test_what_is_found_out_later_is_added_once(woods):
    SWEEP.write(woods)
    search = {"name": "race", "standings": ({"cell": "b", "left_after": None},)}
    update_sweep_file(woods, stopped="the budget", search=search)
    before = (woods.folder / "sweep.json").stat().st_mtime_ns
    update_sweep_file(woods, search=search)
    assert (woods.folder / "sweep.json").stat().st_mtime_ns == before
    assert read_sweep_file(woods).stopped == "the budget"


def test_a_folder_that_is_no_sweeps_is_refused_with_the_sweeps_in_it(tmp_path, woods):
    with pytest.raises(NoSweep, match=str(woods.folder)):
        read_sweep_file(woods)
    SWEEP.write(woods)
    with pytest.raises(BadInput, match=r"the folders of sweeps: woods$"):
        read_sweep_file(tmp_path / "x")


@pytest.mark.parametrize("content", [b'{"sweep": "\xff"}', b"oops", b"[1]", b"[" * 10**5])
def test_a_file_that_is_none_is_refused(content):
    with pytest.raises(BadInput, match=r"there/sweep\.json"):
        parse_sweep_file(content, "there")


@pytest.mark.parametrize(
    ("change", "named"),
    [({"alpha": 0.2}, "was changed"), ({"schema_version": 1}, "schema_version must be 3")],
)
def test_a_changed_file_and_one_of_an_earlier_version_are_refused(change, named):
    described = json.loads(SWEEP.content()) | change
    if "schema_version" in change:
        described.pop("checksum")
        described["checksum"] = own_digest(described)
    with pytest.raises(BadInput, match=named):
        parse_sweep_file(json.dumps(described).encode(), "there")


@pytest.mark.parametrize(("units", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_file_of_0_4_says_what_auto_was_on_its_cpus(units, precision):
    described = json.loads(SWEEP.content()) | {"cpu": {"matrix_units": units, "kernels": "x 1"}}
    described["checksum"] = own_digest({k: v for k, v in described.items() if k != "checksum"})
    found = parse_sweep_file(json.dumps(described).encode(), "there")
    assert found == replace(SWEEP, auto_precision={"cpu": precision})
