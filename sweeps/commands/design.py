"""`ranksweep design PILOT`: the seeds and queries that a comparison needs, and their cost."""

import argparse
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps

from rank_core.errors import BadInput, shown, unknown
from rank_core.evaluate import bounds_of
from rank_core.stats.compare import compare_cells
from rank_core.stats.corrections import NONE
from rank_core.stats.design import (
    ASSURANCE,
    MOST_QUERIES,
    Design,
    Goal,
    Pairing,
    Variances,
    best_design,
    floor,
    pairing_gain,
    planned_detectable,
    planned_power,
    planned_variances,
    pooled_seed_deviation,
    queries_needed,
    seeds_needed,
)
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from rank_core.stats.variance import Component, SweepComponents, sweep_components
from sweeps.commands.compare.command import (
    NO_MLFLOW,
    SOURCES,
    has_mlflow,
    query_sets_of,
    systems_of,
)
from sweeps.findings.power import POWER
from sweeps.plan.flags import MODES, SEARCH, written
from sweeps.plan.flags import SEEDS as SEED_FLAGS
from sweeps.plan.next_command import asked_of, confirming
from sweeps.report.drawing import INK, WIDTH, draw, legend, new_figure, style
from sweeps.report.table import table, terminal_lines, wrapped
from sweeps.store.records import trial_name
from sweeps.store.sweep_file import FILE, command_in, opened
from sweeps.store.test_options import TestOptions
from sweeps.store.trial_status import TrialStatus
from sweeps.systems.clusters import NONE as NO_CLUSTERS
from sweeps.systems.load import Sweep, in_clusters, load_sweep, with_clusters
from sweeps.systems.machines import on_cpus
from sweeps.systems.runs import run_systems
from sweeps.terminal.command_line import (
    CLUSTERS_HELP,
    CLUSTERS_OF,
    Need,
    Parser,
    check_writable,
    needing,
)
from sweeps.terminal.notation import range_text, signed
from sweeps.terminal.text import numbered, say

SEEDS = (3, 4, 5, 8, 10, 20)
FORMATS = (".png", ".svg")
_SHARES = (1 / 4, 1 / 2, 1, 2, 4)  # of the comparison's queries: columns of the power table
_PARTS = (1, 2, 4)  # a design scores so many parts of the queries
_SAMPLE = "evaluation.max_test_queries"


PLANNED_SEEDS = (3, 5, 10, 20)
"""For which the queries are told."""


@dataclass(frozen=True)
class Costs:
    """Device-seconds of one seed of one configuration."""

    training: float  # with its validations on dev
    query: float  # of scoring a test query
    source: str = "as given"
    unit: str = "GPU"  # or core


@dataclass(frozen=True)
class DesignPlan:
    """The plan of a comparison; counts are infinite where out of reach. Where queries are in
    clusters, all numbers of queries are numbers of clusters."""

    goal: Goal
    variances: Variances
    num_queries: int  # of the comparison
    available: int  # judged queries
    seeds: float  # needed per system on these queries
    seeds_by_own: float  # likewise if the pilot's own deviations are the true ones
    queries: dict[int, float]  # {seeds per system: queries needed}
    queries_by_own: dict[int, float]
    floor: float
    power: dict[tuple[int, int], float]  # {(seeds per system, queries): power}
    detectable: dict[int, float]  # {seeds per system: the smallest difference found}
    pilot: Sweep
    components: SweepComponents  # of the pilot
    per_cluster: float  # its queries in a cluster, on average; 1 without clusters
    pairing: Pairing | None  # what pairing the seeds would gain
    earlier: int  # sweeps whose seed deviation is pooled with the pilot's
    costs: Costs | None  # where the device-hours are limited
    budget: float  # device-hours
    designs: tuple[Design, ...]  # the best one for each number of configurations
    recommended: Design | None


