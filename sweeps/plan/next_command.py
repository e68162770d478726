"""The command that follows from another one: a command of ours, or a sweep's with other flags. A
sweep's command is written from the flags and settings that `sweep.json` holds as data."""

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeps.plan.flags import FLAGS, MODES, NOT_CONFIRMED, SEEDS, written
from sweeps.store.records import Records
from sweeps.store.sweep_file import FILE, SweepFile
from sweeps.terminal.command_line import program


@dataclass(frozen=True)
class Asked:
    """What a sweep's command line asked, as it was typed."""

    start: tuple[str, ...] = ()  # the words before its flags, such as `ranksweep run seeds`
    flags: Mapping[str, Any] = field(default_factory=dict)  # {name in Python: value}
    settings: Mapping[str, str] = field(default_factory=dict)  # {dotted setting: its text}

    def changed(
        self,
        *,
        without: Collection[str] = (),
        flags: Mapping[str, Any] | None = None,
        settings: Mapping[str, str | None] | None = None,
    ) -> str:
        """The command without some flags (`num_seeds`), with more of them at its end, and with
        other settings, None for a setting that it then lacks."""
        given = {name: value for name, value in self.flags.items() if name not in without}
        other = dict(settings or {})
        kept = {name: text for name, text in self.settings.items() if name not in other}
        words = [f"{name}={text}" for name, text in (kept | other).items() if text is not None]
        return shlex.join([*self.start, *written(given), *words, *written(flags or {})])


def asked_of(about: SweepFile) -> Asked:
    """The command of a sweep."""
    return Asked(about.start, about.flags, about.settings)


def copied_from(about: SweepFile, records: Records) -> str:
    """The folder that a sweep's command drives, where that is there and the one that was read is a
    copy of it; "" otherwise."""
    typed = str(about.flags.get("storage", FLAGS["storage"].default))
    if not about.directory or not records.sweep or "://" in typed or "://" in records.uri:
        return ""
    driven = os.path.join(about.directory, typed, records.sweep)
    # Not of pathlib, which raises for a folder that this user may not enter.
    there = os.path.isfile(os.path.join(driven, FILE))
    return driven if there and not os.path.samefile(driven, records.folder) else ""


def our_command(*words: str) -> str:
    """A command of this program as it runs in the reader's shell."""
    return shlex.join([*program(), *words])


def confirming(asked: Asked, flags: Mapping[str, Any] | None = None) -> str:
    """The command that confirms a sweep: without the settings and flags of its cells, which the
    finished sweep has."""
    named = {name: text for name, text in asked.settings.items() if name == "collection"}
    return Asked(asked.start, asked.flags).changed(
        without={*NOT_CONFIRMED, *SEEDS, *MODES, *(flags or {})},
        flags={**named, "confirm": True, **(flags or {})},
    )


def seeded(asked: Asked, seeds: Sequence[int], number: int) -> str:
    """The command with more seeds, those that it has among them."""
    more = [*seeds, *(seed for seed in range(1, number + max(seeds) + 1) if seed not in seeds)]
    plain = more[:number] == list(range(1, number + 1))
    listed = ",".join(map(str, more[:number]))
    return asked.changed(without=SEEDS, flags={"num_seeds": number} if plain else {"seeds": listed})


def resumed(asked: Asked, typed: str, *, stopped: bool = False) -> str:
    """The command that runs the missing trials, as it was typed; after a budget's end with twice
    the hours."""
    hours = asked.flags.get("max_gpu_hours")
    if not stopped or hours is None:
        return typed
    return asked.changed(without=["max_gpu_hours"], flags={"max_gpu_hours": 2 * hours})
