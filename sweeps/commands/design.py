"""`python -m sweeps design PILOT`: how many seeds and queries the next comparison needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rank_core.errors import BadInput, unknown
from rank_core.stats.design import (
    Design,
    Goal,
    Variances,
    cheapest_design,
    detectable_curve,
    floor,
    planned_variances,
    queries_needed,
    seeds_needed,
)
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from rank_core.stats.variance import SweepComponents, sweep_components
from sweeps.plan.command_line import Parser, check_writable
from sweeps.report.figures.figure import BLUE, GREY, ORANGE, new_figure, style
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.table import table, terminal_lines, wrapped
from sweeps.store.opened_sweep import opened
from sweeps.store.trial_status import USED, TrialStatus

SEEDS = (2, 3, 4, 5, 8, 10, 20)
ASSURANCE = 0.8
FORMATS = (".png", ".svg")
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
    """What a pilot says about the next comparison; counts are infinite where out of reach."""

    sweep: Sweep
    matrix: ScoreMatrix
    goal: Goal
    components: SweepComponents
    variances: Variances
    seeds: float  # needed per system, on the pilot's queries
    queries: dict[int, float]  # {seeds per system: queries needed}
    floor: float
    curve: list[tuple[int, float]]  # (seeds per system, smallest detectable difference)
    costs: Costs | None
    cheapest: Design | None


def main(argv: Sequence[str]) -> int:
    """Plan a comparison from the variances of a pilot sweep and print the plan; exit code 0."""
    parser = Parser("python -m sweeps design", main.__doc__)
    parser.add_argument("pilot", metavar="PILOT", help="the folder or URI of one sweep")
    parser.add_argument("--delta", type=float, required=True, help="the difference to be found")
    parser.add_argument("--alpha", type=float, help="default: the pilot's")
    parser.add_argument("--power", type=float, default=0.8)
    parser.add_argument("--family", type=int, default=1, metavar="N", help="comparisons planned")
    parser.add_argument("--baseline", metavar="CELL", help="default: the pilot's")
    parser.add_argument("--cost-train", type=float, metavar="S", help="seconds per training run")
    parser.add_argument("--cost-eval", type=float, metavar="S", help="seconds per query and run")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="the curve as .png or .svg")
    given = parser.parse_args(argv)
    if given.plot is not None:
        _check_plot(given.plot)
    with opened(given.pilot) as store:
        sweep = load_sweep(store.folder)
    alpha = sweep.alpha if given.alpha is None else given.alpha
    goal = Goal(given.delta, alpha=alpha, power=given.power, family_size=given.family)
    costs = _costs(sweep, given.cost_train, given.cost_eval)
    found = plan(sweep, goal, baseline=given.baseline or sweep.baseline, costs=costs)
    print(design_text(found), end="")
    if given.plot is not None:
        draw(found, given.plot)
        print(f"Curve: {given.plot}")
    return 0


def plan(sweep: Sweep, goal: Goal, *, baseline: str, costs: Costs | None) -> DesignPlan:
    """Everything the plan prints, from the primary measure of the pilot."""
    if goal.power <= goal.alpha:
        raise BadInput(f"alpha < power must hold, got alpha={goal.alpha}, power={goal.power}")
    scored = set(sweep.scores["cell"])
    cells = [one.cell for one in sweep.cells if one.cell in scored]
    if baseline not in cells:
        raise unknown("baseline", baseline, cells)
    matrix = score_matrix(sweep.scores, measure=sweep.primary, cells=cells)
    variances = planned_variances(matrix, baseline=baseline, assurance=ASSURANCE)
    Q = len(matrix.query_ids)
    seeds = seeds_needed(variances, goal, num_queries=Q)
    return DesignPlan(
        sweep=sweep,
        matrix=matrix,
        goal=goal,
        components=sweep_components(matrix, baseline=baseline),
        variances=variances,
        seeds=seeds,
        queries={S: queries_needed(variances, goal, num_seeds=S) for S in (3, 5, 10)},
        floor=floor(
            variances,
            num_queries=Q,
            alpha=goal.alpha,
            power=goal.power,
            family_size=goal.family_size,
        ),
        curve=_curve(variances, goal, Q, SEEDS),
        costs=costs,
        cheapest=None if costs is None else _cheapest(variances, goal, seeds, Q, costs),
    )


def design_text(found: DesignPlan) -> str:
    """The plan as a person reads it."""
    sweep, Q = found.sweep, len(found.matrix.query_ids)
    trials = sum(map(len, found.matrix.seeds.values()))
    pilot = (
        f"Pilot {sweep.name}: {sweep.primary} on {sweep.split_text}, {Q} queries, "
        f"{len(found.matrix.cells)} cells, {trials} trials; "
        f"baseline {sweep.label(found.components.baseline)}."
    )
    lines = [
        *(line for text in (pilot, *_caveats(sweep)) for line in wrapped(text)),
        "",
        *_variance_lines(found),
        "",
        *_goal_lines(found),
        "",
        *terminal_lines(
            table(
                ("seeds per system", *(str(seeds) for seeds, _ in found.curve)),
                [("detectable difference", *(f"{least:.4f}" for _, least in found.curve))],
            )
        ),
        "",
    ]
    return "\n".join(lines)


def draw(found: DesignPlan, path: Path) -> None:
    """The smallest detectable difference over the seeds, its floor, and the wanted difference."""
    _check_plot(path)
    Q, every = len(found.matrix.query_ids), range(SEEDS[0], SEEDS[-1] + 1)
    curve = _curve(found.variances, found.goal, Q, every)
    with style():
        figure = new_figure(6, 3.6)
        axes = figure.add_subplot()
        axes.plot(*zip(*curve, strict=True), color=BLUE, marker="o", markersize=3)
        line = axes.axhline(found.floor, color=GREY, linestyle="--", linewidth=1)
        line.set_label(f"floor: {found.floor:.4f}, no number of seeds finds less")
        line = axes.axhline(found.goal.delta, color=ORANGE, linewidth=1)
        line.set_label(f"wanted: {found.goal.delta:g}")
        axes.legend(loc="upper right", frameon=False)
        axes.set_ylim(bottom=0)
        axes.set_xticks(SEEDS)
        axes.set_xlabel("seeds per system")
        axes.set_ylabel(f"detectable difference in {found.sweep.primary}")
        axes.set_title(
            f"{Q} queries, power {100 * found.goal.power:g} %, "
            f"alpha {found.goal.alpha:g}, family of {found.goal.family_size}",
            fontsize=9,
            loc="left",
        )
        kind = path.suffix.lower()[1:]
        nothing = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(path, format=kind, dpi=150, metadata=nothing)


def _curve(
    variances: Variances, goal: Goal, num_queries: int, seeds: Sequence[int]
) -> list[tuple[int, float]]:
    return detectable_curve(
        variances,
        seeds=seeds,
        num_queries=num_queries,
        alpha=goal.alpha,
        power=goal.power,
        family_size=goal.family_size,
    )


def _variance_lines(found: DesignPlan) -> list[str]:
    parts, planned = found.components, found.variances
    rows = [
        (name, f"{one.sd:.4f}", f"{one.low:.4f} to {one.high:.4f}", f"{plan_on:.4f}")
        for name, one, plan_on in (
            ("between training runs (seed)", parts.seed, planned.seed),
            ("between runs on one query (residual)", parts.residual, planned.residual),
            ("of systems' differences per query", parts.difference, planned.difference),
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
    goal, Q = found.goal, len(found.matrix.query_ids)
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


def _caveats(sweep: Sweep) -> list[str]:
    collapsed = int((sweep.trials["status"] == TrialStatus.COLLAPSED).sum())
    lines = []
    if collapsed:
        lines.append(
            f"{collapsed} collapsed trial{'s' if collapsed > 1 else ''} of the pilot count in its "
            "seed variance: the plan expects as many again."
        )
    if sweep.paired_seeds:
        lines.append(
            "The pilot pairs its seeds; the plan is for unpaired ones and errs on the safe side."
        )
    return lines


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


def _costs(sweep: Sweep, training: float | None, query: float | None) -> Costs | None:
    """The given costs; what is not given is taken from the pilot's own trials."""
    for name, value in (("--cost-train", training), ("--cost-eval", query)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise BadInput(f"{name} >= 0 must hold, got {value}")
    if training is not None and query is not None:
        return Costs(training, query, measured=False)
    if training is not None or query is not None:
        raise BadInput("--cost-train and --cost-eval are given together or not at all")
    if not {"train_seconds", "eval_seconds"} <= set(sweep.trials.columns):
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
