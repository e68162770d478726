"""A sweep on several collections, one after another, then their joint table."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any

from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from sweeps.commands.compare.command import main as compare
from sweeps.plan.experiment import Experiment
from sweeps.plan.options import parse
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import sweep_on


def run_on_each(
    experiment: Experiment, argv: Sequence[str], run: Callable[..., int], **words: Any
) -> int:
    """The exit code of the first sweep that does not end well, or of the table. All collections are
    loaded before any trial starts; `words` are those of `run`."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--collection", action="append")
    given, rest = parser.parse_known_args(argv)
    if twice := [name for name in given.collection if given.collection.count(name) > 1]:
        raise BadInput(f"--collection names a collection once, got {twice[0]!r} twice")
    own = [[*rest, "--collection", name] for name in given.collection]
    preset = words.get("preset")
    options = [parse(one, prog=words["prog"], description="", preset=preset) for one in own]
    loaded = [load_collection(one.collection or "") for one in options]
    for one in own:
        if code := run(experiment, one, **words):
            return code
    if options[0].dry_run or options[0].prepare:
        return 0
    sweeps = Records(Storage(options[0].storage), experiment.name)
    return compare([sweep_on(sweeps, collection).uri for collection in loaded])
