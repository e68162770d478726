"""`ranksweep prepare`: the inputs of a sweep, made ahead of it on every node."""

import time
from collections.abc import Sequence

from rank_core.cache import cache_root
from sweeps.commands.doctor.examination import config_of
from sweeps.driver.prepare import prepare_machines
from sweeps.plan.command_line import Parser
from sweeps.plan.terminal import say


def main(argv: Sequence[str]) -> int:
    """Make the collection, its tokens and the rows of its training data, once, ahead of a sweep: on
    every node of the Ray cluster, or on this machine. What is there already is not made again, and
    what was killed resumes. A sweep does the same by itself before it takes a GPU."""
    parser = Parser("ranksweep prepare", main.__doc__)
    add = parser.add_argument
    add("--collection", metavar="NAME|DIR", help="default python-docs")
    add("--fields", metavar="THEIRS=OURS,...", help="of a folder's files: id=doc_id,body=text")
    add("--backbone", metavar="ID|DIR", help="default tiny")
    add("settings", nargs="*", metavar="section.setting=value", help="such as training.depth=50")
    config = config_of(parser.parse_intermixed_args(list(argv)))
    start = time.monotonic()
    prepare_machines(config)
    say(
        f"prepared    {config.collection} for {config.model.backbone} in {cache_root()}, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 0
