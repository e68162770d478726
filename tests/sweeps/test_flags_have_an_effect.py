"""Every flag of every command changes something or is refused: what a flag needs is declared beside
it, and each is given here with and without that."""

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rank_core.errors import BadInput
from sweeps.commands.known import COMMANDS
from sweeps.plan.flags import FLAGS
from sweeps.plan.options import parse
from sweeps.terminal.command_line import Need, Parser


def parser_of(name: str) -> Parser:
    """The parser of a command, or of a sweep with a command line of its own (`run scaling`)."""
    if name.startswith("run "):
        own: Parser = import_module(f"sweeps.{name.removeprefix('run ')}").parser()
        return own
    return COMMANDS[name].parser()


NAMES = [*COMMANDS, "run scaling", "run positional_bias"]
PARSERS = {name: parser_of(name) for name in NAMES}


def flags_of(parser: Parser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if action.option_strings and action.dest != "help":
            yield action


def words_of(action: argparse.Action, value: Any = None) -> list[str]:
    """A flag or an argument as it is typed, with a value that its type takes."""
    if isinstance(action, argparse._StoreTrueAction):
        return [*action.option_strings]
    if value is None:
        value = (
            next(iter(action.choices))
            if action.choices
            else {int: 1, float: 0.5}.get(action.type, "x")
        )
    return [*action.option_strings[:1], str(value)]


def required(parser: Parser, *but: str) -> list[str]:
    """The words without which the command is refused anyway."""
    words: list[str] = []
    for action in parser._actions:
        needed = action.required and action.nargs not in ("*", "?")
        if needed and action.dest not in but:
            words += words_of(action)
    return words


def given(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    read: Any = parser.parse_intermixed_args if "settings" in dests(parser) else parser.parse_args
    namespace: argparse.Namespace = read([*words])
    return namespace


def dests(parser: Parser) -> dict[str, argparse.Action]:
    return {action.dest: action for action in parser._actions}


def fulfilled(parser: Parser, action: argparse.Action, *, but: Need | None = None) -> list[str]:
    """The words that give a flag what it needs, except for one need."""
    words: list[str] = []
    for need in vars(action).get("needs", ()):
        if need.without == (need is but):
            words += words_of(dests(parser)[need.name], need.values[0] if need.values else None)
    return words


NEEDS = [
    pytest.param(name, action, need, id=f"{name} {action.option_strings[0]} {need.name}")
    for name, parser in PARSERS.items()
    for action in flags_of(parser)
    for need in vars(action).get("needs", ())
]
EVERY = [
    pytest.param(name, action, id=f"{name} {action.option_strings[0]}")
    for name, parser in PARSERS.items()
    for action in flags_of(parser)
]


@pytest.mark.parametrize(("name", "action", "need"), NEEDS)
def test_a_flag_without_what_it_needs_is_refused_by_name(name, action, need):
    parser, flag = PARSERS[name], words_of(action)
    if need.without:
        words = fulfilled(parser, action, but=need)
    else:
        words = fulfilled(parser, action, but=need)
        if need.values:  # another value
            own = dests(parser)[need.name]
            words += words_of(own, "another") if own.type is not float else []
    own = [*required(parser, *[need.name] * (need.name in words)), *words, *flag]
    with pytest.raises(BadInput, match=f"{action.option_strings[0]}' (needs|has no effect with)"):
        given(parser, own)


@pytest.mark.parametrize(("name", "action"), EVERY)
def test_a_flag_with_what_it_needs_is_accepted(name, action):
    parser = PARSERS[name]
    words = [*required(parser, action.dest), *fulfilled(parser, action), *words_of(action)]
    assert action.dest in vars(given(parser, words))["given"]


@pytest.mark.parametrize(("name", "action"), EVERY)
def test_a_flag_is_given_once_whole_and_with_a_value(name, action):
    parser, flag = PARSERS[name], action.option_strings[0]
    words = [*required(parser, action.dest), *fulfilled(parser, action)]
    with pytest.raises(BadInput, match="twice"):
        given(parser, [*words, *words_of(action), *words_of(action)])
    if flag[:-1] not in parser._option_string_actions:
        with pytest.raises(BadInput, match=f"unknown flag '{flag[:-1]}'"):
            given(parser, [*words, *words_of(action), flag[:-1], *words_of(action)[1:]])
    if not isinstance(action, argparse._StoreTrueAction) and not vars(action).get("may_be_empty"):
        with pytest.raises(BadInput, match=flag):
            given(parser, [*words, flag, ""])


def test_what_a_flag_needs_of_the_settings_is_known_to_the_plan(plan_of):
    for flag in FLAGS.values():
        for setting, values in flag.settings.items():
            other = {"best": "none", 0: "5"}[values[0]]
            with pytest.raises(BadInput, match=f"{flag.flag} needs {setting}={values[0]}"):
                plan_of(*words_of_flag(flag.flag), f"{setting}={other}")


def words_of_flag(flag: str) -> list[str]:
    return words_of(next(a for a in flags_of(PARSERS["run"]) if flag in a.option_strings))


# What only the values decide, beyond what a parser knows.
REFUSED = [
    (["compare", "a.csv", "b.csv", "--ties", "doc_id"], "--ties doc_id needs a run"),
    (["compare", "a.csv", "b.csv", "--tracking-uri", "x"], "--tracking-uri needs a system"),
    (["compare", "a.csv", "b.csv", "--separate-runs"], "--separate-runs needs several query sets"),
    (["design", "a.csv", "b.csv", "--delta", ".1", "--tracking-uri", "x"], "--tracking-uri needs"),
    (["rerank", "m", "--collection", "c", "--run", "r", "--out", "o", "--depth", "0"], "--depth"),
]


@pytest.mark.parametrize(("words", "law"), REFUSED, ids=lambda own: " ".join(own) if own else "")
def test_a_flag_without_effect_on_these_inputs_is_refused(words, law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a.csv", "b.csv")):
        rows = [f"q{q},nDCG@10,{(q + number) % 7 / 7}" for q in range(20)]
        Path(name).write_text("\n".join(["query_id,measure,value", *rows]) + "\n")
    with pytest.raises(BadInput, match=law):
        COMMANDS[words[0]].run(words[1:])


def test_python_and_files_pass_the_same_checks():
    with pytest.raises(BadInput, match="--race-delta must be a finite number"):
        FLAGS["race_delta"].check(float("nan"))
    with pytest.raises(BadInput, match="'--prepare' has no effect with --dry-run"):
        parse(["--dry-run", "--prepare"], prog="run", description="")
