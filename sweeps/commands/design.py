"""`ranksweep design PILOT`: the seeds and queries that a comparison needs, and their cost."""

import argparse
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rank_core.errors import BadInput, unknown
from rank_core.stats.compare import compare
from rank_core.stats.design import (
    MOST_QUERIES,
    Design,
    Goal,
    Variances,
    best_design,
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
from sweeps.plan.options import NOT_CONFIRMED, SEARCH
from sweeps.report.figures.figure import INK, ORANGE, PAPER, WIDTH, draw, new_figure, style
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.search import left_after
from sweeps.report.table import table, terminal_lines, wrapped
from sweeps.store.opened_sweep import opened
from sweeps.store.sweep_file import FILE, command_in, read_sweep_file
from sweeps.store.trial_events import read_history
from sweeps.store.trial_status import USED, TrialStatus

SEEDS = (3, 4, 5, 8, 10, 20)
ASSURANCE = 0.8
FORMATS = (".png", ".svg")
_SHARES = (1 / 4, 1 / 2, 1, 2, 4)
"""Of the comparison's queries: the columns of the power table."""
_PARTS = (1, 2, 4)
"""The shares of the queries that a design may score."""
_SAMPLE = "evaluation.max_test_queries"
_SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)?=")
_CPUS = ("x86_64", "AMD64", "aarch64", "arm64", "")  # devices of trials without a GPU


@dataclass(frozen=True)
class Costs:
    """Device-seconds of one seed of one configuration."""

    training: float  # with its validations on dev
    query: float  # of scoring a test query
    source: str = "as given"
    unit: str = "GPU"  # or core


@dataclass(frozen=True)
class DesignPlan:
    """The plan of a comparison; counts are infinite where out of reach."""

    goal: Goal
    variances: Variances
    num_queries: int  # of the comparison
    available: int  # judged queries
    seeds: float  # needed per system on these queries
    queries: dict[int, float]  # {seeds per system: queries needed}
    floor: float
    power: dict[tuple[int, int], float]  # {(seeds per system, queries): power}
    detectable: dict[int, float]  # {seeds per system: the smallest difference found}
    costs: Costs | None = None
    budget: float = math.inf  # device-hours
    designs: tuple[Design, ...] = ()  # the best one for each number of configurations
    recommended: Design | None = None
    pilot: Sweep | None = None
    components: SweepComponents | None = None  # of the pilot
    command: str = ""  # that runs the recommended design


