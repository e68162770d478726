"""Racing: configurations compete seed by seed, and leave once they are credibly worse.

Seeds are blocks: every live configuration runs one more seed, then the race looks. A configuration
leaves if the whole grid would hardly name it the winner (`racing_rule` has the test,
`racing_levels` what each look may spend). With probability 1 - alpha or more, for runs that scatter
alike, the winner is the one that all configurations with all seeds would have given on the same dev
queries.

That, and no more, is decided here. Whether the winner is the better *method* needs queries it was
not chosen on and fresh seeds. Where the best differ by less than the luck of a seed, the grid's
winner is chance, and so is the race's.

With an indifference `delta` the winner may be one that the grid puts at most delta behind its own.

The state is a pure function of the trials that have ended, in whatever order they did: a driver
that restarts reads its ledger and goes on. At every moment all live configurations are judged on
equal seeds, so that a race cut short is a valid, smaller one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rank_core.errors import BadInput, unknown
from rank_core.stats.racing.input import check_trials, stacked, twins
from rank_core.stats.racing.levels import look_levels, spent
from rank_core.stats.racing.rule import FIRST_LOOK, look
from rank_core.stats.scopes import Floats

Trial = tuple[str, int]
"""A configuration and its seed."""


@dataclass(frozen=True)
class Judged:
    """One configuration at one look, beside the leader of that look, on the same seeds.

    `gap` is the leader's mean minus this one's, `se` its standard error about the gap of the whole
    grid; `p` the chance of such a gap between equals, the
    leader being any of the rivals. `twin` names an earlier configuration with the same values.
    """

    configuration: str
    mean: float
    gap: float
    se: float
    p: float
    leaves: bool
    twin: str | None


@dataclass(frozen=True)
class Verdict:
    """What a look after `num_seeds` complete seeds of `planned_seeds` decided.

    Whoever has p < level leaves; `df` are the degrees of freedom of the pooled luck of seeds.
    """

    num_seeds: int
    planned_seeds: int
    leader: str
    level: float
    df: float
    judged: tuple[Judged, ...]

    @property
    def stays(self) -> tuple[str, ...]:
        """The configurations that run another seed, in their order."""
        return tuple(one.configuration for one in self.judged if not one.leaves)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The configurations that are out."""
        return tuple(one.configuration for one in self.judged if one.leaves)

    def sentence(self, configuration: str) -> str:
        """Why a configuration left or stays, in one sentence."""
        one = next((one for one in self.judged if one.configuration == configuration), None)
        if one is None:
            raise unknown("live configuration", configuration, (*self.stays, *self.leaves))
        seeds = f"After {self.num_seeds} of {self.planned_seeds} seeds {configuration}"
        if configuration == self.leader:
            return f"{seeds} leads with a mean of {one.mean:.4f}."
        sign = "<" if one.leaves else ">="
        verdict = "leaves" if one.leaves else "stays"
        return (
            f"{seeds} {verdict}: {one.gap:.4f} below {self.leader} "
            f"(p = {one.p:.2g} {sign} {self.level:.2g})."
        )


@dataclass(frozen=True)
class Standing:
    """One line of the report of a race: `left_after` seeds, or None if the configuration is live.

    `mean` is over the `num_seeds` it was judged on; a live configuration has as many as the others.
    One that `lost` a trial left because of that, unjudged.
    """

    configuration: str
    mean: float
    num_seeds: int
    left_after: int | None
    lost: bool = False


@dataclass(frozen=True)
class Race:
    """A race as far as its finished trials go; see `race_so_far`.

    `num_complete` seeds are complete for all live configurations. `pending` are the trials to run
    next, in order; none once the race is over. `standings` puts the live ones first, best first,
    then those that left, the last to leave first.
    """

    configurations: tuple[str, ...]
    seeds: tuple[int, ...]
    live: tuple[str, ...]
    num_complete: int
    verdicts: tuple[Verdict, ...]
    pending: tuple[Trial, ...]
    standings: tuple[Standing, ...]

    @property
    def over(self) -> bool:
        """Whether nothing is left to run: one configuration is left, or all seeds are."""
        return not self.pending

    @property
    def winner(self) -> str:
        """The first of the standings: the leader so far, the winner once the race is over."""
        return self.standings[0].configuration

    @property
    def cost(self) -> float:
        """The trials of complete blocks as a share of the whole grid's."""
        trials = sum(standing.num_seeds for standing in self.standings)
        return trials / (len(self.configurations) * len(self.seeds))


