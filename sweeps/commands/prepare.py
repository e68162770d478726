"""`ranksweep prepare`: the inputs of a sweep, prepared in advance on every node."""

import time
from collections.abc import Sequence

from rank_core.cache import cache_root
from sweeps.commands.doctor.examination import config_of
from sweeps.driver.prepare import prepare_machines
from sweeps.plan.command_line import Parser
from sweeps.plan.terminal import say


def main(argv: Sequence[str]) -> int:
    """Prepare a sweep's inputs (documents, tokens, candidates, training rows) in advance, on every
    node of the Ray cluster or on this machine. Finished parts are kept, so a killed preparation
    resumes. A sweep does the same before it reserves a GPU."""
    parser = Parser("ranksweep prepare", main.__doc__)
    add = parser.add_argument
    add("--collection", metavar="NAME|DIR", help="collection (default: python-docs)")
    add("--fields", metavar="THEIRS=OURS,...", help="field names of a folder: id=doc_id,body=text")
    add("--backbone", metavar="ID|DIR", help="encoder (default: tiny)")
    add(
        "settings",
        nargs="*",
        metavar="section.setting=value",
        help="settings, such as training.depth=50",
    )
    config = config_of(parser.parse_intermixed_args(list(argv)))
    start = time.monotonic()
    prepare_machines(config)
    say(
        f"prepared    {config.collection} for {config.model.backbone} in {cache_root()}, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 0
