"""The exceptions that a user is meant to read."""

from collections.abc import Iterable
from difflib import get_close_matches


class BadInput(ValueError):
    """Input that breaks a rule: the message states the rule, what was found and the known choices.

    Command lines print the message alone and exit with 2; nothing has been launched by then.
    """


class Diverged(RuntimeError):
    """Training left the numbers (NaN or infinite loss); the trial is recorded, never dropped."""


class OutOfMemory(RuntimeError):
    """The least that can be computed at once does not fit the GPU; another try would not either."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """The error for a name that is in no registry, with the nearest known name first."""
    choices = sorted(known)
    near = get_close_matches(name, choices, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return BadInput(f"unknown {kind} {name!r}{hint}; known: {', '.join(choices)}")
