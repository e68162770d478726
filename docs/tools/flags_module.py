"""Writes ranksweep/flags.py, the keywords of `run` and `plan`, from the declaration of the flags:
`python -m docs.tools.flags_module > ranksweep/flags.py`."""

import textwrap

from sweeps.plan.flags import FLAGS, Flag

APART = ("collection", "backbone", "seeds")
"""Flags that are arguments of their own."""
OBJECTS = {
    "model": "str | type",
    "search": '"str | BaseSampler"',
    "objective": "str | Sequence[str]",
    "at_most": "str | Mapping[str, float]",
    "cost_weight": "str | Mapping[str, float]",
    "search_from": "str | Sequence[str]",
    "num_workers": "int | str",
}
"""{flag that an object can be given for: its type}."""
HEAD = '''"""The flags of a sweep as keywords, for editors and type checkers. Generated from
sweeps/plan/flags.py: `python -m docs.tools.flags_module > ranksweep/flags.py`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class SweepFlags(TypedDict, total=False):
    """The flags of `ranksweep run SWEEP --help`, by their names in Python."""
'''


def text() -> str:
    """The module."""
    return HEAD + "".join(map(_keyword, (f for n, f in FLAGS.items() if n not in APART)))


def _quoted(word: str) -> str:
    return f'"{word}"'


def _keyword(flag: Flag) -> str:
    kind = flag.kind.__name__
    if flag.choices:
        kind = f"Literal[{', '.join(map(_quoted, flag.choices))}]"
    elif flag.name in OBJECTS:
        kind = OBJECTS[flag.name]
    words = " ".join(flag.help.replace("%(default)s", str(flag.default)).replace(
        "%(default)g", str(flag.default)).split())  # fmt: skip
    lines = textwrap.wrap(words, 88)
    about = "\n    ".join(lines)
    return f'\n    {flag.name}: {kind}\n    """{about}"""\n'


if __name__ == "__main__":
    print(text(), end="")
