"""The log of accesses to test values: a line whenever a report opens trials not yet opened."""

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import atomic_write, read_file
from rank_core.parsing import parsed_json
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.terminal.text import warn

ACCESS_FILE = "test_access.jsonl"


@dataclass(frozen=True)
class Access:
    """The first access to the test values of one set of trials."""

    time: str  # UTC, ISO 8601
    command: str
    split: str
    num_cells: int
    num_trials: int
    seeds: list[int]
    hash: str  # of split, measures and trials; a cell's name is the hash of its settings


def number_of_look(accesses: Sequence[Access], split: str, seeds: Collection[int]) -> int:
    """Which look at a sweep a report over these seeds is: one more than the smaller sets of seeds
    whose values on the split were read before. Fewer than three seeds decide nothing, so reading
    them is no look."""
    smaller = {
        frozenset(one.seeds)
        for one in accesses
        if one.split == split and len(one.seeds) >= LEAST_SEEDS and {*one.seeds} < {*seeds}
    }
    return 1 + len(smaller)


def write_accesses(path: Path, accesses: Sequence[Access]) -> None:
    """Write the record, a line an access."""
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in accesses))


def read_accesses(path: Path) -> list[Access]:
    """The recorded accesses, oldest first; none where the file is missing. A half-written last
    line counts as none."""
    content, _, torn = (read_file(path) if os.path.lexists(path) else b"").rpartition(b"\n")
    if torn:
        warn(f"{path}: its last line is cut and counts as none")
    try:
        return [Access(**parsed_json(line)) for line in content.splitlines()]
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: must have an access a line as written; {error}") from None
