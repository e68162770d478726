"""The flags in a `sweep.json` of ranksweep 0.3, which has its command as text alone."""

import argparse
import shlex
from typing import Any, NoReturn

_SWITCHES = ("--dry-run", "--prepare", "--smoke-test", "--confirm")
_WHOLE = (
    "--num-seeds --num-configs --search-seed --asha-eta --asha-min-epochs --num-workers "
    "--cpus-per-worker"
).split()
_NUMBERS = (
    "--race-delta --alpha --weights-gib --gpus-per-worker --checkpoint-minutes --checkpoint-gib "
    "--max-gpu-hours"
).split()
_TEXTS = (
    "--collection --fields --backbone --model --profile --init-from --seeds --search --storage "
    "--tracking-uri --experiment-prefix --interpolate --engine"
).split()
"""All flags of 0.3 by their types; what later versions changed does not matter here."""

NOT_INTERPOLATED = {
    "bm25": "is the first stage",
    "random": "is chance",
    "birch": "is interpolated with the first stage by its own last step",
}
"""{model: why 0.3 did not interpolate it}; later files say it of each cell."""


class _Unreadable(Exception):
    """The error of a command that is none of a sweep."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise; argparse would end the process."""
        raise _Unreadable(message)


def asked_in(command: str) -> dict[str, Any]:
    """The fields `start`, `flags`, `settings` and `smoke_test` of a command line of 0.3, which took
    abbreviations. Of words that are no command of a sweep, all are the start."""
    parser = _Parser(add_help=False)
    for flag in _SWITCHES:
        parser.add_argument(flag, default=argparse.SUPPRESS, action="store_true")
    for flag in (*_WHOLE, *_NUMBERS, *_TEXTS):
        kind = int if flag in _WHOLE else float if flag in _NUMBERS else str
        parser.add_argument(flag, default=argparse.SUPPRESS, type=kind)
    try:
        words = shlex.split(command)
        start = _num_start(words)
        asked, rest = parser.parse_known_args(words[start:])
    except (ValueError, _Unreadable):
        return {"start": [command] if command else [], "smoke_test": False}
    settings = (word.partition("=") for word in rest if "=" in word)
    return {
        "start": words[:start],
        "flags": vars(asked),
        "settings": {name: text for name, _, text in settings},
        "smoke_test": "smoke_test" in vars(asked),
    }


def _num_start(words: list[str]) -> int:
    """The number of words before the flags: those up to `run NAME`, a script or `-m MODULE`."""
    for place, word in enumerate(words):
        if word == "run" or (word == "-m" and words[place + 1 : place + 2] != ["sweeps"]):
            return place + 2
        if word.endswith(".py"):
            return place + 1
    flags = (place for place, word in enumerate(words) if word.startswith("--") or "=" in word)
    return next(flags, len(words))
