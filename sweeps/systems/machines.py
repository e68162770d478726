"""What the trials of systems were computed on, and where the two sides of a comparison differ in
it: a difference between them may then be one of machines."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.plan.groups import group_size
from sweeps.store.records import State
from sweeps.store.sweep_file import Cell

CPUS = ("x86_64", "AMD64", "aarch64", "arm64", "")
"""Devices of trials without a GPU."""
Machines = Mapping[str, tuple[str, ...]]
"""{fact of the machines: its values over the trials of a cell}."""
FACTS = {"device": "", "precision": "training.precision", "torch": ""}
"""Those that may change a number, and the setting that changes one on purpose, if any."""


@dataclass(frozen=True)
class UnlikeSides:
    """A comparison whose two sides were computed on unlike machines."""

    system: str
    baseline: str
    fact: str
    of_system: tuple[str, ...]
    of_baseline: tuple[str, ...]


def machines_of(states: Iterable[State]) -> dict[str, Machines]:
    """{cell: what its used trials were computed on}, of those with an encoder, which alone depend
    on it."""
    found: dict[str, dict[str, set[str]]] = {}
    for state in states:
        if state.status.used and state.facts["encoder_tokens"]:
            versions = found.setdefault(state.cell, {})
            for fact in FACTS.keys() & state.facts["versions"].keys():
                versions.setdefault(fact, set()).update(_values(state, fact))
    return {
        cell: {f: tuple(sorted(versions[f])) for f in versions} for cell, versions in found.items()
    }


def _values(state: State, fact: str) -> tuple[str, ...]:
    """What a trial was computed on: workers of one may be on several devices, or move."""
    return state.devices if fact == "device" else (state.facts["versions"][fact],)


def hours_on(states: Iterable[State], flags: Mapping[str, Any]) -> dict[str, float]:
    """{device: the GPU-hours, or core-hours, of its finished trials with an encoder}, by the flags
    of the sweep's command; what lost attempts took is not among them."""
    cpus, gpus = (float(flags.get(name) or 1) for name in ("cpus_per_worker", "gpus_per_worker"))
    found: dict[str, float] = {}
    for state in states:
        if state.status.used and state.facts["encoder_tokens"]:
            for device, seconds in state.device_seconds(_workers(flags)).items():
                units = cpus if device in CPUS else gpus
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
    machines: Mapping[str, Machines], pairs: Iterable[tuple[str, str]], cells: Iterable[Cell]
) -> list[UnlikeSides]:
    """The compared (system, baseline) whose machines differ, with a row for each fact. A precision
    that is a swept setting differs on purpose."""
    swept = {name for cell in cells for name in cell.settings}
    rows = []
    for system, baseline in dict.fromkeys(pairs):
        one, other = machines.get(system, {}), machines.get(baseline, {})
        for fact, setting in FACTS.items():
            if one.get(fact, ()) and other.get(fact, ()) and setting not in swept:
                if one[fact] != other[fact]:
                    rows.append(UnlikeSides(system, baseline, fact, one[fact], other[fact]))
    return rows
