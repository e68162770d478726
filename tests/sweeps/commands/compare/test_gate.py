"""A gate keeps, discards or cannot tell; its looks are counted."""

import json
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.stats.looks import interval_of_look
from rank_core.stats.scopes import confidence_interval, scope_test
from sweeps.commands.compare.command import main
from sweeps.report.gate import GateDecision, Rule
from tests.benchmarks.gate_loops import KINDS, accepted

QUERIES = 80
KEEP, DISCARD, UNDECIDED = 0, 1, 5


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Per-query values of a baseline and of proposals, five runs each."""
    folder = tmp_path_factory.mktemp("values")
    rng = np.random.default_rng(3)
    truth_Q = rng.uniform(0.3, 0.6, QUERIES)
    gains = {"base": 0, "better": 0.06, "worse": -0.06, "same": -0.0004, "odd": 0.008}
    for name, gain in gains.items():
        spread = 0.002 if name in ("base", "same") else 0.05
        value_SQ = truth_Q + gain + rng.normal(0, spread, (5, QUERIES))
        lines = [
            f"q{q},nDCG@10,{seed},{value_SQ[seed, q]:.6f}\n"
            for seed in range(5)
            for q in range(QUERIES)
        ]
        (folder / f"{name}.csv").write_text("query_id,measure,seed,value\n" + "".join(lines))
    return folder


@pytest.fixture
def gate(values, tmp_path, monkeypatch, capsys):
    """(proposal, flags) -> the exit code and the line."""
    monkeypatch.chdir(tmp_path)

    def run(proposal: str, *flags: str) -> tuple[int, str]:
        systems = (f"base={values}/base.csv", f"{proposal}={values}/{proposal}.csv")
        code = main([*systems, "--gate", *flags])
        return code, capsys.readouterr().out.strip()

    return run


def file() -> dict:
    return json.loads(Path("gate.json").read_text())


@pytest.mark.parametrize(
    ("proposal", "flags", "code", "begins"),
    [
        ("better", (), KEEP, "keep: better against base on nDCG@10, +0.0"),
        ("worse", (), DISCARD, "discard: worse against base on nDCG@10, −0.0"),
        ("same", (), DISCARD, "discard: same against base"),  # surely no gain of .01
        ("odd", (), UNDECIDED, "undecided: odd against base"),
        ("same", ("--margin", "0.01"), KEEP, "keep: same"),
        ("worse", ("--margin", "0.01"), DISCARD, "discard: worse"),
        ("worse", ("--margin", "0.2"), KEEP, "keep: worse"),
    ],
)
def test_the_exit_code_and_the_line_are_the_decision(gate, proposal, flags, code, begins):
    got, line = gate(proposal, *flags)
    assert (got, line[: len(begins)]) == (code, begins)
    assert "\n" not in line and line.endswith("look 1 of 1")
    assert file()["taken"][0]["decision"] == begins.partition(":")[0]


def test_an_undecided_gate_says_how_much_more_would_decide(gate):
    _, line = gate("odd")
    assert "more seeds per system would probably decide" in line


def test_the_level_of_a_look_is_its_share_of_alpha(gate):
    gate("better", "--looks", "20")
    one = file()
    assert (
        one["level"] == pytest.approx(0.05 / 20)
        and "99.75% interval" in gate("better", "--looks", "20")[1]
    )
    gate("better", "--reset-looks")
    assert file()["taken"][0]["low"] > one["taken"][0]["low"]  # a narrower interval


def test_a_command_given_again_takes_no_further_look_and_other_values_do(gate):
    for proposal, number in (("odd", 1), ("odd", 1), ("better", 2), ("odd", 1)):
        assert gate(proposal, "--looks", "2")[1].endswith(f"look {number} of 2")
    assert [one["look"] for one in file()["taken"]] == [1, 2]


def test_more_looks_than_planned_are_refused_until_a_new_loop_begins(gate):
    gate("odd")
    before = file()
    with pytest.raises(BadInput, match=r"all looks of gate.json are taken.*--reset-looks"):
        gate("better")
    assert file() == before
    assert gate("better", "--reset-looks")[0] == KEEP


@pytest.mark.parametrize("flags", [("--alpha", "0.1"), ("--margin", "0.02"), ("--looks", "3")])
def test_another_rule_in_the_middle_of_a_loop_is_refused(gate, flags):
    gate("odd", "--looks", "2")
    words = flags if "--looks" in flags else (*flags, "--looks", "2")
    with pytest.raises(BadInput, match=f"was begun with {'no_worse|margin|alpha|looks'}"):
        gate("better", *words)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"schema": "other"}', '{"schema": "ranksweep gate 1"}']
)
def test_a_file_that_is_no_gates_is_left_alone(gate, content):
    Path("gate.json").write_text(content)
    with pytest.raises(BadInput, match=r"gate.json is not a file of a gate"):
        gate("better")
    assert Path("gate.json").read_text() == content


def test_one_training_run_cannot_decide_and_a_system_without_training_can(gate, values):
    one = [f"base={values}/base.csv:base", f"better={values}/better.csv"]
    rows = (values / "base.csv").read_text().splitlines()
    for name in ("base", "better"):
        rows = (values / f"{name}.csv").read_text().splitlines()
        Path(f"{name}.csv").write_text("\n".join(rows[: 1 + QUERIES]))  # its first run
    one = ["base=base.csv", "better=better.csv", "--gate"]
    assert main(one) == UNDECIDED
    assert file()["taken"][0]["low"] is None
    fixed = ("--deterministic", "base", "--deterministic", "better", "--reset-looks")
    assert main([*one, *fixed]) == KEEP


def test_looks_of_processes_at_the_same_time_are_all_counted(gate, values):
    names = ("better", "worse", "same", "odd")

    def run(name: str) -> None:
        main([f"base={values}/base.csv", f"{name}={values}/{name}.csv", "--gate", "--looks", "4"])

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = file()["taken"]
    assert sorted(one["proposal"] for one in taken) == sorted(names)
    assert [one["look"] for one in taken] == [1, 2, 3, 4]


def test_a_gate_has_one_proposal(gate, values):
    systems = [f"{name}={values}/{name}.csv" for name in ("base", "same", "odd")]
    with pytest.raises(BadInput, match="one proposal with one baseline, got 2 comparisons"):
        main([*systems, "--gate"])


def test_the_decision_by_hand():
    gain = Rule("m", 0.05, 1, 0.01, no_worse=False)
    assert gain.decide(0.001, 0.2) is GateDecision.KEEP
    assert gain.decide(-0.02, 0.009) is GateDecision.DISCARD
    assert gain.decide(-0.02, 0.02) is GateDecision.UNDECIDED
    no_worse = Rule("m", 0.05, 1, 0.01, no_worse=True)
    assert no_worse.decide(-0.009, -0.001) is GateDecision.KEEP
    assert no_worse.decide(-0.03, -0.011) is GateDecision.DISCARD
    assert no_worse.decide(-0.03, 0.02) is GateDecision.UNDECIDED


@pytest.mark.parametrize("no_worse", [False, True])
def test_each_threshold_of_a_gate_decides_at_both_of_its_sides(no_worse):
    """The two sides lie nowhere near the other mode's threshold, or near 0."""
    rule, step = Rule("m", 0.05, 1, 0.01, no_worse=no_worse), 1e-6
    kept, discarded = (-0.01, -0.01) if no_worse else (0.0, 0.01)
    wide = 0.5
    assert rule.decide(kept + step, wide) is GateDecision.KEEP
    assert rule.decide(kept - step, wide) is GateDecision.UNDECIDED
    assert rule.decide(-wide, discarded - step) is GateDecision.DISCARD
    assert rule.decide(-wide, discarded + step) is GateDecision.UNDECIDED


def test_one_of_many_looks_has_the_interval_of_a_look(gate, values):
    frames = [pd.read_csv(values / f"{name}.csv") for name in ("better", "base")]
    scores = [f.pivot(index="seed", columns="query_id", values="value").to_numpy() for f in frames]
    test = scope_test(*scores)
    for looks, (low, high) in (
        (1, confidence_interval(test, 0.95)),
        (20, interval_of_look(test, 0.05 / 20)),
    ):
        gate("better", "--looks", str(looks), "--reset-looks")
        [taken] = file()["taken"]
        assert (taken["low"], taken["high"]) == pytest.approx((low, high), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["deterministic, 3 seeds of SD .02", "10 seeds of SD .003, 3 of .03"]
)
def test_a_loop_keeps_its_promise_where_the_baseline_is_steadier(kind):
    """By Welch's degrees of freedom .16 and .23 of such loops keep a change that does nothing; by
    parts of the runs without their residual, which are 0 by chance, .13."""
    rng = np.random.default_rng(7)
    kept = ["gate" in accepted(KINDS[kind], 50, rng=rng) for _ in range(120)]
    assert np.mean(kept) <= 0.05 + 1.5 * np.sqrt(0.05 * 0.95 / 120)