def main(argv: Sequence[str]) -> int:
    """Plan seeds and queries from the variances of a pilot, or from given standard deviations."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.out is not None:
        _check_plot(given.out)
    if given.gpu_hours is not None and not 0 < given.gpu_hours < math.inf:
        raise BadInput(f"--gpu-hours > 0 must hold, got {given.gpu_hours}")
    family = 1 if given.family is None else given.family
    goal = Goal(given.delta, alpha=given.alpha or 0.05, power=given.power, family_size=family)
    budget = math.inf if given.gpu_hours is None else given.gpu_hours
    sizes = {"num_configurations": given.family and given.family + 1, "budget": budget}
    variances = _given_variances(given)
    if variances is not None:
        costs = _costs(None, given.seconds_per_seed, given.seconds_per_query)
        planned = plan(variances, goal, num_queries=given.queries, costs=costs, **sizes)
    else:
        sweep, directory = _pilot(given)
        baseline = given.baseline or sweep.baseline
        if given.family is None:
            goal = replace(goal, family_size=_family(sweep, baseline))
        planned = pilot_plan(
            sweep,
            goal if given.alpha is not None else replace(goal, alpha=sweep.alpha),
            baseline=baseline,
            paired_seeds=given.paired_seeds,
            num_queries=given.queries,
            costs=_costs(sweep, given.seconds_per_seed, given.seconds_per_query),
            directory=directory,
            **sizes,
        )
    if given.gpu_hours is not None and planned.costs is None:
        raise BadInput(_no_costs(planned))
    print(design_text(planned), end="")
    if given.out is not None:
        draw_plan(planned, given.out)
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
    add("--delta", type=float, required=True, help="the true difference to find, such as .01")
    add("--alpha", type=float, help="default: the pilot's, or .05")
    add("--power", type=float, default=0.8, help="default: %(default)s")
    add("--family", type=int, metavar="N", help="comparisons that share alpha (default: pilot's)")
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
        help="that between training runs on one query, beyond the two above",
    )
    add(
        "--seed-correlation",
        type=float,
        default=0.0,
        metavar="R",
        help="with --paired-seeds and "
        "given deviations: of the means of paired runs (default: %(default)s)",
    )
    add(
        "--gpu-hours",
        type=float,
        metavar="H",
        help="budget (core-hours without a GPU): the best designs for it",
    )
    add("--seconds-per-seed", type=float, metavar="S", help="of a device, to train one seed")
    add("--seconds-per-query", type=float, metavar="S", help="of a device, to score a test query")
    add("--out", type=Path, metavar="FILE", help="a plot of the power, as .png or .svg")
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


def _pilot(given: argparse.Namespace) -> tuple[Sweep, str]:
    """The sweep, or the systems given as to `compare`, and the directory of its command."""
    measures = [given.measure] if given.measure else []
    if len(given.pilot) > 1 or given.qrels or not _is_sweep(given.pilot[0]):
        sets = query_sets_of(given.qrels)
        systems = systems_of(given.pilot, sets=list(sets), tracking_uri=given.tracking_uri)
        return compare_runs(
            systems, sets or None, measures=measures, tracking_uri=given.tracking_uri
        ).sweep, ""
    with opened(given.pilot[0]) as store:
        sweep, directory = load_sweep(store.folder), read_sweep_file(store.folder).directory
    if measures and given.measure not in sweep.measures:
        raise unknown("measure", given.measure, sweep.measures)
    return replace(sweep, primary=given.measure or sweep.primary), directory


def _is_sweep(source: str) -> bool:
    path = Path(source)
    if path.exists():
        return path.is_dir() and ((path / FILE).exists() or not any(path.glob("*.parquet")))
    return "://" in source and ":" not in source.partition("://")[2]


def _family(sweep: Sweep, baseline: str) -> int:
    """The number of comparisons with the baseline over which the pilot's table corrects p."""
    left = left_after(sweep)
    cells = [c for c in sweep.scores["cell"].unique() if c == baseline or c not in left]
    compared = compare(
        score_matrix(sweep.scores, measure=sweep.primary, cells=cells),
        baseline=baseline,
        deterministic=[cell for cell in sweep.deterministic if cell in cells],
    )
    return compared[0].family_size if compared and sweep.correction != "none" else 1


def pilot_plan(
    sweep: Sweep,
    goal: Goal,
    *,
    baseline: str,
    paired_seeds: bool = False,
    num_queries: int | None = None,
    costs: Costs | None = None,
    num_configurations: int | None = None,
    budget: float = math.inf,
    directory: str = "",
) -> DesignPlan:
    """The plan from the primary measure of a pilot, with its seed SD at the upper limit.

    By default it has the pilot's number of configurations and the judged queries of its collection.
    Its command is the pilot's, run in `directory`, with other flags.
    """
    scored = set(sweep.scores["cell"])
    cells = [cell.cell for cell in sweep.cells if cell.cell in scored]
    if baseline not in cells:
        raise unknown("baseline", baseline, cells)
    matrix = score_matrix(sweep.scores, measure=sweep.primary, cells=cells)
    Q = len(matrix.query_ids)
    judged = sweep.collection.get("num_queries", {}).get(sweep.split, 0)
    planned = plan(
        planned_variances(
            matrix, baseline=baseline, assurance=ASSURANCE, paired_seeds=paired_seeds
        ),
        goal,
        num_queries=num_queries or Q,
        available=num_queries or max(Q, judged),
        costs=costs,
        num_configurations=num_configurations or len(cells),
        budget=budget,
    )
    design = planned.recommended
    return replace(
        planned,
        pilot=sweep,
        components=sweep_components(matrix, baseline=baseline, paired_seeds=paired_seeds),
        command=""
        if design is None or not sweep.command or sweep.third_party
        else _command(sweep, design, planned, num_cells=len(cells), directory=directory),
    )


