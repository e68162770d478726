"""Exceptions with a message for the user."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

_LONG_WORD = re.compile(r"\S{300,}")  # longer than most paths
_SHOWN = 80
_LISTED = 12
"""Of more names a message has the nearest five."""
_LISTINGS = {
    "setting": "settings",
    "model": "models",
    "collection": "collections",
    "command": "--help",
}
"""{kind of name: the command of `ranksweep` that prints them all}"""


class BadInput(ValueError):
    """Input that breaks a rule: the message states the rule, the value and the known choices. Words
    longer than a path are shortened.

    Command lines print the message alone and exit with 2; nothing has been launched by then.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_LONG_WORD.sub(lambda word: _shortened(word[0]), message))


class Diverged(RuntimeError):
    """A loss or score is NaN or infinite; the trial is recorded, never dropped."""


OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What PyTorch's allocator, the CUDA runtime, NCCL, cuBLAS and cuDNN say of a GPU without room."""


class OutOfMemory(RuntimeError):
    """The smallest possible batch does not fit the GPU; another attempt would fail as well."""


def shown(value: object) -> str:
    """What was found, on one line however long or strange it is."""
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}...{text[-half:]}"


def unknown(
    kind: str, name: str, known: Iterable[str], aliases: Mapping[str, Sequence[str]] | None = None
) -> BadInput:
    """The error for a name that is in no registry, with the nearest known name first. `aliases` are
    names of other tools and what they are called here. Of a long list it has the nearest names, and
    the command that lists all."""
    known = list(known)
    choices = sorted(known)
    leaf = _plain(name.rpartition(".")[2])
    if called := (aliases or {}).get(leaf):
        hint = f": use {' and '.join(called)}"
    else:
        near = nearest(name, known, 1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
    if len(choices) <= _LISTED:
        return BadInput(f"unknown {kind} {shown(name)}{hint}; known: {', '.join(choices)}")
    near = [] if called else nearest(name, known)
    words = f"; nearest: {', '.join(near)}" if near else ""
    listing = _LISTINGS.get(kind)
    everything = f"`ranksweep {listing}` lists all" if listing else "there are"
    return BadInput(f"unknown {kind} {shown(name)}{hint}{words}; {everything} {len(choices)}")


def nearest(name: str, known: Iterable[str], number: int = 5, cutoff: float = 0.0) -> list[str]:
    """The known names most like `name`, whatever their case; the part behind a point counts as the
    whole: `window` is like `chunking.window`."""
    choices = list(known)
    spelled = {_plain(choice.rpartition(".")[2]): choice for choice in reversed(choices)}
    spelled |= {_plain(choice): choice for choice in choices}
    near = get_close_matches(_plain(name[:_SHOWN]), spelled, n=2 * number, cutoff=cutoff)
    return list(dict.fromkeys(spelled[one] for one in near))[:number]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
