"""A comparison whose two sides ran on unlike machines says so above the table and on the page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.findings import cost
from sweeps.findings.analysis import analyse
from sweeps.report.build import write_report
from sweeps.store.records import State, sealed
from sweeps.store.sweep_file import Cell, own_digest
from sweeps.store.trial_status import TrialStatus
from sweeps.systems.load import load_sweep
from sweeps.systems.machines import hours_on, machines_of, mean_workers, unlike_sides
from tests.sweeps.report.ranked_sweep import CELLS, write_ranked_sweep

A100 = {"device": "NVIDIA A100-SXM4-80GB", "precision": "bfloat16", "torch": "2.13.0+cu129"}
T4 = A100 | {"device": "Tesla T4"}
FIRST, SECOND = CELLS[0][0], CELLS[1][0]


def sweep_on(
    folder: Path,
    machines: Mapping[str, Mapping[str, str]],
    groups: Mapping[str, Sequence[int]] | None = None,
) -> Path:
    """A sweep whose cells ran on these, the others on an A100, in groups of so many workers; an
    encoder computed."""
    write_ranked_sweep(folder)
    for trial in (folder / "trials").iterdir():
        facts = json.loads((trial / "result.json").read_text())
        cell = trial.name.rpartition("-seed")[0]
        facts |= {"encoder_tokens": 1000, "versions": dict(machines.get(cell, A100))}
        if numbers := (groups or {}).get(cell):
            rows = enumerate(numbers)
            facts["workers"] = [{"step": n, "number": own, "seconds": 0.0} for n, own in rows]
        (trial / "result.json").write_text(json.dumps(facts))
        sealed(trial)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "Tesla T4"}, ["devices", "Tesla T4", A100["device"]]),
        ({"precision": "float16"}, ["precisions", "float16", "bfloat16"]),
        ({"torch": "2.13.0+cu130"}, ["builds of torch", "2.13.0+cu130", "2.13.0+cu129"]),
        ({"device": "Tesla T4", "precision": "float16"}, ["different devices and precisions"]),
        ({}, []),
    ],
)
def test_sides_that_ran_on_unlike_machines_are_named_above_the_table(tmp_path, changes, words):
    folder = sweep_on(tmp_path / "sweep", {SECOND: A100 | changes})
    text = write_report(folder).text
    above = " ".join(text[: text.index("nDCG@10")].split())
    page = (folder / "report" / "index.html").read_text()
    assert ("Unlike machines: in 1 comparison" in above) == bool(words)
    assert ("Unlike machines" in page) == bool(words)
    words = [*words, "in 3 of 3 seeds"] if words else []
    assert [word for word in words if word not in above] == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([10, 2], "numbers of workers, which may be the difference that is seen"),
        ([1], ""),
        ([], ""),  # before 0.5
    ],
)
def test_sides_of_unlike_groups_are_named_above_the_table(tmp_path, numbers, words):
    groups = {cell: [1] for cell, *_ in CELLS} | {SECOND: numbers}
    text = write_report(sweep_on(tmp_path / "sweep", {}, groups)).text
    above = " ".join(text[: text.index("nDCG@10")].split())
    assert words in above and ("Unlike machines: in 1 comparison" in above) == bool(words)
    assert ("on 2 workers and 10 workers" in above) == bool(words)


def test_what_ran_on_one_kind_or_without_an_encoder_is_no_finding(tmp_path):
    sweep = load_sweep(sweep_on(tmp_path / "sweep", {FIRST: T4, SECOND: T4}))
    assert {facts["device"] for facts in sweep.machines[FIRST].values()} == {("Tesla T4",)}
    pairs = [(SECOND, FIRST), ("bm25", FIRST)]
    for paired in (True, False):
        assert unlike_sides(sweep.machines, pairs, sweep.cells, paired=paired) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "paired", "row"),
    [
        ("AAAAT", "ATTTT", True, ("A", "T", 3, 5)),  # both kinds on both sides
        ("AAAAT", "ATTTT", False, ("A", "T", 3, 5)),
        ("AAT", "TAA", True, ("AT", "AT", 2, 3)),  # as many of each, but by other seeds
        ("AAT", "TAA", False, None),
        ("AAT", "AAT", True, None),
        ("AAT", "A", True, ("T", "A", 1, 3)),  # of the baseline a single run is possible
        ("AAAA", "AAT", False, ("A", "T", 2, 4)),  # a third of 4 seeds
        ("AM", "AA", True, ("AT", "A", 1, 2)),  # M: a trial that moved from one to the other
    ],
)
def test_machines_are_compared_seed_by_seed_or_by_their_shares(ours, theirs, paired, row):
    sides = {
        cell: {seed: {"device": tuple("AT" if one == "M" else one)} for seed, one in enumerate(own)}
        for cell, own in (("b", ours), ("a", theirs))
    }
    found = unlike_sides(sides, [("b", "a")], [], paired=paired)
    found = [("".join(r.of_system), "".join(r.of_baseline), r.seeds, r.of_seeds) for r in found]
    assert found == ([row] if row else [])


def test_seeds_of_0_4_beside_those_of_0_5_are_left_out_of_the_pairs():
    """Of 3 paired seeds the first alone notes its workers on both sides."""
    notes = {"b": {0: 1, 1: 2}, "a": {0: 1, 2: 1}}
    sides = {
        cell: {
            seed: {"device": ("A",)} | ({"workers": (own[seed],)} if seed in own else {})
            for seed in range(3)
        }
        for cell, own in notes.items()
    }
    assert unlike_sides(sides, [("b", "a")], [], paired=True) == []
    sides["b"][0]["workers"] = (2, 10)
    [row] = unlike_sides(sides, [("b", "a")], [], paired=True)
    assert (row.of_system, row.of_baseline, row.seeds, row.of_seeds) == ((2, 10), (1,), 1, 3)


@pytest.mark.parametrize("gpus", [None, 0.5])
def test_hours_are_counted_by_the_kind_of_device(tmp_path, gpus):
    folder = sweep_on(tmp_path / "sweep", {FIRST: T4})
    about = json.loads((folder / "sweep.json").read_text())
    about |= {"start": ["python"], "settings": {}, "smoke_test": False}
    about["flags"] = {"num_workers": 2} | ({"gpus_per_worker": gpus} if gpus else {})
    del about["checksum"]
    about["checksum"] = own_digest(about)
    (folder / "sweep.json").write_text(json.dumps(about))
    sweep = load_sweep(folder)
    trials = sweep.used.assign(on=[T4 if c == FIRST else A100 for c in sweep.used["cell"]])
    seconds = (trials["train_seconds"] + trials["eval_seconds"]).groupby(
        [own["device"] for own in trials["on"]]
    )
    rows = {row.about: row for row in cost.rows(analyse(sweep)) if row.name == "GPU-hours"}
    assert rows.keys() == {T4["device"], A100["device"]}
    for device, own in seconds.sum().items():
        assert rows[device].value == pytest.approx(own / 3600 * 2 * (gpus or 1))
    alike = analyse(load_sweep(sweep_on(tmp_path / "alike", {})))
    assert not [row for row in cost.rows(alike) if "hours" in row.name]


def test_the_workers_of_a_trial_are_those_of_each_of_its_parts():
    rows = [(0, 2, 0.0), (55, 1, 10.0), (80, 4, 40.0)]
    rows = [dict(zip(("step", "number", "seconds"), row, strict=True)) for row in rows]
    facts = {"train_seconds": 40.0, "eval_seconds": 5.0, "encoder_tokens": 9, "versions": T4}
    changed = State("a-seed1", TrialStatus.DONE, facts=facts | {"workers": rows})
    assert hours_on([changed], {})[T4["device"]] == pytest.approx((20 + 30 + 20) / 3600)
    assert mean_workers([changed], {"num_workers": "1-4"}) == pytest.approx(70 / 45)
    before = replace(changed, facts=facts)
    assert mean_workers([changed, before], {"num_workers": "2"}) == pytest.approx(160 / 90)


def test_a_trial_counts_on_each_device_that_its_workers_had():
    """A group on both kinds for 15 s, then one worker, on the T4 alone, for 30."""
    both = {"step": 0, "number": 3, "seconds": 0.0, "devices": {A100["device"]: 2, T4["device"]: 1}}
    one = {"step": 8, "number": 1, "seconds": 15.0, "devices": {T4["device"]: 1}}
    facts = {"train_seconds": 40.0, "eval_seconds": 5.0, "encoder_tokens": 9, "versions": A100}
    state = State("a-seed1", TrialStatus.DONE, facts=facts | {"workers": [both, one]})
    hours = {A100["device"]: 2 * 15 / 3600, T4["device"]: (15 + 30) / 3600}
    assert hours_on([state], {"gpus_per_worker": 1}) == pytest.approx(hours)
    assert machines_of([state])["a"][1]["device"] == tuple(sorted(hours))


def test_a_precision_that_is_compared_on_purpose_is_no_finding():
    one, other = ({1: {"precision": (name,)}} for name in ("bfloat16", "float32"))
    plain, swept = Cell("a"), Cell("b", settings={"training.precision": "bf16"})
    machines = {"b": one, "a": other}
    assert unlike_sides(machines, [("b", "a")], [plain, swept], paired=True) == []
    assert len(unlike_sides(machines, [("b", "a")], [plain, Cell("b")], paired=True)) == 1
