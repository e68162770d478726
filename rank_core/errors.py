"""Exceptions and their messages to users."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from rank_core.secrets import redact_text

_LONG_WORD = re.compile(r"\S{300,}")  # longer than most paths
_SHOWN = 80
NEAR = 0.6
"""The least similarity of a name that is offered for another one."""
_LISTED = 12
"""Longer lists are cut to at most five names that are near."""
_LISTINGS = {
    "setting": "settings",
    "model": "models",
    "collection": "collections",
    "command": "--help",
    "sweep": "sweeps",
}
"""{kind of name: the `ranksweep` command that lists them}"""


class BadInput(ValueError):
    """Invalid input: the message states the rule, the value and the known choices, without secrets
    and with overlong words shortened.

    Commands print the message alone and exit with code 2; nothing has been launched by then.

    Examples:
        >>> import ranksweep
        >>> try:
        ...     ranksweep.TrialConfig().override({"chunking.windw": 75})
        ... except ranksweep.BadInput as error:
        ...     print(error)
        unknown setting 'chunking.windw'; did you mean chunking.window? ...
    """

    def __init__(self, message: str) -> None:
        super().__init__(_LONG_WORD.sub(lambda word: _shortened(word[0]), redact_text(message)))


class Diverged(RuntimeError):
    """A loss or score is NaN or infinite; the trial is recorded as diverged."""


OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Phrases of PyTorch, the CUDA runtime, NCCL, cuBLAS and cuDNN for a GPU without free memory."""


class OutOfMemory(RuntimeError):
    """The smallest possible batch does not fit on the GPU; a retry would fail as well."""


def shown(value: object) -> str:
    """The representation of a value for a message: one line, shortened."""
    try:
        text = repr(value)
    except Exception:  # of an object of anybody
        text = object.__repr__(value)
    return _shortened(" ".join(text.split()) if "\n" in text else text)


def _shortened(text: str) -> str:
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}...{text[-half:]}"


def unknown(
    kind: str, name: str, known: Iterable[str], aliases: Mapping[str, Sequence[str]] | None = None
) -> BadInput:
    """The error for a name that is not known, with the nearest known name first. `aliases` maps
    names in other tools to the names here. A long list is cut to the names that are near, if any,
    and the command that lists all."""
    known = list(known)
    choices = sorted(known)
    leaf = _plain(name.rpartition(".")[2])
    if renamed := (aliases or {}).get(leaf):
        hint = f": use {' and '.join(renamed)}"
    else:
        near = nearest(name, known, 1, cutoff=NEAR)
        hint = f"; did you mean {near[0]}?" if near else ""
    if len(choices) <= _LISTED:
        known_text = " Known" if hint.endswith("?") else "; known"
        return BadInput(f"unknown {kind} {shown(name)}{hint}{known_text}: {', '.join(choices)}")
    near = [] if renamed else nearest(name, known, cutoff=NEAR)
    others = f" Nearest: {', '.join(near)}" if len(near) > 1 else ""
    listing = _LISTINGS.get(kind)
    everything = f"`ranksweep {listing}` lists all" if listing else "there are"
    end = " " if hint.endswith("?") and not others else "; "
    return BadInput(f"unknown {kind} {shown(name)}{hint}{others}{end}{everything} {len(choices)}")


def not_installed(packages: str, extra: str) -> BadInput:
    """The error for packages of an extra of ranksweep, which no package index has yet."""
    return BadInput(
        f"{packages} is not installed; in a checkout of ranksweep: pip install '.[{extra}]'"
    )


def nearest(name: str, known: Iterable[str], number: int = 5, cutoff: float = 0.0) -> list[str]:
    """The known names most similar to `name`, ignoring case. The part after the last point also
    counts as a name: `window` is similar to `chunking.window`."""
    choices = list(known)
    spelled = {_plain(choice.rpartition(".")[2]): choice for choice in reversed(choices)}
    spelled |= {_plain(choice): choice for choice in choices}
    near = get_close_matches(_plain(name[:_SHOWN]), spelled, n=2 * number, cutoff=cutoff)
    return list(dict.fromkeys(spelled[spelling] for spelling in near))[:number]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
