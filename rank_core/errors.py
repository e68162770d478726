"""Exceptions with a message for the user."""

from collections.abc import Iterable
from difflib import get_close_matches


class BadInput(ValueError):
    """Input that breaks a rule: the message states the rule, the value and the known choices.

    Command lines print the message alone and exit with 2; nothing has been launched by then.
    """


class Diverged(RuntimeError):
    """A loss or score is NaN or infinite; the trial is recorded, never dropped."""


class OutOfMemory(RuntimeError):
    """The smallest possible batch does not fit the GPU; another attempt would fail as well."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """The error for a name that is in no registry, with the nearest known name first."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return BadInput(f"unknown {kind} {name!r}{hint}; known: {', '.join(choices)}")
