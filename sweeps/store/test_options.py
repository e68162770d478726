"""How a table is tested: one record for commands, Python and the report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict

from rank_core.stats.corrections import MAX_T

MEASURE, TABLE = CORRECT_OVER = ("measure", "table")
"""What p is corrected over: the comparisons of a measure with a baseline, or all of a table."""


@dataclass(frozen=True)
class TestOptions:
    """How a table is tested."""

    __test__: ClassVar[bool] = False  # pytest takes classes of this name for tests

    alpha: float = 0.05  # intervals have the level 1 - alpha
    correction: str = MAX_T  # of `CORRECTION_NAMES`
    correct_over: str = MEASURE  # of `CORRECT_OVER`
    margin: float = 0.01  # a difference up to this size counts as practically equal
    paired_seeds: bool = False  # seed i of every system shares its randomness
    separate_runs: bool = False  # systems were trained on each of several query sets
    ties: str | None = None  # the order of equal scores of runs; None: as trec_eval has it
    clusters: str | Mapping[str, str] = ""
    """Clusters of queries: a file, auto, group, or {query_id: cluster}; "" without any."""


USUAL = TestOptions()


class TestWords(TypedDict, total=False):
    """The same options as the keywords of a function."""

    alpha: float
    correction: str
    correct_over: str
    margin: float
    paired_seeds: bool
    separate_runs: bool
    ties: str | None
    clusters: str | Mapping[str, str]
