"""What the trials of systems were computed on, and where the two sides of a comparison differ in
it: a difference between them may then be one of machines."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sweeps.plan.groups import group_size
from sweeps.store.records import State
from sweeps.store.sweep_file import Cell

CPUS = ("x86_64", "AMD64", "aarch64", "arm64")
"""Names of machines, which a trial notes as its device where it ran without a GPU."""
Values = tuple[str | int, ...]
"""Of a fact in a trial: its workers may be on several devices, and it may move to another."""
Machines = Mapping[int, Mapping[str, Values]]
"""{seed of a cell: {fact: what the trial was computed on}}."""
FACTS = {"device": "", "precision": "training.precision", "torch": "", "workers": ""}
"""Those that may change a number, and the setting that changes one on purpose, if any; workers add
up gradients in another order."""


@dataclass(frozen=True)
class UnlikeSides:
    """A comparison whose two sides were computed on unlike machines, with what these seeds ran on
    there."""

    system: str
    baseline: str
    fact: str
    of_system: Values
    of_baseline: Values
    seeds: int  # of the system that ran on others than the baseline's
    of_seeds: int


def on_cpus(devices: str) -> bool:
    """Whether trials ran without a GPU, by their devices as a sweep joins them (`aarch64, x86_64`);
    also where they noted none."""
    return {*devices.split(", ")} <= {*CPUS, ""}


def machines_of(states: Iterable[State]) -> Mapping[str, Machines]:
    """{cell: what its used trials were computed on}, of those with an encoder, which alone depend
    on it."""
    found: dict[str, dict[int, Mapping[str, Values]]] = {}
    for state in states:
        if state.status.used and state.facts["encoder_tokens"]:
            facts: dict[str, Values] = {
                fact: (text,) for fact, text in state.facts["versions"].items()
            }
            numbers = {row["number"] for row in state.facts.get("workers", ())}
            facts["workers"] = tuple(sorted(numbers))  # not noted before 0.5
            facts |= {"device": state.devices} if state.devices else {}
            own = {fact: facts[fact] for fact in FACTS if facts.get(fact)}
            found.setdefault(state.cell, {})[state.seed] = own
    return found


def hours_on(states: Iterable[State], flags: Mapping[str, Any]) -> dict[str, float]:
    """{device: the GPU-hours, or core-hours, of its finished trials with an encoder}, by the flags
    of the sweep's command; what lost attempts took is not among them."""
    cpus, gpus = (float(flags.get(name) or 1) for name in ("cpus_per_worker", "gpus_per_worker"))
    found: dict[str, float] = {}
    for state in states:
        if state.status.used and state.facts["encoder_tokens"]:
            for device, seconds in state.device_seconds(_workers(flags)).items():
                units = cpus if on_cpus(device) else gpus
                found[device] = found.get(device, 0.0) + seconds / 3600 * units
    return found


def mean_workers(states: Iterable[State], flags: Mapping[str, Any]) -> float:
    """The number of workers of finished trials, on average over their time."""
    used = [state for state in states if state.status.used]
    seconds = sum(one.facts["train_seconds"] + one.facts["eval_seconds"] for one in used)
    return sum(one.result_seconds(_workers(flags)) for one in used) / seconds if seconds else 1.0


def _workers(flags: Mapping[str, Any]) -> int:
    """The workers of a trial, of a range the most."""
    return group_size(str(flags.get("num_workers") or 1))[1]


def unlike_sides(
    machines: Mapping[str, Machines],
    pairs: Iterable[tuple[str, str]],
    cells: Iterable[Cell],
    *,
    paired: bool,
) -> list[UnlikeSides]:
    """The compared (system, baseline) whose machines differ, with a row for each fact: `paired`
    sides where those of a seed do, others where the shares of their seeds do. A precision that is a
    swept setting differs on purpose."""
    swept = {name for cell in cells for name in cell.settings}
    rows = []
    for system, baseline in dict.fromkeys(pairs):
        sides = machines.get(system, {}), machines.get(baseline, {})
        by_seed = paired and sides[0].keys() == sides[1].keys()
        for fact, setting in FACTS.items():
            one, other = (_values(side, fact) for side in sides)
            if not (one and other) or setting in swept:
                continue
            unlike = _by_seed(one, other) if by_seed else _by_share(one, other)
            if unlike.seeds:
                rows.append(UnlikeSides(system, baseline, fact, *unlike, len(sides[0])))
    return rows


def _values(machines: Machines, fact: str) -> dict[int, Values]:
    return {seed: facts[fact] for seed, facts in machines.items() if fact in facts}


class _Unlike(NamedTuple):
    """What the unlike seeds of two sides ran on, and the number of those of the first."""

    of_one: Values
    of_other: Values
    seeds: int


def _by_seed(one: Mapping[int, Values], other: Mapping[int, Values]) -> _Unlike:
    """Of the seeds that ran on different machines on the two sides, where both noted theirs."""
    seeds = [seed for seed in one if other.get(seed, one[seed]) != one[seed]]
    return _Unlike(_all(one[s] for s in seeds), _all(other[s] for s in seeds), len(seeds))


def _by_share(one: Mapping[int, Values], other: Mapping[int, Values]) -> _Unlike:
    """Of the machines on which a larger share of a side's seeds ran, of as many seeds of the first
    as its shares are too large by."""
    ours, theirs = Counter(one.values()), Counter(other.values())
    more = {own: ours[own] * len(other) - theirs[own] * len(one) for own in ours | theirs}
    excess = sum(number for number in more.values() if number > 0)
    of_one = _all(own for own in more if more[own] > 0)
    of_other = _all(own for own in more if more[own] < 0)
    return _Unlike(of_one, of_other, math.ceil(excess / len(other)))


def _all(values: Iterable[Values]) -> Values:
    names: set[Any] = {name for own in values for name in own}
    return tuple(sorted(names))