def plan(
    variances: Variances,
    goal: Goal,
    *,
    num_queries: int,
    available: int | None = None,
    costs: Costs | None = None,
    num_configurations: int | None = None,
    budget: float = math.inf,
) -> DesignPlan:
    """The whole plan; `available` is the number of judged queries."""
    if goal.power <= goal.alpha:
        raise BadInput(f"alpha < power must hold, got alpha={goal.alpha}, power={goal.power}")
    if num_queries < 2:
        raise BadInput(f"--queries >= 2 must hold, got {num_queries}")
    Q, most = num_queries, available or num_queries
    limits: dict[str, Any] = {
        "alpha": goal.alpha, "power": goal.power, "family_size": goal.family_size,
    }  # fmt: skip
    least = floor(variances, num_queries=Q, **limits)
    seeds = seeds_needed(variances, goal, num_queries=Q)
    queries = {S: queries_needed(variances, goal, num_seeds=S) for S in (3, 5, 10, 20)}
    if math.isinf(min(seeds, *queries.values())):
        # Twice the queries of the floor leave the seeds half of the variance.
        more = math.ceil(min(2 * Q * (least / goal.delta) ** 2, MOST_QUERIES))
        enough = seeds_needed(variances, goal, num_queries=more)
        if enough < math.inf:
            queries[int(enough)] = queries_needed(variances, goal, num_seeds=int(enough))
    K = num_configurations or 2
    designs = [] if costs is None else _designs(variances, goal, K, (Q, most), costs, budget)
    return DesignPlan(
        goal=goal,
        variances=variances,
        num_queries=Q,
        available=most,
        seeds=seeds,
        queries=queries,
        floor=least,
        power=power_grid(
            variances, goal, SEEDS, sorted({max(2, round(share * Q)) for share in _SHARES})
        ),
        detectable={
            S: planned_detectable(variances, num_seeds=S, num_queries=Q, **limits) for S in SEEDS
        },
        costs=costs,
        budget=budget,
        designs=tuple(designs),
        recommended=_recommended([d for d in designs if d.num_configurations <= K], goal),
    )


