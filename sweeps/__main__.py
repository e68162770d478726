"""The commands of `ranksweep`; `python -m sweeps` where it is not installed."""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from rank_core.errors import NEAR, BadInput, nearest, shown, unknown
from rank_core.lines import beside, put
from sweeps.commands.known import COMMANDS, GROUPS, OTHER_WORDS, sweep_names
from sweeps.terminal.command_line import heed_interrupts, run_command


def script() -> int:
    """The console script `ranksweep`; returns the exit code."""
    try:
        return main(sys.argv[1:])
    except Exception:  # of any kind: a fault of ours, whose lines pass the same door as all others
        beside(traceback.format_exc().rstrip())
        return 1


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    return run_command(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        put(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        put(f"ranksweep {_version()}")
        return 0
    if argv[0] not in COMMANDS:
        raise _unknown(argv[0])
    command = COMMANDS[argv[0]].run.load()
    heed_interrupts()
    return command([*argv[1:]])


def _unknown(word: str) -> BadInput:
    """The error for a first word that is no command: a sweep's name, or a word of other tools, says
    what to type."""
    sweeps = {name: f"run {name}" for name in sweep_names()}
    if meant := (sweeps | OTHER_WORDS).get(word.replace("-", "_")):
        return BadInput(f"{shown(word)} is not a command; use `ranksweep {meant}`")
    near = nearest(word, [*sweeps, *COMMANDS], 1, cutoff=NEAR)
    if near and near[0] in sweeps:
        return BadInput(
            f"unknown command {shown(word)}; did you mean `ranksweep {sweeps[near[0]]}`?"
        )
    return unknown("command", word, COMMANDS)


def _version() -> str:
    try:
        return version("ranksweep")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"


def usage() -> str:
    """The help text: a line for each command, by what a user does."""
    lines = [
        line
        for title, commands in GROUPS.items()
        for line in (
            f"{title}:",
            *(f"  {f'{one.name} {one.takes}':<20}{one.does}" for one in commands),
        )
    ]
    commands = "\n".join(lines)
    return f"""usage: ranksweep COMMAND ...

{commands}

DIR is a sweep's folder or URI, for example results/window_stride/python-docs.
COMMAND --help describes a command; --version prints the version."""


if __name__ == "__main__":
    sys.exit(script())
