"""A plan from a pilot on disk: its counts keep their promise, and it says what it rests on."""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rank_core.errors import BadInput
from rank_core.stats.design import Goal, planned_power
from sweeps.commands.compare.command import main as compare
from sweeps.commands.design import (
    SEEDS,
    Costs,
    DesignPlan,
    _measured_costs,
    command_of,
    design_text,
    main,
    plan,
)
from sweeps.findings.analysis import analyse
from sweeps.plan.options import parse
from sweeps.store.test_options import TestOptions
from sweeps.systems.load import Sweep, load_sweep
from sweeps.systems.runs import run_systems
from tests.sweeps.systems.test_load import EIGHTEEN, write_sweep


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep(tmp_path_factory.mktemp("pilot"))


def planned(folder: Path, delta: float = 0.03, **goal: Any):
    sweep = load_sweep(folder)
    return plan(sweep, Goal(delta, **goal), baseline=sweep.baseline)


def _power(found: DesignPlan, S: float, Q: float) -> float:
    return planned_power(found.variances, found.goal, num_seeds=int(S), num_queries=int(Q))


def test_counts_are_the_smallest_and_the_table_of_power_has_the_promised_sizes(pilot: Path) -> None:
    many, found = planned(pilot, family_size=17), planned(pilot)
    assert _power(many, many.seeds, 200) >= 0.8 > _power(many, many.seeds - 1, 200)
    for S, Q in found.queries.items():
        if math.isinf(Q):
            assert _power(found, S, 10_000_000) < 0.8
        else:
            assert _power(found, S, Q) >= 0.8 > _power(found, S, Q - 1)
    assert tuple(found.detectable) == SEEDS == (3, 4, 5, 8, 10, 20)
    differences = list(found.detectable.values())
    assert differences == sorted(differences, reverse=True)
    assert differences[-1] > found.floor
    assert {Q for _, Q in found.power} == {50, 100, 200, 400, 800}
    for (S, Q), share in found.power.items():
        assert share == _power(found, S, Q)
    shown = re.search(r"^5 +(.+)$", design_text(found), flags=re.MULTILINE)
    row = [f"{100 * found.power[5, Q]:.0f}%" for Q in (50, 100, 200, 400, 800)]
    assert shown and re.split(r"  +", shown[1]) == [*row, f"{found.detectable[5]:.4f}"]


@pytest.mark.slow
def test_a_pilot_may_be_anything_that_is_compared(tmp_path: Path, capsys: Any) -> None:
    """The values of a sweep as a table of systems and seeds, and as a comparison wrote them."""
    sweep = load_sweep(write_sweep(tmp_path / "sweep", num_queries=60, correction="max-t"))
    words = ["--delta", ".1", "--seconds-per-seed", "60", "--seconds-per-query", ".1"]
    words += ["--gpu-hours", "9"]
    main([f"{tmp_path}/sweep", *words])
    expected = capsys.readouterr().out.partition("\n\n")[2].partition("recommended:")[0]
    values = sweep.scores[sweep.scores["measure"] == sweep.primary]
    named = values.assign(system=[sweep.label(cell) for cell in values["cell"]])
    named.drop(columns=["cell", "split"]).to_csv(tmp_path / "values.csv", index=False)
    assert main([f"{tmp_path}/values.csv", *words]) == 0
    assert capsys.readouterr().out.partition("\n\n")[2].startswith(expected)
    compare([f"{tmp_path}/values.csv", "--out", f"{tmp_path}/out"])
    capsys.readouterr()
    assert main([f"{tmp_path}/out", "--measure", sweep.primary, *words]) == 0
    assert capsys.readouterr().out.partition("\n\n")[2].startswith(expected)


def renamed(sweep: Sweep, mark: str) -> Sweep:
    """The same values of other cells."""
    cells = tuple(replace(cell, cell=cell.cell + mark) for cell in sweep.cells)
    scores = sweep.scores.assign(cell=sweep.scores["cell"].astype(str) + mark)
    return replace(sweep, cells=cells, scores=scores)


def test_the_deviation_between_runs_may_be_pooled_with_earlier_sweeps(
    pilot: Path, tmp_path: Path, capsys: Any
) -> None:
    alone = planned(pilot)
    sweep, seed = alone.pilot, alone.components.seed
    others = [renamed(sweep, "b"), renamed(sweep, "c")]
    pooled = plan(sweep, alone.goal, baseline=sweep.baseline, earlier=others)
    assert pooled.earlier == 2 and pooled.seeds <= alone.seeds
    # Three times the same runs: the deviation is the same, and its upper limit nearer.
    limit = math.sqrt(3 * seed.df / stats.chi2.ppf(0.2, 3 * seed.df))
    assert pooled.variances.seed == pytest.approx(seed.sd * limit)
    assert seed.sd < pooled.variances.seed < alone.variances.seed
    assert pooled.seeds_by_own == alone.seeds_by_own
    other = write_sweep(tmp_path, kinds=[("FirstP", 80, 80), ("MaxP", 80, 80)])
    assert main([str(pilot), "--delta", "0.03", "--earlier", str(other)]) == 0
    assert "pooled with that of 1 earlier sweep" in " ".join(capsys.readouterr().out.split())


