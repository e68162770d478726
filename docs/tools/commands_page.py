"""docs/commands.md from the parsers of the commands: `make docs` runs it."""

import argparse
from collections.abc import Iterator

from sweeps.commands.known import COMMANDS, Command

HEAD = """# Commands

This page lists every command and flag; `make docs` writes it from the parsers, and
`ranksweep COMMAND --help` prints the same. DIR is a folder or URI such as
`results/window_stride/python-docs`. See also the [exit codes](troubleshooting.md#exit-codes).
"""


def commands_page() -> str:
    """The page: a part for each command, its flags by group."""
    return "\n".join([HEAD, *(line for command in COMMANDS.values() for line in _part(command))])


def _part(command: Command) -> Iterator[str]:
    yield f"## {command.name}\n\n{command.does[:1].upper()}{command.does[1:]}.\n"
    for group in command.parser()._action_groups:
        actions = [action for action in group._group_actions if action.dest != "help"]
        if actions:
            yield f"| {group.title or 'options'} | meaning |\n|---|---|"
            yield "".join(f"| `{_form(a)}` | {_help(a)} |\n" for a in actions)


def _form(action: argparse.Action) -> str:
    """The argument as it is typed."""
    takes = action.metavar or "|".join(action.choices or ()) or action.dest.upper()
    takes = takes if isinstance(takes, str) else " ".join(takes)
    words = [*action.option_strings[:1], *([takes] if action.nargs != 0 else [])]
    return " ".join(words).replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    return ((action.help or "") % vars(action)).replace("|", "\\|")


if __name__ == "__main__":
    print(commands_page(), end="")
