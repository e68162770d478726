"""`ranksweep design PILOT`: how many seeds and queries the next comparison needs."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rank_core.errors import BadInput, unknown
from rank_core.stats.design import (
    Design,
    Goal,
    Variances,
    cheapest_design,
    floor,
    planned_detectable,
    planned_power,
    planned_variances,
    queries_needed,
    seeds_needed,
)
from rank_core.stats.matrix import score_matrix
from rank_core.stats.variance import SweepComponents, sweep_components
from sweeps.commands.compare.command import SOURCES, query_sets_of, systems_of
from sweeps.commands.compare.runs import compare_runs
from sweeps.plan.command_line import Parser, check_writable
from sweeps.report.figures.figure import INK, WIDTH, draw, new_figure, style
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.table import table, terminal_lines, wrapped
from sweeps.store.opened_sweep import opened
from sweeps.store.sweep_file import FILE
from sweeps.store.trial_status import USED, TrialStatus

SEEDS = (3, 4, 5, 8, 10, 20)
ASSURANCE = 0.8
FORMATS = (".png", ".svg")
_SHARES = (1 / 4, 1 / 2, 1, 2, 4)
"""Of the comparison's queries: the columns of the power table."""
_MOST_SEEDS = 300
"""Beyond this a cheaper design with more seeds is not looked for."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one training run and of ranking one query with it."""

    training: float
    query: float
    measured: bool  # on the pilot, instead of given


@dataclass(frozen=True)
class DesignPlan:
    """What standard deviations say about a comparison; counts are infinite where out of reach."""

    goal: Goal
    variances: Variances
    num_queries: int  # of the comparison
    seeds: float  # needed per system on these queries
    queries: dict[int, float]  # {seeds per system: queries needed}
    floor: float
    power: dict[tuple[int, int], float]  # {(seeds per system, queries): power}
    detectable: dict[int, float]  # {seeds per system: the smallest difference found}
    costs: Costs | None = None
    cheapest: Design | None = None
    pilot: Sweep | None = None
    components: SweepComponents | None = None  # of the pilot


