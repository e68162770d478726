"""The number of workers of a trial, or the range of an elastic group."""

import re

from rank_core.errors import BadInput, shown
from sweeps.plan.flags import MOST_WORKERS


def group_size(text: str) -> tuple[int, int]:
    """The fewest and the most workers of a trial, `2-8`; (0, N) for `N`, which is no range. Raises
    `BadInput`."""
    found = re.fullmatch(r"(?:([0-9]{1,9})-)?([0-9]{1,9})", text, re.ASCII)
    least, most = (int(found[1] or found[2]), int(found[2])) if found else (0, 0)
    if not 1 <= least <= most <= MOST_WORKERS:
        raise BadInput(
            f"--num-workers must be a whole number from 1 to {MOST_WORKERS:,} or a rising range of "
            f"them such as 1-4, got {shown(text)}"
        )
    return (least if least < most else 0), most
