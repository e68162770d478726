"""The report's analysis of a third party's systems."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.findings.analysis import Analysis, analyse
from sweeps.findings.unjudged import with_unjudged
from sweeps.store.test_options import USUAL, TestOptions
from sweeps.systems.runs import Judgments, RunSystems, Systems, run_systems


@dataclass(frozen=True)
class RunComparison(RunSystems):
    """Systems given as runs or values, and the analysis of their columns."""

    analysis: Analysis


def compare_runs(
    systems: Systems,
    qrels: Judgments | Mapping[str, Judgments] | None = None,
    tests: TestOptions = USUAL,
    **options: Any,
) -> RunComparison:
    """Test every system against its baselines; `options` are those of `run_systems`."""
    found = run_systems(systems, qrels, tests, **options)
    return RunComparison(**vars(found), analysis=with_unjudged(analyse(found.sweep)))
