"""docs/commands.md from the parsers of the commands: `make docs` runs it."""

import argparse
from collections.abc import Iterator
from unittest.mock import patch

from sweeps.__main__ import COMMANDS, main

HEAD = """# Commands

Every command and flag, made by `make docs` from the parsers; `ranksweep COMMAND --help` prints the
same. DIR is a folder or URI such as `results/window_stride/python-docs`.
[Exit codes](troubleshooting.md#exit-codes).
"""


class _Parsed(BaseException):
    """Ends a command as soon as it has its parser."""


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser with which a command reads its words."""

    def stop(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _Parsed(parser)

    words = [command, "window_stride"] if command == "run" else [command]
    names = ("parse_args", "parse_known_args", "parse_intermixed_args")
    with patch.multiple(argparse.ArgumentParser, **dict.fromkeys(names, stop)):
        try:
            main(words)
        except _Parsed as parsed:
            return parsed.args[0]
    raise AssertionError(f"{command} has no parser")


def commands_page() -> str:
    """The page: a part for each command, its flags by group."""
    return "\n".join([HEAD, *(line for name in COMMANDS for line in _part(name))])


def _part(name: str) -> Iterator[str]:
    does = COMMANDS[name][2]
    yield f"## {name}\n\n{does[:1].upper()}{does[1:]}.\n"
    for group in parser_of(name)._action_groups:
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