def _designs(
    variances: Variances, goal: Goal, K: int, queries: tuple[int, int], costs: Costs, budget: float
) -> list[Design]:
    """The best design for K configurations, for half and twice as many, and for two; `queries` are
    the number in the comparison and of all judged ones."""
    planned, available = queries
    parts = sorted({max(2, available // part) for part in _PARTS})
    designs = [
        best_design(
            variances,
            goal,
            num_configurations=number,
            queries=[planned] if number == 2 < K else parts,  # a confirmation has the sweep's
            training_cost=costs.training / 3600,
            query_cost=costs.query / 3600,
            budget=budget,
        )
        for number in sorted({2, max(2, K // 2), K, 2 * K})
    ]
    return [design for design in designs if design is not None]


def _recommended(designs: Sequence[Design], goal: Goal) -> Design | None:
    """The design with most configurations that reaches the goal."""
    reached = [design for design in designs if design.power >= goal.power]
    return max(reached, key=lambda design: design.num_configurations, default=None)


def _command(
    sweep: Sweep, design: Design, planned: DesignPlan, *, num_cells: int, directory: str
) -> str:
    """The pilot's command with the sizes of a design: all of its configurations, a random sample of
    them, or its winner and baseline trained again."""
    confirmation = design.num_configurations == 2 < num_cells
    drawn = not confirmation and design.num_configurations < num_cells
    old = ["seeds", "num_seeds", "max_gpu_hours", "deadline"]
    old += NOT_CONFIRMED if confirmation else SEARCH if drawn else ()
    parser = argparse.ArgumentParser(add_help=False)
    for name in old:
        parser.add_argument(f"--{name.replace('_', '-')}")
    for flag in ("--dry-run", "--smoke-test"):
        parser.add_argument(flag, action="store_true")
    _, words = parser.parse_known_args(shlex.split(sweep.command))
    if confirmation:
        words = [word for word in words if not _SETTING.match(word)] + ["--confirm"]
    elif design.num_queries != planned.num_queries:
        words = [word for word in words if not word.startswith(f"{_SAMPLE}=")]
        if design.num_queries < planned.available:
            words.append(f"{_SAMPLE}={design.num_queries}")
    if drawn:
        words += ["--search", "random", "--num-configs", str(design.num_configurations - 1)]
    words += ["--num-seeds", str(design.num_seeds)]
    if math.isfinite(planned.budget):
        words += ["--max-gpu-hours", f"{planned.budget:g}"]
    return command_in(directory, shlex.join(words))


def power_grid(
    variances: Variances, goal: Goal, seeds: Sequence[int], queries: Sequence[int]
) -> dict[tuple[int, int], float]:
    """{(seeds per system, queries): the power for the goal's difference}."""
    return {
        (S, Q): planned_power(variances, goal, num_seeds=S, num_queries=Q)
        for S in seeds
        for Q in queries
    }


def design_text(planned: DesignPlan) -> str:
    """The plan as text."""
    lines = [
        *(line for text in _origin(planned) for line in wrapped(text)),
        "",
        *_variance_lines(planned),
        "",
        *_goal_lines(planned),
        "",
        *_power_lines(planned),
        "",
        *_design_lines(planned),
        "",
    ]
    return "\n".join(lines)


def draw_plan(planned: DesignPlan, path: Path) -> None:
    """Contours of the power: over configurations and seeds where there is a budget, else over
    queries and seeds."""
    _check_plot(path)
    with style():
        figure = new_figure(WIDTH, 3.8)
        axes = figure.add_subplot()
        what = (_draw_budget if math.isfinite(planned.budget) else _draw_sizes)(axes, planned)
        axes.set_yticks(SEEDS)
        axes.set_ylabel("seeds per system")
        axes.set_title(
            f"Power to find {planned.goal.delta:g}"
            f"{f' in {planned.pilot.primary}' if planned.pilot else ''}"
            f"{', paired seeds' if planned.variances.paired else ''} "
            f"(alpha {planned.goal.alpha:g}, {what})",
            fontsize=9,
            loc="left",
        )
        drawing = draw(figure, name="power", description="contours of the power")
    if path.suffix.lower() == ".svg":
        path.write_text(drawing.svg, encoding="utf-8")
    else:
        path.write_bytes(drawing.png)


def _draw_sizes(axes: Axes, planned: DesignPlan) -> str:
    Q = planned.num_queries
    queries = sorted({max(2, round(float(size))) for size in np.geomspace(Q / 5, 5 * Q, 25)})
    seeds = range(SEEDS[0], SEEDS[-1] + 1)
    power = power_grid(planned.variances, planned.goal, seeds, queries)
    _contours(axes, planned.goal, queries, [[power[S, size] for size in queries] for S in seeds])
    axes.axvline(Q, color=INK, linewidth=0.8, linestyle=(0, (5, 3)))
    axes.set_xscale("log")
    ticks = sorted({size for _, size in planned.power})
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.minorticks_off()
    axes.set_xlabel("queries")
    return f"family of {planned.goal.family_size}"


def _draw_budget(axes: Axes, planned: DesignPlan) -> str:
    """Power over configurations and seeds, the designs within the budget, and the recommended
    design."""
    assert planned.costs is not None
    design, Q = planned.recommended, planned.available
    if design is not None:
        Q = design.num_queries
    widest = max([4, *(design.num_configurations for design in planned.designs)])
    configurations = sorted({round(float(size)) for size in np.linspace(2, widest, 12)})
    power_SK = [
        [
            planned_power(
                planned.variances,
                replace(planned.goal, family_size=K - 1),
                num_seeds=S,
                num_queries=Q,
            )
            for K in configurations
        ]
        for S in range(SEEDS[0], SEEDS[-1] + 1)
    ]
    _contours(axes, planned.goal, configurations, power_SK)
    hours = (planned.costs.training + Q * planned.costs.query) / 3600  # of one seed
    if hours > 0:
        curve = np.linspace(2, widest, 200)
        affordable = np.clip(planned.budget / hours / curve, SEEDS[0], SEEDS[-1])
        axes.fill_between(
            curve, affordable, SEEDS[-1], facecolor=PAPER, alpha=0.6, hatch="///", linewidth=0
        )
        axes.plot(curve, affordable, color=ORANGE, linewidth=2)
    if design is not None:
        height = min(design.num_seeds, SEEDS[-1])
        axes.plot(design.num_configurations, height, "o", color=ORANGE, clip_on=False, zorder=5)
    axes.set_xlabel(f"configurations; hatched: above {planned.budget:g} {planned.costs.unit}-hours")
    return f"{Q:,} queries"


def _contours(
    axes: Axes, goal: Goal, x_values: Sequence[int], power_SX: Sequence[Sequence[float]]
) -> None:
    """Power over seeds and a second number, at round levels and at the goal's."""
    area = (list(x_values), list(range(SEEDS[0], SEEDS[-1] + 1)), np.array(power_SX))
    # Up to 1 of 1.6: lines and numbers must be legible on the darkest.
    axes.contourf(*area, np.linspace(0, 1, 11), cmap="Blues", vmin=0, vmax=1.6)
    levels = sorted({0.5, 0.9, 0.95} - {goal.power})
    others = axes.contour(*area, levels=levels, colors=INK, linewidths=0.7)
    wanted = axes.contour(*area, levels=[goal.power], colors=INK, linewidths=2.2)
    for lines in (others, wanted):
        axes.clabel(lines, fmt=lambda level: f"{100 * level:g}%", fontsize=8)


def _origin(planned: DesignPlan) -> list[str]:
    sweep = planned.pilot
    if sweep is None or planned.components is None:
        return ["Standard deviations as given."]
    parts, collapsed = planned.components, sweep.trials["status"] == TrialStatus.COLLAPSED
    named = "" if sweep.third_party else f" {sweep.name}"
    lines = [
        f"Pilot{named}: {sweep.primary} on {sweep.split_text}, {parts.num_queries} queries, "
        f"{parts.num_cells} systems, {sweep.trials['status'].isin(USED).sum()} training runs; "
        f"baseline {sweep.label(parts.baseline)}."
    ]
    if count := int(collapsed.sum()):
        lines.append(
            f"{count} collapsed trial{'s' if count > 1 else ''} of the pilot count in its seed "
            "variance: the plan expects the same share."
        )
    if sweep.paired_seeds and not planned.variances.paired:
        lines.append(
            "The pilot pairs its seeds; the plan is for unpaired seeds and thus conservative "
            "(--paired-seeds)."
        )
    return lines


def _variance_lines(planned: DesignPlan) -> list[str]:
    variances, parts = planned.variances, planned.components
    pairs = ", of paired differences / sqrt(2)" if variances.paired else ""
    names = (
        f"between training runs (seed{pairs})",
        "between runs on one query (residual)",
        "of systems' differences per query",
    )
    used = [f"{sd:.4f}" for sd in (variances.seed, variances.residual, variances.difference)]
    if parts is None:
        given = zip(names, used, strict=True)
        return terminal_lines(table(("standard deviation", "planned on"), given))
    rows = [
        (name, f"{part.sd:.4f}", f"{part.low:.4f} to {part.high:.4f}", plan_on)
        for name, part, plan_on in zip(
            names, (parts.seed, parts.residual, parts.difference), used, strict=True
        )
    ]
    return [
        *terminal_lines(table(("standard deviation", "pilot", "95% interval", "planned on"), rows)),
        *wrapped(
            f"The plan takes the seed SD at the pilot's one-sided upper {100 * ASSURANCE:g}% "
            "limit: half of all pilots underestimate the SD itself, one in five even this limit."
        ),
    ]


def _goal_lines(planned: DesignPlan) -> list[str]:
    goal, Q = planned.goal, planned.num_queries
    family = "1 comparison" if goal.family_size == 1 else f"{goal.family_size} comparisons"
    lines = [
        f"To find a difference of {goal.delta:g} with {100 * goal.power:g}% power at alpha "
        f"{goal.alpha:g}, {family}:",
        f"  seeds per system on {Q} queries: {_count(planned.seeds)}",
        *(f"  queries with {S} seeds per system: {_count(n)}" for S, n in planned.queries.items()),
        f"  smallest difference on {Q} queries with any number of seeds: {planned.floor:.4f}",
    ]
    if any(planned.available < number < math.inf for number in planned.queries.values()):
        lines.append(f"  {planned.available:,} queries are available: more need new judgments")
    return lines


def _design_lines(planned: DesignPlan) -> list[str]:
    """The designs, what they cost, and the command of the recommended one."""
    goal, costs, best = planned.goal, planned.costs, planned.recommended
    if costs is None:
        why = _no_costs(planned)
        return wrapped(f"{why[0].upper()}{why[1:]}.")
    limit = f" for {planned.budget:g} {costs.unit}-hours" if math.isfinite(planned.budget) else ""
    words = (
        f"Designs to find {goal.delta:g} with {100 * goal.power:g}% power{limit}. A seed takes "
        f"{costs.training:,.4g} {costs.unit}-seconds of training and {costs.query:.3g} for each "
        f"test query, {costs.source}."
    )
    if not planned.designs:
        why = "Three seeds exceed it." if limit else "No number of seeds is enough."
        return wrapped(f"{words} {why}")
    rows = [
        (
            f"{design.num_configurations}{' *' if design == best else ''}",
            f"{design.num_seeds:,}",
            f"{design.num_queries:,}",
            f"{design.cost:,.3g}",
            f"{100 * design.power:.0f}%",
            f"{_detectable(planned, design):.4f}",
        )
        for design in planned.designs
    ]
    heading = ("configurations", "seeds", "queries", f"{costs.unit}-hours", "power", "detectable")
    lines = [
        *wrapped(words),
        *terminal_lines(table(heading, rows)),
        *wrapped(
            "Each configuration but one is compared with the baseline, and alpha is shared by all "
            "comparisons (Holm)."
        ),
    ]
    if best is None:
        least = min(_detectable(planned, design) for design in planned.designs)
        return lines + wrapped(
            f"None of them reaches {100 * goal.power:g}% power: on at most {planned.available:,} "
            f"queries they detect differences of {least:.4f} at best."
        )
    flags = f"--num-seeds {best.num_seeds}"
    if limit:
        flags += f" --max-gpu-hours {planned.budget:g}"
    lines += ["", "* recommended:", planned.command or f"any sweep with {flags}"]
    if planned.command and "--confirm" not in shlex.split(planned.command):
        lines += wrapped(
            "The command reuses finished trials of the pilot with the same settings and seeds, so "
            "it may cost less."
        )
    return lines


def _no_costs(planned: DesignPlan) -> str:
    if planned.pilot is not None and planned.pilot.smoke_test:
        return "a smoke test is no pilot: run the sweep first"
    return (
        "the cost of a design needs --seconds-per-seed and --seconds-per-query, or a finished "
        "sweep as the PILOT"
    )


def _detectable(planned: DesignPlan, design: Design) -> float:
    return planned_detectable(
        planned.variances,
        num_seeds=design.num_seeds,
        num_queries=design.num_queries,
        alpha=planned.goal.alpha,
        power=planned.goal.power,
        family_size=design.num_configurations - 1,
    )


def _power_lines(planned: DesignPlan) -> list[str]:
    """Power by seeds and queries, and the smallest difference that so many seeds find."""
    queries = sorted({Q for _, Q in planned.power})
    heading = ["seeds", *(f"{Q:,} queries" if Q == queries[0] else f"{Q:,}" for Q in queries)]
    rows = [
        (
            str(S),
            *(f"{100 * planned.power[S, Q]:.0f}%" for Q in queries),
            f"{planned.detectable[S]:.4f}",
        )
        for S in SEEDS
    ]
    words = (
        f"Power by seeds per system and queries. Detectable: the difference found with "
        f"{100 * planned.goal.power:g}% power on {planned.num_queries:,} queries"
        f"{', at the SDs planned on; reports use those observed' if planned.pilot else ''}."
    )
    if any(
        planned.power[S, Q] > planned.power[S, more] + 0.005
        for S in SEEDS
        for Q, more in pairwise(queries)
    ):
        words += (
            " With few seeds power can fall as queries increase: seeds then dominate the variance, "
            "which leaves the test fewer degrees of freedom."
        )
    return [*wrapped(words), *terminal_lines(table([*heading, "detectable"], rows))]


def _costs(sweep: Sweep | None, training: float | None, query: float | None) -> Costs | None:
    """The costs of the flags, else those of the pilot's trials."""
    for name, value in (("--seconds-per-seed", training), ("--seconds-per-query", query)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise BadInput(f"{name} >= 0 must hold, got {value}")
    if training is not None and query is not None:
        return Costs(training, query)
    if training is not None or query is not None:
        raise BadInput("--seconds-per-seed and --seconds-per-query need each other")
    return None if sweep is None else _measured_costs(sweep)


def _measured_costs(sweep: Sweep) -> Costs | None:
    """Mean costs of the pilot's trials; None where they are no guide to a whole sweep."""
    if not {"train_seconds", "eval_seconds"} <= set(sweep.trials) or sweep.smoke_test:
        return None
    num_test = sweep.scores["query_id"].nunique()
    num_dev = sweep.dev_scores["query_id"].nunique() if len(sweep.dev_scores) else 0
    rows = sweep.trials[sweep.trials["status"].isin(USED)]
    training, query = [], []
    for row in rows.to_dict("records"):
        trial = sweep.folder / "runs" / f"{row['cell']}-seed{row['seed']}"
        validations = sum(news.dev is not None for news in read_history(trial)) or 1
        # Test and every validation score their queries equally deep.
        query.append(row["eval_seconds"] / (num_test + validations * num_dev))
        training.append(row["train_seconds"] + validations * num_dev * query[-1])
    means = np.mean(training), np.mean(query)
    if not np.isfinite(means).all():
        return None
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("workers", "cpus", "gpus"):
        flag = "--num-workers" if name == "workers" else f"--{name}-per-worker"
        parser.add_argument(flag, dest=name, type=float, default=1.0)
    typed, _ = parser.parse_known_args(shlex.split(sweep.command))
    gpus = 0.0 if sweep.versions.get("device", "") in _CPUS else typed.gpus
    devices = typed.workers * (gpus or typed.cpus)
    return Costs(
        float(means[0]) * devices,
        float(means[1]) * devices,
        source="measured on the pilot",
        unit="GPU" if gpus else "core",
    )


def _count(number: float) -> str:
    return "no number is enough" if math.isinf(number) else f"{int(number):,}"


def _check_plot(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"a plot's name must end in {' or '.join(FORMATS)}, got {path.name}")
    if not path.parent.is_dir():
        raise BadInput(f"the folder of a plot must exist, found no {path.parent}")
    check_writable("the folder of a plot", path.parent)