def test_a_trial_of_an_earlier_sweep_counts_once(pilot: Path) -> None:
    sweep = load_sweep(pilot)
    goal, baseline = Goal(0.03), sweep.baseline
    with pytest.raises(BadInput, match="are the pilot's, or an earlier sweep's, and would count t"):
        plan(sweep, goal, baseline=baseline, earlier=[renamed(sweep, "b"), renamed(sweep, "b")])
    other = renamed(sweep, "b")
    shared = replace(
        other, cells=(*other.cells, *sweep.cells), scores=pd.concat([other.scores, sweep.scores])
    )
    apart, together = (
        plan(sweep, goal, baseline=baseline, earlier=[one]) for one in (other, shared)
    )
    assert together.variances == apart.variances


def test_a_difference_in_percent_is_refused_and_systems_may_be_without_clusters(
    tmp_path: Path, capsys: Any
) -> None:
    sweep = load_sweep(write_sweep(tmp_path / "sweep", num_queries=60, correction="max-t"))
    values = sweep.scores[sweep.scores["measure"] == sweep.primary]
    named = values.assign(system=[sweep.label(cell) for cell in values["cell"]])
    named.drop(columns=["cell", "split"]).to_csv(tmp_path / "values.csv", index=False)
    with pytest.raises(BadInput, match=r"delta < 1 must hold, as nDCG@10 is from 0 to 1, got delt"):
        main([f"{tmp_path}/values.csv", "--delta", "2"])
    assert main([f"{tmp_path}/values.csv", "--delta", ".1", "--clusters", "none"]) == 0
    assert "clusters" not in capsys.readouterr().out


@pytest.mark.slow
def test_below_the_floor_no_number_of_seeds_is_enough(pilot: Path) -> None:
    for found in (planned(pilot, delta=0.01), budgeted(pilot, 1, delta=0.005)):
        assert found.goal.delta < found.floor and math.isinf(found.seeds)
        assert found.recommended is None
        assert "on 200 queries: no number is enough" in design_text(found)


@pytest.mark.slow
def test_by_default_alpha_is_shared_as_in_the_pilot_s_table(tmp_path: Path, capsys: Any) -> None:
    single = {(1, 2): "failed", (1, 3): "failed"}  # a † row, in no family
    folder = write_sweep(tmp_path, num_queries=60, fates=single)
    assert analyse(load_sweep(folder)).primary[0].family_size == 3
    main([str(folder), "--delta", ".1"])
    assert "alpha 0.05, 3 comparisons:" in capsys.readouterr().out
    main([str(folder), "--delta", ".1", "--family", "1"])
    assert "alpha 0.05, 1 comparison:" in capsys.readouterr().out
    uncorrected = write_sweep(tmp_path / "none", num_queries=60, correction="none")
    main([str(uncorrected), "--delta", ".1"])
    assert "alpha 0.05, 1 comparison:" in capsys.readouterr().out


def budgeted(folder: Path, hours: float, delta: float = 0.04) -> DesignPlan:
    sweep = load_sweep(folder)
    costs = Costs(360.0, 0.9)  # .1 hours and, with 200 queries, .05
    return plan(sweep, Goal(delta), baseline=sweep.baseline, costs=costs, budget=hours)


def test_a_budget_has_a_design_for_each_number_of_configurations(pilot: Path) -> None:
    found = budgeted(pilot, 8)
    assert [design.num_configurations for design in found.designs] == [2, 5, 10]
    for design in found.designs:
        K, S, Q = design.num_configurations, design.num_seeds, design.num_queries
        assert design.cost == pytest.approx(K * S * (0.1 + Q * 0.9 / 3600)) and design.cost <= 8
        family = Goal(0.04, family_size=K - 1)
        assert design.power == planned_power(found.variances, family, num_seeds=S, num_queries=Q)
    assert found.recommended in found.designs[:2]
    text = design_text(found)
    assert f"\n{found.recommended.num_configurations} *" in text and "GPU-hours" in text
    assert max(map(len, text.partition("* recommended")[0].splitlines())) <= 80