def main(argv: Sequence[str]) -> int:
    """Plan seeds and queries from the variances of a pilot."""
    args = parser().parse_args(argv)
    if args.out is not None:
        if args.out.suffix.lower() not in FORMATS:
            raise BadInput(f"--out must end in {' or '.join(FORMATS)}, got {args.out.name}")
        check_writable("the folder of --out", args.out.parent)
    if args.gpu_hours is not None and args.gpu_hours <= 0:
        raise BadInput(f"--gpu-hours > 0 must hold, got {args.gpu_hours}")
    sweep = _pilot(args)
    baseline = _baseline(sweep, args.baseline)
    size, correlation = _family(sweep, baseline)
    goal = Goal(
        args.delta,
        alpha=sweep.tests.alpha if args.alpha is None else args.alpha,
        power=args.power,
        family_size=size if args.family is None else args.family,
        correlation=correlation,
    )
    planned = plan(
        sweep,
        goal,
        baseline=baseline,
        paired_seeds=args.paired_seeds,
        num_queries=args.queries,
        num_configurations=args.family and args.family + 1,
        costs=_costs(sweep, args),
        budget=args.gpu_hours or math.inf,
        earlier=[_sweep_in(where) for where in args.earlier],
    )
    say(design_text(planned), end="")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        draw_plan(planned, args.out)
        say(f"Power: {args.out}")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep design`."""
    parser = Parser("ranksweep design", main.__doc__, epilog=SOURCES)
    add = parser.add_argument
    help_ = "the folder or URI of one sweep, or systems, in the form that compare takes"
    add("pilot", nargs="+", metavar="PILOT", help=help_)
    add("--delta", type=float, required=True, help="the true difference to find, such as .01")
    add("--alpha", type=float, help="significance level (default: the pilot's)")
    add("--power", type=float, default=POWER, help="power to reach (default: %(default)s)")
    family = "number of comparisons that share alpha (default: the pilot's)"
    add("--family", type=int, metavar="N", help=family)
    queries = "number of queries of the comparison (default: the pilot's)"
    add("--queries", type=int, metavar="N", help=queries)
    add("--paired-seeds", action="store_true", help="run i of both systems shares its randomness")
    add(
        "--baseline",
        metavar="SYSTEM",
        help="baseline (default: the pilot's, else the first system)",
    )
    measure = "measure (default: the pilot's primary measure, else its first)"
    add("--measure", metavar="MEASURE", help=measure)
    add("--qrels", action="append", default=[], metavar="FILE", help="judgments, which runs need")
    likewise = (
        "an earlier sweep whose training runs vary as these will: its deviation between runs "
    )
    likewise += "is pooled with the pilot's, for the plan alone; may be repeated"
    needing(
        add("--earlier", action="append", default=[], metavar="DIR", help=likewise),
        Need("paired_seeds", without=True),
    )
    clusters = f"{CLUSTERS_HELP}, or none (default: those of the pilot's command)"
    add("--clusters", default="", metavar=f"{CLUSTERS_OF}|none", help=clusters)
    add("--tracking-uri", metavar="URI", help="tracking URI of MLflow, for mlflow: and runs:/")
    hours = "budget in GPU-hours (core-hours without a GPU): prints the best designs within it"
    add("--gpu-hours", type=float, metavar="X", help=hours)
    seed = "seconds that one device needs to train one seed"
    needing(add("--seconds-per-seed", type=float, metavar="X", help=seed), Need("gpu_hours"))
    query = "seconds that one device needs to score one test query"
    needing(add("--seconds-per-query", type=float, metavar="X", help=query), Need("gpu_hours"))
    add("--out", type=Path, metavar="FILE", help="write a plot of the power as .png or .svg")
    return parser


def _pilot(args: argparse.Namespace) -> Sweep:
    """The sweep, or the systems given as to `compare`."""
    measures = [args.measure] if args.measure else []
    if len(args.pilot) > 1 or args.qrels or not _is_sweep(args.pilot[0]):
        sets = query_sets_of(args.qrels)
        uri = args.tracking_uri
        if uri and not has_mlflow(args.pilot):
            raise BadInput(NO_MLFLOW)
        systems = systems_of(args.pilot, sets=list(sets), tracking_uri=uri)
        clusters = "" if args.clusters == NO_CLUSTERS else args.clusters
        tests = TestOptions(clusters=clusters)
        pilot = run_systems(systems, sets or None, tests, measures=measures, tracking_uri=uri).sweep
        if pilot.means:
            raise BadInput(f"a plan is for one collection, got {', '.join(pilot.collections)}")
        return pilot
    if args.tracking_uri:
        raise BadInput(NO_MLFLOW)
    sweep = _sweep_in(args.pilot[0])
    sweep = with_clusters(sweep, args.clusters) if args.clusters else sweep
    if args.paired_seeds and not sweep.tests.paired_seeds:
        raise BadInput(
            f"--paired-seeds: the trials of {args.pilot[0]} share no randomness, as they ran with "
            "training.paired_seeds=false"
        )
    if measures and args.measure not in sweep.measures:
        raise unknown("measure", args.measure, sweep.measures)
    about = sweep.about
    return replace(sweep, about=replace(about, primary=args.measure or about.primary))


def _sweep_in(where: str) -> Sweep:
    with opened(where) as records:
        return load_sweep(records)


def _baseline(sweep: Sweep, given: str | None) -> str:
    """The cell that a label or a cell's name means; by default the pilot's baseline."""
    cell_of = {cell.label: cell.cell for cell in sweep.cells}
    if given in cell_of.values() or not given:
        return given or sweep.baseline
    if given not in cell_of:
        raise unknown("baseline", given, cell_of)
    return cell_of[given]


def _is_sweep(source: str) -> bool:
    path = Path(source)
    if path.exists():
        return path.is_dir() and ((path / FILE).exists() or not any(path.glob("*.parquet")))
    return "://" in source and ":" not in source.partition("://")[2]


def _family(sweep: Sweep, baseline: str) -> tuple[int, float]:
    """The number of comparisons with the baseline over which the pilot's table corrects p, and
    their mean correlation where the correction uses it."""
    left = sweep.about.eliminated
    cells = [c for c in sweep.scores["cell"].unique() if c == baseline or c not in left]
    compared = compare_cells(
        _scores(sweep, sweep.primary, cells),
        baseline=baseline,
        correction=sweep.tests.correction,
        deterministic=[cell for cell in sweep.deterministic if cell in cells],
    )
    if not compared or sweep.tests.correction == NONE or compared[0].family is None:
        return 1, 0.0
    return compared[0].family_size, compared[0].family.correlation


def plan(
    sweep: Sweep,
    goal: Goal,
    *,
    baseline: str,
    paired_seeds: bool = False,
    num_queries: int | None = None,
    num_configurations: int | None = None,
    costs: Costs | None = None,
    budget: float = math.inf,
    earlier: Sequence[Sweep] = (),
) -> DesignPlan:
    """The plan from the primary measure of a pilot, with its deviations at their upper limits; that
    between training runs may be pooled with those of `earlier` sweeps.

    By default it has the pilot's number of configurations and the judged queries of its collection.
    Designs need costs.
    """
    _check_sizes(goal, num_queries, sweep.primary)
    matrix = _scores(sweep, sweep.primary)
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    pairing: dict[str, Any] = {"baseline": baseline, "paired_seeds": paired_seeds}
    components = sweep_components(matrix, **pairing)
    others = [_scores(one, sweep.primary) for one in _uncounted(sweep, earlier)]
    seeds = [sweep_components(one, baseline=one.cells[0]).seed for one in others]
    variances, medians = (
        _assumed(planned_variances(matrix, assurance=share, **pairing), share, components, seeds)
        for share in (ASSURANCE, 0.5)
    )
    Q, most, per = _sizes(sweep, matrix, num_queries)
    K = num_configurations or len(matrix.cells)
    prices = costs and replace(costs, query=costs.query * per)
    designs = _designs(variances, goal, Q, most, K, prices, budget) if prices else []
    reached = [d for d in designs if d.num_configurations <= K and d.power >= goal.power]
    sizes = sorted({max(2, round(share * Q)) for share in _SHARES})
    return DesignPlan(
        goal=goal,
        variances=variances,
        num_queries=Q,
        available=most,
        seeds=seeds_needed(variances, goal, num_queries=Q),
        seeds_by_own=seeds_needed(medians, goal, num_queries=Q),
        queries={S: queries_needed(variances, goal, num_seeds=S) for S in PLANNED_SEEDS},
        queries_by_own={S: queries_needed(medians, goal, num_seeds=S) for S in PLANNED_SEEDS},
        floor=floor(variances, goal, num_queries=Q),
        power={
            (S, size): planned_power(variances, goal, num_seeds=S, num_queries=size)
            for S in SEEDS
            for size in sizes
        },
        detectable={
            S: planned_detectable(variances, goal, num_seeds=S, num_queries=Q) for S in SEEDS
        },
        pilot=sweep,
        components=components,
        per_cluster=per,
        pairing=pairing_gain(matrix, goal, baseline=baseline, num_queries=Q),
        earlier=len(others),
        costs=costs,
        budget=budget,
        designs=tuple(designs),
        recommended=max(reached, key=lambda design: design.num_configurations, default=None),
    )


def _uncounted(pilot: Sweep, earlier: Sequence[Sweep]) -> Iterator[Sweep]:
    """The earlier sweeps without the trials of the pilot, or of a sweep before: a trial counts
    once. Raises `BadInput` for a sweep without any other."""
    columns = ["cell", "seed"]
    counted = {*pilot.scores[columns].itertuples(index=False, name=None)}
    for sweep in earlier:
        trials = [*sweep.scores[columns].itertuples(index=False, name=None)]
        uncounted = sweep.scores[[trial not in counted for trial in trials]]
        if uncounted.empty:
            raise BadInput(
                f"--earlier: all trials of {sweep.folder} are the pilot's, or an earlier sweep's, "
                "and would count twice; leave it out"
            )
        counted.update(trials)
        yield replace(sweep, scores=uncounted)


def _check_sizes(goal: Goal, num_queries: int | None, measure: str) -> None:
    low, high = bounds_of(measure)
    if goal.delta >= high - low:
        raise BadInput(
            f"delta < {high - low:g} must hold, as {measure} is from {low:g} to {high:g}, got "
            f"delta={goal.delta:g}; divide a difference in percent by 100"
        )
    if goal.power <= goal.alpha:
        raise BadInput(f"alpha < power must hold, got alpha={goal.alpha}, power={goal.power}")
    if num_queries is not None and not 2 <= num_queries <= MOST_QUERIES:
        raise BadInput(f"--queries must be from 2 to {MOST_QUERIES:,}, got {shown(num_queries)}")


def _scores(sweep: Sweep, measure: str, cells: Sequence[str] = ()) -> ScoreMatrix:
    """The scores of a sweep's cells, or of some, by a measure, in the clusters of its queries."""
    if measure not in sweep.measures:
        raise BadInput(f"{sweep.folder} has no {measure}, which the plan is for")
    scored = set(sweep.scores["cell"])
    cells = cells or [cell.cell for cell in sweep.cells if cell.cell in scored]
    matrix = score_matrix(sweep.scores, measure=measure, cells=cells, may_agree=sweep.alike)
    return in_clusters(sweep, matrix)


def _sizes(sweep: Sweep, matrix: ScoreMatrix, asked: int | None) -> tuple[int, int, float]:
    """The queries of the comparison, the judged ones, and 1; in clusters the numbers of these, as
    large as the pilot's, and their size."""
    judged = sweep.about.collection.get("num_queries", {}).get(sweep.split, 0)
    per = matrix.num_queries / len(matrix.query_ids)
    Q = max(2, round((asked or matrix.num_queries) / per))
    return Q, Q if asked else max(Q, round(judged / per)), per


def _assumed(
    variances: Variances, share: float, pilot: SweepComponents, earlier: Sequence[Component]
) -> Variances:
    """The deviations that a plan assumes, that between runs pooled with those of earlier sweeps."""
    if not earlier:
        return variances
    return replace(variances, seed=pooled_seed_deviation([pilot.seed, *earlier], assurance=share))


def _designs(
    variances: Variances, goal: Goal, Q: int, most: int, K: int, costs: Costs, budget: float
) -> list[Design]:
    """The best design within the budget for 2, K / 2, K and 2K configurations. One of two confirms
    the winner on the sweep's Q queries, others may have up to `most`."""
    parts = sorted({max(2, most // part) for part in _PARTS})
    designs = [
        best_design(
            variances,
            goal,
            num_configurations=number,
            queries=[Q] if number == 2 < K else parts,
            training_cost=costs.training / 3600,
            query_cost=costs.query / 3600,
            budget=budget,
        )
        for number in sorted({2, max(2, K // 2), K, 2 * K})
    ]
    return [design for design in designs if design is not None]


def command_of(planned: DesignPlan, design: Design) -> str:
    """The pilot's command with the sizes of a design: all of its configurations, a random sample of
    them, or its winner and baseline trained again. Of other pilots the flags that a sweep needs."""
    sweep, num_cells = planned.pilot, planned.components.num_cells
    budget = float(f"{planned.budget:g}")
    flags: dict[str, Any] = {"num_seeds": design.num_seeds, "max_gpu_hours": budget}
    if not sweep.about.command or sweep.third_party:
        return f"any sweep with {shlex.join(written(flags))}"
    confirmation = _confirms(planned, design)
    drawn = not confirmation and design.num_configurations < num_cells
    if confirmation:
        return command_in(sweep.about.directory, confirming(asked_of(sweep.about), flags))
    if drawn:
        flags = {"search": "random", "num_configs": design.num_configurations - 1} | flags
    settings = dict[str, str | None]()
    if design.num_queries != planned.num_queries:  # with other queries it is another sweep
        sampled, number = design.num_queries < planned.available, _queries(planned, design)
        settings[_SAMPLE] = str(number) if sampled else None
        flags["name"] = f"{sweep.about.sweep}-{number}-queries"
    old = {*SEED_FLAGS, *MODES, *flags, *(SEARCH if drawn else ())}
    command = asked_of(sweep.about).changed(without=old, settings=settings, flags=flags)
    return command_in(sweep.about.directory, command)


def _queries(planned: DesignPlan, design: Design) -> int:
    return round(design.num_queries * planned.per_cluster)


def _confirms(planned: DesignPlan, design: Design) -> bool:
    """True where the design trains the pilot's winner and baseline again."""
    return design.num_configurations == 2 < planned.components.num_cells


def design_text(planned: DesignPlan) -> str:
    """The plan as text: what it rests on, the counts, one table, and the design to run."""
    lines = [line for text in _origin(planned) for line in wrapped(text)]
    lines += ["", *_goal_lines(planned), ""]
    lines += _design_table(planned, planned.costs) if planned.costs else _power_table(planned)
    return "\n".join([*lines, ""])


def draw_plan(planned: DesignPlan, path: Path) -> None:
    """The power over queries, a line for each number of seeds, and the goal's power."""
    goal, Q = planned.goal, planned.num_queries
    queries = sorted({max(2, round(float(size))) for size in np.geomspace(Q / 5, 5 * Q, 25)})
    with style():
        figure = new_figure(WIDTH, 3.8)
        axes = figure.add_subplot()
        colours = colormaps["viridis"](np.linspace(0.85, 0, len(SEEDS)))
        for S, colour in zip(SEEDS, colours, strict=True):
            power = [
                planned_power(planned.variances, goal, num_seeds=S, num_queries=size)
                for size in queries
            ]
            axes.plot(queries, power, color=colour, label=f"{S} seeds")
        axes.axhline(goal.power, color=INK, linewidth=0.8, linestyle=(0, (5, 3)))
        axes.axvline(Q, color=INK, linewidth=0.8, linestyle=(0, (5, 3)))
        axes.set_xscale("log")
        ticks = sorted({size for _, size in planned.power})
        axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
        axes.minorticks_off()
        axes.set(xlabel=_unit(planned), ylim=(0, 1), ylabel=f"power to find {goal.delta:g}")
        legend(figure, 3)
        drawing = draw(
            figure, name="power", description=f"the power over {_unit(planned)} and seeds"
        )
    is_svg = path.suffix.lower() == ".svg"
    path.write_bytes(drawing.svg.encode() if is_svg else drawing.png)


def _origin(planned: DesignPlan) -> list[str]:
    """What the plan rests on, and the standard deviations."""
    sweep, variances = planned.pilot, planned.variances
    pairs = ", of paired differences / sqrt(2)" if variances.paired else ""
    unit, clusters = "query", ""
    if planned.per_cluster > 1:
        unit, clusters = "cluster", f"{planned.components.num_queries} clusters of "
    Q = round(planned.components.num_queries * planned.per_cluster)
    deviations = (
        f"{variances.seed:.4f} between training runs{pairs}, {variances.residual:.4f} between runs "
        f"on one {unit}, {variances.difference:.4f} of systems' differences per {unit}."
    )
    parts, collapsed = planned.components, sweep.trials["status"] == TrialStatus.COLLAPSED
    gain = pairing_sentence(sweep, planned.pairing, paired=variances.paired)
    lines = [
        f"Pilot{'' if sweep.third_party else f' {sweep.about.sweep}'}: {sweep.primary} on "
        f"{sweep.split_text}, {clusters}{Q} queries, {parts.num_cells} systems, "
        f"{len(sweep.used)} training runs; baseline "
        f"{sweep.label(parts.baseline)}.",
        f"Standard deviations planned on: {deviations} They are the pilot's one-sided upper "
        f"{100 * ASSURANCE:g}% limits; its own are {parts.seed.sd:.4f}, {parts.residual.sd:.4f} "
        f"and {parts.difference.sd:.4f}, each of which half of all pilots underestimate.",
    ]
    lines += [gain] if gain else []
    if planned.earlier:
        whose = numbered(planned.earlier, "earlier sweep")
        lines.append(
            f"The first is pooled with that of {whose}, as if the training runs of all varied "
            "alike. It is for the plan alone: a test that relied on it would find too much where "
            "the deviation is larger."
        )
    if count := int(collapsed.sum()):
        trials = f"{count} collapsed trial{'s' * (count > 1)}"
        lines.append(f"{trials} of the pilot count in its seed variance.")
    if sweep.tests.paired_seeds and not variances.paired:
        words = "The pilot pairs its seeds; the plan is for unpaired seeds and thus conservative"
        lines.append(f"{words} (--paired-seeds).")
    return lines


def pairing_sentence(sweep: Sweep, found: Pairing | None, *, paired: bool) -> str:
    """The correlation of runs that share a seed, and what pairing gains where that is no accident;
    "" where it is not known. `paired` tells whether the tests use the pairing."""
    if found is None:
        return ""
    by_seed = found.correlation
    text = (
        f"Means of runs with the same seed correlate by {signed(by_seed.r, 2)} between systems "
        f"(95% interval {range_text(by_seed.low, by_seed.high, 2)}, {by_seed.num_cells} systems, "
        f"{by_seed.num_seeds} seeds)"
    )
    if by_seed.low > 0:
        return (
            f"{text}: a difference found with {100 * POWER:.0f}% power is "
            f"{_detectable(found.paired)} with paired seeds and {_detectable(found.independent)} "
            "with independent ones, at the deviations as measured."
        )
    if paired:
        return f"{text}, which does not show that pairing gains anything."
    if sweep.third_party or sweep.tests.paired_seeds:
        return ""
    return (
        f"{text}: they share no randomness. Set training.paired_seeds=true to share the order of "
        "the data and the negatives; the report then shows the gain in power."
    )


def _detectable(difference: float) -> str:
    return f"{difference:.3f}" if difference <= 1 else "more than 1"


def _goal_lines(planned: DesignPlan) -> list[str]:
    goal, per = planned.goal, planned.per_cluster
    on = _count(planned.num_queries, per) if per > 1 else f"{planned.num_queries} queries"
    family = "1 comparison" if goal.family_size == 1 else f"{goal.family_size} comparisons"
    if goal.correlation > 0 and goal.family_size > 1:
        family += f", which max-t counts as {goal.shares:.1f}"
    lines = [
        f"To find a difference of {goal.delta:g} with {100 * goal.power:g}% power at alpha "
        f"{goal.alpha:g}, {family}:",
        f"  seeds per system on {on}: {_both(planned.seeds, planned.seeds_by_own)}",
        *(
            f"  queries with {S} seeds per system: {_both(n, planned.queries_by_own[S], per)}"
            for S, n in planned.queries.items()
        ),
        f"  smallest difference on {on} with any number of seeds: {_least(planned)}",
    ]
    if any(planned.available < number < math.inf for number in planned.queries.values()):
        left = _count(planned.available, per) if per > 1 else f"{planned.available:,} queries"
        lines.append(f"  {left} are available: more need new judgments")
    return lines


def _least(planned: DesignPlan) -> str:
    """The limit of what more seeds find, which is unknown where no spread between systems is
    seen."""
    if not planned.variances.difference:
        return "unknown, as the pilot shows no spread of systems' differences over queries"
    return _difference(planned, planned.floor)


def _difference(planned: DesignPlan, size: float) -> str:
    """A difference that a plan finds; none where no two values of the measure are so far apart."""
    low, high = bounds_of(planned.pilot.primary)
    return f"{size:.4f}" if size < high - low else "none"


def _unit(planned: DesignPlan) -> str:
    """What the tests are over."""
    return "clusters" if planned.per_cluster > 1 else "queries"


def _power_table(planned: DesignPlan) -> list[str]:
    """Power by seeds and queries, and the smallest difference that so many seeds find."""
    power = planned.power
    queries = sorted({Q for _, Q in power})
    unit = _unit(planned)
    heading = ["seeds", *(f"{Q:,} {unit}" if Q == queries[0] else f"{Q:,}" for Q in queries)]
    found = {S: _difference(planned, planned.detectable[S]) for S in SEEDS}
    rows = [(str(S), *(f"{100 * power[S, Q]:.0f}%" for Q in queries), found[S]) for S in SEEDS]
    words = (
        f"Power by seeds per system and {unit}. Detectable: the difference found with "
        f"{100 * planned.goal.power:g}% power on {planned.num_queries:,} {unit}."
    )
    if planned.per_cluster > 1:
        words += f" A cluster has {planned.per_cluster:.1f} queries on average."
    return [*wrapped(words), *terminal_lines(table([*heading, "detectable"], rows))]


def _design_table(planned: DesignPlan, costs: Costs) -> list[str]:
    """The designs within the budget, and the command of the recommended one."""
    goal, best = planned.goal, planned.recommended
    words = (
        f"Designs to find {goal.delta:g} with {100 * goal.power:g}% power for {planned.budget:g} "
        f"{costs.unit}-hours. A seed takes {costs.training:,.4g} {costs.unit}-seconds of training "
        f"and {costs.query:.3g} for each test query, {costs.source}."
    )
    if not planned.designs:
        return [*wrapped(f"{words} Three seeds exceed it."), ""]
    detectable = [
        planned_detectable(
            planned.variances,
            replace(goal, family_size=design.num_configurations - 1),
            num_seeds=design.num_seeds,
            num_queries=design.num_queries,
        )
        for design in planned.designs
    ]
    rows = [
        (
            f"{design.num_configurations}{' *' if design == best else ''}",
            f"{design.num_seeds:,}",
            *([f"{design.num_queries:,}"] if planned.per_cluster > 1 else []),
            f"{_queries(planned, design):,}",
            f"{design.cost:,.3g}",
            f"{100 * design.power:.0f}%",
            _difference(planned, difference),
        )
        for design, difference in zip(planned.designs, detectable, strict=True)
    ]
    sizes = ["clusters", "queries"] if planned.per_cluster > 1 else ["queries"]
    heading = ("configurations", "seeds", *sizes, f"{costs.unit}-hours", "power", "detectable")
    shared = "Each configuration but one is compared with the baseline; all share alpha."
    lines = [*wrapped(words), *terminal_lines(table(heading, rows)), *wrapped(shared), ""]
    if best is None:
        found = _difference(planned, min(detectable))
        return lines + wrapped(
            f"None of them reaches {100 * goal.power:g}% power: on at most {planned.available:,} "
            f"{_unit(planned)} they detect "
            f"{'none' if found == 'none' else f'differences of {found} at best'}."
        )
    lines += wrapped(
        f"* recommended: {best.num_configurations} configurations, {best.num_seeds} seeds, "
        f"{_queries(planned, best):,} queries:"
    )
    lines.append(command_of(planned, best))
    if planned.pilot.about.command and not _confirms(planned, best):
        lines += wrapped("It reuses finished trials of the pilot with the same settings and seeds.")
    return lines


def _costs(sweep: Sweep, args: argparse.Namespace) -> Costs | None:
    """The costs of the flags, else those of the pilot's trials; None without a budget."""
    training, query = args.seconds_per_seed, args.seconds_per_query
    if (training is None) != (query is None) or min(training or 0, query or 0) < 0:
        raise BadInput("--seconds-per-seed and --seconds-per-query >= 0 need each other")
    if args.gpu_hours is None:
        return None
    costs = Costs(training, query) if training is not None else _measured_costs(sweep)
    if costs is None:
        raise BadInput(
            "--gpu-hours needs --seconds-per-seed and --seconds-per-query, or a finished sweep, "
            "not a smoke test, as the PILOT"
        )
    return costs


def _measured_costs(sweep: Sweep) -> Costs | None:
    """Mean costs of the pilot's trials; None where they are no guide to a whole sweep."""
    if not {"train_seconds", "eval_seconds"} <= set(sweep.trials) or sweep.about.smoke_test:
        return None
    num_test = sweep.scores["query_id"].nunique()
    num_dev = sweep.dev_scores["query_id"].nunique() if len(sweep.dev_scores) else 0
    rows = sweep.used
    training, query = [], []
    for row in rows.to_dict("records"):
        history = sweep.stored.history(trial_name(row["cell"], row["seed"]))
        validations = sum(news["dev"] is not None for news in history) or 1
        # Test and every validation score their queries equally deep.
        query.append(row["eval_seconds"] / (num_test + validations * num_dev))
        training.append(row["train_seconds"] + validations * num_dev * query[-1])
    means = np.mean(training), np.mean(query)
    if not np.isfinite(means).all():
        return None
    names = ("cpus_per_worker", "gpus_per_worker")
    cpus, gpus = (float(sweep.about.flags.get(name, 1)) for name in names)
    gpus = 0.0 if on_cpus(sweep.about.versions.get("device", "")) else gpus
    devices = sweep.workers * (gpus or cpus)
    unit = "GPU" if gpus else "core"
    training_cost, query_cost = (float(mean) * devices for mean in means)
    return Costs(training_cost, query_cost, "measured on the pilot", unit)


def _both(number: float, by_own: float, per_cluster: float = 1) -> str:
    """A count at the upper limits, and in parentheses the one at the pilot's own deviations; one
    text where no number is enough at either."""
    if math.isinf(number) and math.isinf(by_own):
        return _count(number)
    shown = "none is sure to be enough" if math.isinf(number) else _count(number, per_cluster)
    return f"{shown} ({_count(by_own, per_cluster)} at the pilot's own deviations)"


def _count(number: float, per_cluster: float = 1) -> str:
    """A count; of clusters also in queries."""
    if math.isinf(number):
        return "no number is enough"
    queries = f" clusters of {round(number * per_cluster):,} queries" if per_cluster > 1 else ""
    return f"{int(number):,}{queries}"
