"""A folder is one sweep: what a command may not change in it.

The name of a cell stands for everything that affects its trials' numbers. Two commands are the same
sweep if cells with equal swept settings have equal names, and what all cells share is equal. More
seeds, other values of swept settings, workers, budgets and the report's flags change neither.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rank_core.errors import BadInput, shown
from rank_core.settings.config import setting_types
from sweeps.plan.description import described_cells, fixed_settings
from sweeps.plan.options import Options
from sweeps.plan.plan import Plan
from sweeps.store.records import Records
from sweeps.store.sweep_file import Cell, SweepFile, described

SHOWN = 5  # differences in a message


class Difference(NamedTuple):
    """A part of a sweep's meaning that a command changes."""

    what: str  # a setting
    before: str
    now: str

    def __str__(self) -> str:
        if self.before == self.now == "":
            return self.what
        return f"{self.what} is {self.before} there and {self.now} here"


def check_same_sweep(plan: Plan, options: Options, records: Records) -> None:
    """Refuses a folder that holds another sweep of the same name, one with other settings, and a
    smoke test in the folder of a whole sweep. A whole sweep may follow its smoke test."""
    stored = described(records)
    if stored is None or options.replace:
        return
    experiment = plan.experiment
    ways = "Give this one another name, --name NAME, or another --storage; --replace replaces"
    ways += " the description and the report of the earlier one, and keeps its trials"
    if (stored.question, stored.swept) != (experiment.question, experiment.swept):
        raise BadInput(
            f"{records.uri} holds another sweep called {experiment.name}, with another question or "
            f"other swept settings. {ways}"
        )
    if options.smoke_test and not stored.smoke_test:
        raise BadInput(f"{records.uri} holds a sweep that is not a smoke test. {ways}")
    if stored.smoke_test and not options.smoke_test:
        return
    found = list(differences(stored, plan))
    if found:
        more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        listed = "; ".join(map(str, found[:SHOWN]))
        raise BadInput(
            f"{records.uri} holds this sweep with other settings: {listed}{more}. {ways}"
        )


def differences(stored: SweepFile, plan: Plan) -> Iterator[Difference]:
    """What makes the plan another sweep than the stored one; nothing where they are the same."""
    fixed = fixed_settings(plan)
    changed = [name for name in fixed if name in stored.fixed]
    changed = [name for name in changed if _plain(stored.fixed[name]) != _plain(fixed[name])]
    own = {"model.backbone": (stored.backbone.get("name"), plan.inputs.backbone.name)}
    for name in changed:
        before, now = own.get(name, ("", ""))
        if name == "numerics":
            what = "the version of ranksweep's numbers"
        else:
            what = name if _is_value(name, fixed[name]) else f"{name} (its contents)"
        yield Difference(
            what,
            f"{before or ''} {_text(stored.fixed[name])}".strip(),
            f"{now or ''} {_text(fixed[name])}".strip(),
        )
    if not changed:
        yield from _of_cells(stored.cells, described_cells(plan)["cells"])


def _of_cells(before: Sequence[Cell], now: Sequence[Cell]) -> Iterator[Difference]:
    """The settings of cells with equal swept settings and other names, each once."""
    known: dict[str, list[Cell]] = {}
    for cell in before:
        known.setdefault(_plain(cell.settings), []).append(cell)
    told: set[str] = set()
    for cell in now:
        others = known.get(_plain(cell.settings), [])
        if not others or cell.cell in {other.cell for other in others}:
            continue
        pairs = {
            name: (others[0].config[name], value)
            for name, value in cell.config.items()
            if name in others[0].config and _plain(others[0].config[name]) != _plain(value)
        }
        for name in pairs.keys() - told:
            yield Difference(name, *map(_text, pairs[name]))
        told |= pairs.keys()
        if not pairs and "" not in told:
            told.add("")
            yield Difference(
                f"{cell.label} is {others[0].cell} there and {cell.cell} here, because contents "
                "of files, code of your own, or ranksweep changed since",
                "",
                "",
            )


def _is_value(name: str, value: Any) -> bool:
    """False for the hash of a content in the place of a setting's value."""
    kind = setting_types()[name]
    return kind is not str or name in ("training.loss", "model.name") or not _is_hash(value)


def _is_hash(value: Any) -> bool:
    text = str(value)
    return len(text) >= 12 and all(sign in "0123456789abcdef+" for sign in text)


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=list)


def _text(value: Any) -> str:
    return shown(",".join(map(str, value)) if isinstance(value, list | tuple) else value)
