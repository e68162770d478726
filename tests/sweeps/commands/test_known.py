"""The table of commands: each entry leads to a parser and a function of its own name."""

import inspect
from typing import get_type_hints

import pytest

from sweeps.__main__ import main, usage
from sweeps.commands.known import COMMANDS, GROUPS
from sweeps.terminal.command_line import Parser


def test_the_groups_are_what_a_user_does():
    assert [*GROUPS] == ["begin", "run", "look", "use", "keep"]
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda one: one.name)
def test_an_entry_has_the_parser_of_its_name_and_a_function_from_words_to_a_code(command):
    assert command.parser().prog == f"ranksweep {command.name}"
    assert get_type_hints(command.parser.load())["return"] is Parser
    function = command.run.load()
    assert get_type_hints(function)["return"] is int
    assert [*inspect.signature(function).parameters] == ["argv"]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda one: one.name)
def test_the_help_of_a_command_is_that_of_its_entry(command, capsys):
    assert f"  {command.name} {command.takes}".rstrip() in usage() and command.does in usage()
    if command.name == "run":  # it prints the sweeps, each of which has its flags
        return
    with pytest.raises(SystemExit):
        main([command.name, "--help"])
    assert capsys.readouterr().out == command.parser().format_help()