@pytest.mark.parametrize(("hours", "num_configurations", "confirm"), [(50, 5, False), (1, 2, True)])
def test_the_recommended_command_parses_and_asks_for_the_design(
    tmp_path: Path, hours: float, num_configurations: int, confirm: bool
) -> None:
    typed = "python sweeps/window_stride.py --seeds 1,2,3 --collection x model.name=maxp --dry-run"
    found = budgeted(write_sweep(tmp_path, command=typed), hours, 0.05)
    assert found.recommended.num_configurations == num_configurations
    program, file, *words = shlex.split(command_of(found, found.recommended))
    assert (program, file) == ("python", "sweeps/window_stride.py")
    options = parse(words, prog=file, description="")
    assert options.seeds == tuple(range(1, found.recommended.num_seeds + 1)) or options.confirm
    assert options.num_seeds == found.recommended.num_seeds and not options.dry_run
    assert options.max_gpu_hours == hours and options.collection == "x"
    assert options.confirm == confirm
    assert ("reuses finished trials" in " ".join(design_text(found).split())) != confirm
    sample = {"evaluation.max_test_queries": found.recommended.num_queries}
    assert options.settings == ({} if options.confirm else {"model.name": "maxp"} | sample)


@pytest.mark.slow
def test_fewer_configurations_than_the_pilot_s_are_drawn_from_its_grid(tmp_path: Path) -> None:
    typed = "python -m sweeps run window_stride --search race --storage s"
    folder = write_sweep(tmp_path, kinds=EIGHTEEN[:10], command=typed, num_queries=100)
    found = budgeted(folder, 3, 0.08)
    assert found.recommended.num_configurations == 5
    words = shlex.split(command_of(found, found.recommended))[5:]
    options = parse(words, prog="", description="")
    assert (options.search.name, options.search.num_configs) == ("random", 4)
    assert options.storage == "s"


def test_costs_are_those_of_the_pilot_s_devices(tmp_path: Path) -> None:
    """Seconds of a trial times its GPUs, or its cores; a smoke test says nothing of a sweep."""
    typed = "python sweeps/window_stride.py --num-workers 2 --cpus-per-worker 3"
    folder = write_sweep(tmp_path, num_queries=60, command=typed)
    sweep = load_sweep(folder)
    on_cores, on_two_cpus, on_gpus = (
        _measured_costs(replace(sweep, about=replace(sweep.about, versions={"device": device})))
        for device in ("x86_64", "aarch64, x86_64", "NVIDIA H100")
    )
    assert (on_cores.unit, on_gpus.unit) == ("core", "GPU") and on_two_cpus == on_cores
    assert on_cores.training == pytest.approx(3 * on_gpus.training)
    num_test, num_dev = 60, sweep.dev_scores["query_id"].nunique()
    seconds = sweep.trials[["train_seconds", "eval_seconds"]].sum(axis=1).mean()
    whole = on_gpus.training + num_test * on_gpus.query
    assert whole == pytest.approx(2 * seconds)  # validations on dev are part of training
    query = 2 * sweep.trials["eval_seconds"].mean() / (num_test + num_dev)
    assert on_gpus.query == pytest.approx(query)
    assert _measured_costs(replace(sweep, about=replace(sweep.about, smoke_test=True))) is None


@pytest.mark.slow
def test_the_power_is_drawn_and_the_same_again(pilot, tmp_path):
    files = [tmp_path / name for name in ("one/a.svg", "two/a.svg", "a.PNG")]
    for file in files:
        assert main([str(pilot), "--delta", ".03", "--out", str(file)]) == 0
    first, again, drawn = (file.read_bytes() for file in files)
    assert first == again and first.startswith(b"<?xml") and drawn.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (["--delta", "0"], "delta > 0"),
        (["--delta", ".03", "--alpha", "5"], "0 < alpha < 1"),
        (["--delta", ".03", "--power", ".01"], "alpha < power"),
        (["--delta", ".03", "--baseline", "bm25"], "unknown baseline 'bm25'"),
        (["--delta", ".03", "--seconds-per-seed", "5"], "needs --gpu-hours"),
        (["--delta", ".03", "--gpu-hours", "9", "--seconds-per-seed", "5"], "need each other"),
        (
            "--delta .03 --gpu-hours 9 --seconds-per-seed -5 --seconds-per-query 1".split(),
            "need each other",
        ),
        (["--delta", ".03", "--gpu-hours", "0"], "--gpu-hours > 0"),
        (["--delta", ".03", "--out", "curve.pdf"], "--out"),
        (["--delta", ".03", "--queries", "1"], "--queries must be from 2 to"),
    ],
)
def test_what_cannot_be_planned_is_refused(pilot: Path, arguments: list[str], law: str) -> None:
    with pytest.raises(BadInput, match=law):
        main([str(pilot), *arguments])