def survivors(
    scores: Mapping[str, Floats],
    *,
    num_configurations: int,
    num_seeds: int,
    alpha: float = 0.05,
    spending: str = "pocock",
    delta: float = 0.0,
) -> Verdict:
    """Judge the live configurations, `scores[configuration]` being dev values (s, Q), s alike.

    `num_configurations` started the race and `num_seeds` are planned; there are looks after 2 to
    num_seeds - 1 seeds. The leader never leaves; equal means are led by the one that comes first.
    `delta` >= 0 is the difference of the measure that does not matter.
    """
    if not 0 <= delta < float("inf"):
        raise BadInput(f"delta >= 0 must hold, got delta={delta}")
    names, score_LSQ = tuple(scores), stacked(scores)
    s = score_LSQ.shape[1]
    if not FIRST_LOOK <= s < num_seeds:
        raise BadInput(
            f"a race looks after {FIRST_LOOK} to {num_seeds - 1} of its {num_seeds} seeds, got {s}"
        )
    if not 1 <= len(names) <= num_configurations:
        raise BadInput(f"at most {num_configurations} configurations can be live, got {len(names)}")
    level = look_levels(num_configurations, num_seeds, alpha=alpha, spending=spending)[s]
    twin_of = twins(names, score_LSQ)
    same_1L = np.array([[twin is not None for twin in twin_of]])
    mean_LS = score_LSQ.mean(axis=2)
    live_1L = np.ones((1, len(names)), dtype=np.bool_)
    found = look(mean_LS[None], live_1L, num_seeds=num_seeds, delta=delta, same_BK=same_1L)
    columns = (mean_LS.mean(axis=1), found.gap_BK[0], found.se_BK[0], found.p_BK[0])
    judged = tuple(
        Judged(name, float(mean), float(gap), float(se), float(p), bool(p < level), twin)
        for name, twin, mean, gap, se, p in zip(names, twin_of, *columns, strict=True)
    )
    leader = names[int(found.leader_B[0])]
    return Verdict(s, num_seeds, leader, level, float(found.df_B[0]), judged)


def race_so_far(
    finished: Mapping[Trial, Floats],
    *,
    configurations: Sequence[str],
    seeds: Sequence[int],
    lost: Collection[Trial] = (),
    alpha: float = 0.05,
    spending: str = "pocock",
    delta: float = 0.0,
) -> Race:
    """Replay a race from `finished`: per trial its dev values, one per query, queries in one order.

    Only complete blocks are judged; a trial that finished ahead of its block, or after its
    configuration left, waits without a say. Whoever `lost` a trial for good leaves at that block.
    """
    check_trials(finished, configurations, seeds)
    spent(len(seeds), alpha=alpha, spending=spending)  # refuses a bad setting before the first look
    live, verdicts = tuple(configurations), list[Verdict]()
    runs = dict.fromkeys(configurations, 0)
    pending: tuple[Trial, ...] = ()
    num_complete = 0
    for s, seed in enumerate(seeds, start=1):
        live = tuple(name for name in live if (name, seed) not in lost)
        pending = tuple((name, seed) for name in live if (name, seed) not in finished)
        if pending or not live:
            break
        num_complete = s
        runs |= dict.fromkeys(live, s)
        if FIRST_LOOK <= s < len(seeds):
            verdict = survivors(
                {name: _rows(finished, name, seeds[:s]) for name in live},
                num_configurations=len(configurations),
                num_seeds=len(seeds),
                alpha=alpha,
                spending=spending,
                delta=delta,
            )
            verdicts.append(verdict)
            live = verdict.stays
        if len(live) == 1 and s >= FIRST_LOOK:
            break
    return Race(
        configurations=tuple(configurations),
        seeds=tuple(seeds),
        live=live,
        num_complete=num_complete,
        verdicts=tuple(verdicts),
        pending=pending,
        standings=_standings(finished, seeds, runs, live, {name for name, _ in lost}),
    )


def _standings(
    finished: Mapping[Trial, Floats],
    seeds: Sequence[int],
    runs: Mapping[str, int],
    live: Sequence[str],
    lost: Collection[str],
) -> tuple[Standing, ...]:
    """Live ones first, then the last to leave; the better mean first, the given order among equals.

    Means are rounded before they are compared: the order of summation is not a difference.
    """
    standings = []
    for name, s in runs.items():
        mean = float(_rows(finished, name, seeds[:s]).mean(axis=1).mean()) if s else float("nan")
        left = None if name in live else s
        standings.append(Standing(name, mean, s, left, name in lost))
    return tuple(
        sorted(
            standings,
            key=lambda one: (
                one.left_after is not None,
                -one.num_seeds,
                -round(one.mean, 12) if one.num_seeds else 0.0,
            ),
        )
    )


def _rows(finished: Mapping[Trial, Floats], name: str, seeds: Sequence[int]) -> Floats:
    """The dev values (s, Q) of one configuration."""
    return np.stack([np.asarray(finished[name, seed], dtype=np.float64) for seed in seeds])