def main(argv: Sequence[str]) -> int:
    """Plan a comparison from the variances of a pilot, or from given standard deviations, and print
    the plan; exit code 0."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.out is not None:
        _check_plot(given.out)
    goal = Goal(given.delta, alpha=given.alpha or 0.05, power=given.power, family_size=given.family)
    variances = _given_variances(given)
    if variances is not None:
        costs = _costs(None, given.cost_train, given.cost_eval)
        found = plan(variances, goal, num_queries=given.queries, costs=costs)
    else:
        sweep = _pilot(given)
        found = pilot_plan(
            sweep,
            goal if given.alpha is not None else replace(goal, alpha=sweep.alpha),
            baseline=given.baseline or sweep.baseline,
            paired_seeds=given.paired_seeds,
            num_queries=given.queries,
            costs=_costs(sweep, given.cost_train, given.cost_eval),
        )
    print(design_text(found), end="")
    if given.out is not None:
        draw_plan(found, given.out)
        print(f"Power: {given.out}")
    return 0


def _parser() -> Parser:
    parser = Parser("ranksweep design", main.__doc__, epilog=SOURCES)
    add = parser.add_argument
    add(
        "pilot",
        nargs="*",
        metavar="PILOT",
        help="the folder or URI of one sweep, or systems, given as to compare",
    )
    add("--delta", type=float, required=True, help="the difference to be found")
    add("--alpha", type=float, help="default: the pilot's, or .05")
    add("--power", type=float, default=0.8)
    add("--family", type=int, default=1, metavar="N", help="comparisons planned")
    add("--queries", type=int, metavar="N", help="of the comparison; default: the pilot's")
    add("--paired-seeds", action="store_true", help="run i of both systems shares its randomness")
    add("--baseline", metavar="SYSTEM", help="default: the pilot's, or the first system")
    add("--measure", metavar="MEASURE", help="default: the pilot's primary, or first, one")
    add("--qrels", action="append", default=[], metavar="FILE", help="judgments of runs")
    add("--tracking-uri", metavar="URI", help="MLflow's, for mlflow: and runs:/")
    add(
        "--sd-query",
        type=float,
        metavar="SD",
        help="instead of a pilot: the standard deviation "
        "over queries of the true difference of two systems",
    )
    add("--sd-seed", type=float, metavar="SD", help="that of a system's mean over training runs")
    add(
        "--sd-residual",
        type=float,
        metavar="SD",
        help="that between training runs on one query, beside the two above",
    )
    add(
        "--seed-correlation",
        type=float,
        default=0.0,
        metavar="R",
        help="with --paired-seeds and "
        "given deviations: of the means of paired runs (default: %(default)s)",
    )
    add("--cost-train", type=float, metavar="S", help="seconds per training run")
    add("--cost-eval", type=float, metavar="S", help="seconds per query and run")
    add("--out", type=Path, metavar="FILE", help="power over seeds and queries as .png or .svg")
    return parser  # fmt: skip


def _given_variances(given: argparse.Namespace) -> Variances | None:
    """The standard deviations of the command line; None where a pilot has them."""
    values = {"--sd-query": given.sd_query, "--sd-seed": given.sd_seed}
    values |= {"--sd-residual": given.sd_residual, "--queries": given.queries}
    missing = [name for name, value in values.items() if value is None]
    if given.pilot and len({"--sd-query", "--sd-seed", "--sd-residual"} & {*missing}) == 3:
        return None
    if missing or given.pilot:
        raise BadInput(
            f"a plan needs a PILOT, or all of {', '.join(values)} without one; "
            f"{f'missing: {missing[0]}' if missing else f'got {given.pilot[0]} as well'}"
        )
    variances = Variances(given.sd_query, given.sd_seed, given.sd_residual)
    return variances.pairing(given.seed_correlation) if given.paired_seeds else variances


def _pilot(given: argparse.Namespace) -> Sweep:
    """The sweep, or the systems given as to `compare`."""
    measures = [given.measure] if given.measure else []
    if len(given.pilot) > 1 or given.qrels or not _is_sweep(given.pilot[0]):
        sets = query_sets_of(given.qrels)
        systems = systems_of(given.pilot, sets=list(sets), tracking_uri=given.tracking_uri)
        return compare_runs(
            systems, sets or None, measures=measures, tracking_uri=given.tracking_uri
        ).sweep
    with opened(given.pilot[0]) as store:
        sweep = load_sweep(store.folder)
    if measures and given.measure not in sweep.measures:
        raise unknown("measure", given.measure, sweep.measures)
    return replace(sweep, primary=given.measure or sweep.primary)


def _is_sweep(source: str) -> bool:
    """Whether a source is a whole sweep; what is nothing at all is refused as one that is not."""
    path = Path(source)
    if path.exists():
        return path.is_dir() and ((path / FILE).exists() or not any(path.glob("*.parquet")))
    return "://" in source and ":" not in source.partition("://")[2]


def pilot_plan(
    sweep: Sweep,
    goal: Goal,
    *,
    baseline: str,
    paired_seeds: bool = False,
    num_queries: int | None = None,
    costs: Costs | None = None,
) -> DesignPlan:
    """The plan from the primary measure of a pilot, with its seed SD at the upper limit."""
    scored = set(sweep.scores["cell"])
    cells = [one.cell for one in sweep.cells if one.cell in scored]
    if baseline not in cells:
        raise unknown("baseline", baseline, cells)
    matrix = score_matrix(sweep.scores, measure=sweep.primary, cells=cells)
    found = plan(
        planned_variances(
            matrix, baseline=baseline, assurance=ASSURANCE, paired_seeds=paired_seeds
        ),
        goal,
        num_queries=num_queries or len(matrix.query_ids),
        costs=costs,
    )
    components = sweep_components(matrix, baseline=baseline, paired_seeds=paired_seeds)
    return replace(found, pilot=sweep, components=components)


def plan(
    variances: Variances, goal: Goal, *, num_queries: int, costs: Costs | None = None
) -> DesignPlan:
    """Everything the plan prints."""
    if goal.power <= goal.alpha:
        raise BadInput(f"alpha < power must hold, got alpha={goal.alpha}, power={goal.power}")
    if num_queries < 2:
        raise BadInput(f"--queries >= 2 must hold, got {num_queries}")
    Q = num_queries
    seeds = seeds_needed(variances, goal, num_queries=Q)
    limits: dict[str, Any] = {
        "alpha": goal.alpha, "power": goal.power, "family_size": goal.family_size,
    }  # fmt: skip
    return DesignPlan(
        goal=goal,
        variances=variances,
        num_queries=Q,
        seeds=seeds,
        queries={S: queries_needed(variances, goal, num_seeds=S) for S in (3, 5, 10)},
        floor=floor(variances, num_queries=Q, **limits),
        power=power_grid(
            variances, goal, SEEDS, sorted({max(2, round(share * Q)) for share in _SHARES})
        ),
        detectable={
            S: planned_detectable(variances, num_seeds=S, num_queries=Q, **limits) for S in SEEDS
        },
        costs=costs,
        cheapest=None if costs is None else _cheapest(variances, goal, seeds, Q, costs),
    )


def power_grid(
    variances: Variances, goal: Goal, seeds: Sequence[int], queries: Sequence[int]
) -> dict[tuple[int, int], float]:
    """{(seeds per system, queries): the chance to find the goal's difference}."""
    return {
        (S, Q): planned_power(variances, goal, num_seeds=S, num_queries=Q)
        for S in seeds
        for Q in queries
    }


def design_text(found: DesignPlan) -> str:
    """The plan as a person reads it."""
    lines = [
        *(line for text in _origin(found) for line in wrapped(text)),
        "",
        *_variance_lines(found),
        "",
        *_goal_lines(found),
        "",
        *_power_lines(found),
        "",
    ]
    return "\n".join(lines)


def draw_plan(found: DesignPlan, path: Path) -> None:
    """Power over seeds and queries, its contours at round shares and at the wanted one."""
    _check_plot(path)
    Q = found.num_queries
    queries = sorted({max(2, round(float(one))) for one in np.geomspace(Q / 5, 5 * Q, 25)})
    seeds = range(SEEDS[0], SEEDS[-1] + 1)
    power = power_grid(found.variances, found.goal, seeds, queries)
    power_SQ = np.array([[power[S, one] for one in queries] for S in seeds])
    with style():
        figure = new_figure(WIDTH, 3.8)
        axes = figure.add_subplot()
        # Up to 1 of 1.6: lines and numbers must be read on the darkest.
        axes.contourf(
            queries, list(seeds), power_SQ, np.linspace(0, 1, 11), cmap="Blues", vmin=0, vmax=1.6
        )
        levels = sorted({0.5, 0.9, 0.95} - {found.goal.power})
        others = axes.contour(
            queries, list(seeds), power_SQ, levels=levels, colors=INK, linewidths=0.7
        )
        wanted = axes.contour(
            queries, list(seeds), power_SQ, levels=[found.goal.power], colors=INK, linewidths=2.2
        )
        for lines in (others, wanted):
            axes.clabel(lines, fmt=lambda level: f"{100 * level:g} %", fontsize=8)
        axes.axvline(Q, color=INK, linewidth=0.8, linestyle=(0, (5, 3)))
        axes.set_xscale("log")
        ticks = sorted({one for _, one in found.power})
        axes.set_xticks(ticks, [f"{one:,}" for one in ticks])
        axes.minorticks_off()
        axes.set_yticks(SEEDS)
        axes.set_xlabel("queries")
        axes.set_ylabel("seeds per system")
        axes.set_title(
            f"Power to find {found.goal.delta:g}"
            f"{f' in {found.pilot.primary}' if found.pilot else ''}"
            f"{', paired seeds' if found.variances.paired else ''} (alpha {found.goal.alpha:g}, "
            f"family of {found.goal.family_size})",
            fontsize=9,
            loc="left",
        )
        drawing = draw(figure, name="power", description="power over seeds and queries")
    if path.suffix.lower() == ".svg":
        path.write_text(drawing.svg, encoding="utf-8")
    else:
        path.write_bytes(drawing.png)


def _origin(found: DesignPlan) -> list[str]:
    """Where the deviations come from, and what limits them."""
    sweep = found.pilot
    if sweep is None or found.components is None:
        return ["Standard deviations as given."]
    parts, collapsed = found.components, sweep.trials["status"] == TrialStatus.COLLAPSED
    lines = [
        f"Pilot {sweep.name}: {sweep.primary} on {sweep.split_text}, {parts.num_queries} queries, "
        f"{parts.num_cells} cells, {sweep.trials['status'].isin(USED).sum()} trials; "
        f"baseline {sweep.label(parts.baseline)}."
    ]
    if count := int(collapsed.sum()):
        lines.append(
            f"{count} collapsed trial{'s' if count > 1 else ''} of the pilot count in its "
            "seed variance: the plan expects as many again."
        )
    if sweep.paired_seeds and not found.variances.paired:
        lines.append(
            "The pilot pairs its seeds; the plan is for unpaired ones and errs on the safe side "
            "(--paired-seeds)."
        )
    return lines


def _variance_lines(found: DesignPlan) -> list[str]:
    planned, parts = found.variances, found.components
    pairs = ", of paired differences / sqrt(2)" if planned.paired else ""
    names = (
        f"between training runs (seed{pairs})",
        "between runs on one query (residual)",
        "of systems' differences per query",
    )
    used = [f"{one:.4f}" for one in (planned.seed, planned.residual, planned.difference)]
    if parts is None:
        given = zip(names, used, strict=True)
        return terminal_lines(table(("standard deviation", "planned on"), given))
    rows = [
        (name, f"{one.sd:.4f}", f"{one.low:.4f} to {one.high:.4f}", plan_on)
        for name, one, plan_on in zip(
            names, (parts.seed, parts.residual, parts.difference), used, strict=True
        )
    ]
    return [
        *terminal_lines(
            table(("standard deviation", "pilot", "95 % interval", "planned on"), rows)
        ),
        *wrapped(
            f"The plan takes the seed SD at the pilot's one-sided upper {100 * ASSURANCE:g} % "
            "limit: few seeds underestimate it every other time, and a plan on this limit "
            "suffices in four pilots of five."
        ),
    ]


def _goal_lines(found: DesignPlan) -> list[str]:
    goal, Q = found.goal, found.num_queries
    family = "1 comparison" if goal.family_size == 1 else f"{goal.family_size} comparisons"
    lines = [
        f"To find a difference of {goal.delta:g} with power {100 * goal.power:g} % at alpha "
        f"{goal.alpha:g}, {family}:",
        f"  seeds per system on {Q} queries: {_count(found.seeds)}",
        *(f"  queries with {S} seeds per system: {_count(n)}" for S, n in found.queries.items()),
        f"  floor on {Q} queries: {found.floor:.4f}; no number of seeds finds a smaller difference",
    ]
    if found.costs is None:
        return [*lines, "  cheapest design: needs --cost-train and --cost-eval (seconds)"]
    source = "measured on the pilot" if found.costs.measured else "as given"
    prices = (
        f"{found.costs.training:g} s per training run, {found.costs.query:.3g} s per query "
        f"and run, {source}"
    )
    best = found.cheapest
    design = (
        f"none with {Q} queries or fewer"
        if best is None
        else f"{best.num_seeds} seeds x {best.num_queries} queries, "
        f"{best.cost:,.0f} s for two systems"
    )
    return [*lines, f"  cheapest design: {design}", f"    ({prices})"]


def _power_lines(found: DesignPlan) -> list[str]:
    """Power by seeds and queries, and the smallest difference that so many seeds find."""
    queries = sorted({Q for _, Q in found.power})
    heading = ["seeds", *(f"{Q:,} queries" if Q == queries[0] else f"{Q:,}" for Q in queries)]
    rows = [
        (
            str(S),
            *(f"{100 * found.power[S, Q]:.0f} %" for Q in queries),
            f"{found.detectable[S]:.4f}",
        )
        for S in SEEDS
    ]
    words = (
        f"Power by seeds per system and queries; detectable: the difference that is found with "
        f"power {100 * found.goal.power:g} % on {found.num_queries:,} queries."
    )
    return [*wrapped(words), *terminal_lines(table([*heading, "detectable"], rows))]


def _cheapest(
    variances: Variances, goal: Goal, seeds: float, num_queries: int, costs: Costs
) -> Design | None:
    if math.isinf(seeds):
        return None
    few = int(seeds)
    return cheapest_design(
        variances,
        goal,
        # Fewer seeds than this do not reach the goal; more may allow for fewer queries.
        seeds=range(few, max(few, min(3 * few, _MOST_SEEDS)) + 1),
        most_queries=num_queries,
        training_cost=costs.training,
        query_cost=costs.query,
    )


def _costs(sweep: Sweep | None, training: float | None, query: float | None) -> Costs | None:
    """The given costs; what is not given is taken from the pilot's own trials."""
    for name, value in (("--cost-train", training), ("--cost-eval", query)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise BadInput(f"{name} >= 0 must hold, got {value}")
    if training is not None and query is not None:
        return Costs(training, query, measured=False)
    if training is not None or query is not None:
        raise BadInput("--cost-train and --cost-eval are given together or not at all")
    if sweep is None or not {"train_seconds", "eval_seconds"} <= set(sweep.trials.columns):
        return None
    done = sweep.trials[sweep.trials["status"].isin(USED)]
    medians = done[["train_seconds", "eval_seconds"]].astype(float).median()
    if medians.isna().any():
        return None
    # Evaluation on dev is part of a trial and is charged to the reported queries.
    per_query = float(medians["eval_seconds"]) / sweep.scores["query_id"].nunique()
    return Costs(round(float(medians["train_seconds"]), 1), per_query, measured=True)


def _count(number: float) -> str:
    return "out of reach" if math.isinf(number) else f"{int(number):,}"


def _check_plot(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"a plot's name must end in {' or '.join(FORMATS)}, got {path.name}")
    if not path.parent.is_dir():
        raise BadInput(f"the folder of a plot must exist, found no {path.parent}")
    check_writable("the folder of a plot", path.parent)