def _pilot_of_values(clusters: Any) -> Sweep:
    """Two systems of two runs that differ from run to run by a constant: there is no residual."""
    rng = np.random.default_rng(4)
    base, taste = rng.uniform(0.2, 0.6, 30), rng.normal(0.01, 0.05, 30)
    tables = {
        system: pd.DataFrame(
            [(f"q{q}", "RR", seed, base[q] + more[q] + lift)
             for seed, lift in ((1, 0.0), (2, 0.01)) for q in range(30)],
            columns=["query_id", "measure", "seed", "value"],
        )
        for system, more in (("a", 0 * taste), ("b", taste))
    }  # fmt: skip
    return run_systems(
        {name: [one] for name, one in tables.items()}, None, TestOptions(clusters=clusters)
    ).sweep


def test_a_plan_in_clusters_is_that_of_the_jackknife_and_says_clusters_and_queries() -> None:
    """The deviation of the differences is that of leaving out a cluster, by hand; clusters of a
    single query change nothing."""
    of = {f"q{q}": f"c{q % 9 if q < 20 else q % 4}" for q in range(30)}
    pilots = {name: _pilot_of_values(own) for name, own in
              {"": "", "alone": {q: q for q in of}, "nine": of}.items()}  # fmt: skip
    plans = {name: plan(own, Goal(0.03), baseline="a") for name, own in pilots.items()}
    assert design_text(plans["alone"]) == design_text(plans[""])
    mean = pilots[""].scores.groupby(["cell", "query_id"])["value"].mean().unstack("cell")
    delta = mean["b"] - mean["a"]
    without = [delta[[of[q] != c for q in delta.index]].mean() for c in sorted({*of.values()})]
    V = (9 - 1) / 9 * sum((one - np.mean(without)) ** 2 for one in without)
    assert plans["nine"].components.difference.sd ** 2 / 9 == pytest.approx(V)
    assert plans["nine"].floor > plans[""].floor / 2
    text = " ".join(design_text(plans["nine"]).split())
    assert "RR on the given values, 9 clusters of 30 queries, 2 systems" in text
    assert "seeds per system on 9 clusters of 30 queries: " in text
    number = int(plans["nine"].queries_by_own[3])
    assert f"({number} clusters of {round(number * 30 / 9)} queries at the pilot's own" in text
    asked = plan(pilots["nine"], Goal(0.03), baseline="a", num_queries=300)
    assert asked.num_queries == 90 and "on 90 clusters of 300 queries" in design_text(asked)


def test_clusters_of_a_plan_are_those_of_its_flag_else_of_the_pilot_s_command(
    tmp_path: Path, capsys: Any
) -> None:
    folder = write_sweep(tmp_path / "sweep", num_queries=40)
    ids = sorted(load_sweep(folder).scores["query_id"].unique())
    rows = [f"{query_id}\tc{number // 4}" for number, query_id in enumerate(ids)]
    (tmp_path / "c.tsv").write_text("\n".join(rows))
    assert main([str(folder), "--delta", ".1", "--clusters", f"{tmp_path}/c.tsv"]) == 0
    shown = capsys.readouterr().out
    assert "10 clusters of 40 queries" in shown and "A cluster has 4.0 queries" in shown
    with pytest.raises(BadInput, match="--clusters auto needs judgments"):
        main([str(folder), "--delta", ".1", "--clusters", "auto"])


EXTREMES = {
    "--delta": ("1e-300", "0.999"),
    "--alpha": ("1e-300", "1e-9", ".999"),
    "--power": ("1e-300", ".999999999"),
    "--family": ("0", "100000", "100000000", 400 * "9"),
    "--queries": ("1", "2", "10000000", "10000001", 400 * "9"),
    "--gpu-hours": ("1e-300", "1e300"),
}


@pytest.mark.parametrize("flag", EXTREMES)
def test_an_extreme_is_planned_or_refused_and_no_difference_is_beyond_the_measure(
    flag: str, pilot: Path, capsys: Any, tmp_path: Path
) -> None:
    """Whatever a flag says: a plan whose differences the measure can have, or one sentence."""
    for value in EXTREMES[flag]:
        words = [] if flag == "--delta" else ["--delta", ".05"]
        costs = ["--seconds-per-seed", "60", "--seconds-per-query", ".1"]
        words += costs if flag == "--gpu-hours" else []
        try:
            assert main([str(pilot), *words, flag, value]) == 0
        except BadInput as error:
            assert flag.lstrip("-") in str(error) or "family_size" in str(error)
            continue
        text = capsys.readouterr().out
        beyond = [number for number in re.findall(r"\b\d+\.\d{4}\b", text) if float(number) >= 1]
        assert not beyond, text


def test_no_spread_between_systems_promises_no_difference_of_nothing(pilot: Path) -> None:
    found = planned(pilot)
    without = replace(found, variances=replace(found.variances, difference=0.0), floor=0.0)
    assert "any number of seeds: 0.0000" not in design_text(without)
    assert "any number of seeds: unknown, as the pilot shows no spread" in design_text(without)
