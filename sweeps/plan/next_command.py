"""The command that follows from another one: a command of ours, or a sweep's with other flags."""

import argparse
import shlex
from collections.abc import Iterable, Sequence

from rank_core.settings.config import setting_types
from sweeps.plan.command_line import program
from sweeps.plan.flags import FLAGS, MODES, NOT_CONFIRMED, SEEDS


def ours(*words: str) -> str:
    """A command of this program as it runs in the reader's shell."""
    return shlex.join([*program(), *words])


def changed(command: str, *, without: Iterable[str] = (), add: Sequence[str] = ()) -> str:
    """A sweep's command without some flags (`num_seeds`) and with more words."""
    return shlex.join([*_without(shlex.split(command), without), *add])


def confirming(command: str, *, add: Sequence[str] = ()) -> str:
    """The command that confirms a sweep: without the settings and flags of its cells, which the
    finished sweep has."""
    gone = {*NOT_CONFIRMED, *SEEDS, *MODES}
    kept, last = list[str](), ""
    collection = list[str]()
    for word in _without(shlex.split(command), gone):
        name, equals, value = word.partition("=")
        is_setting = equals and name in setting_types() and last != "--fields"
        if is_setting and name == "collection":
            collection = ["--collection", value]
        kept += [] if is_setting else [word]
        last = word
    return shlex.join([*kept, *collection, "--confirm", *add])


def seeded(command: str, seeds: Sequence[int], number: int) -> str:
    """The command with more seeds, those that it has among them."""
    more = [*seeds, *(seed for seed in range(1, number + max(seeds) + 1) if seed not in seeds)]
    plain = more[:number] == list(range(1, number + 1))
    listed = ",".join(map(str, more[:number]))
    return changed(
        command, without=SEEDS,
        add=["--num-seeds", str(number)] if plain else ["--seeds", listed],
    )  # fmt: skip


def resumed(command: str, *, stopped: bool = False) -> str:
    """The command that runs the missing trials; after a budget's end with twice the hours."""
    if not stopped:
        return command
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--max-gpu-hours", type=float)
    given, words = parser.parse_known_args(shlex.split(command))
    if given.max_gpu_hours is None:
        return command
    return shlex.join([*words, "--max-gpu-hours", f"{2 * given.max_gpu_hours:g}"])


def _without(words: Sequence[str], names: Iterable[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in names:
        FLAGS[name].add_to(parser)
    return parser.parse_known_args(words)[1]
