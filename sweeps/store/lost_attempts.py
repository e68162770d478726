"""The attempts of a sweep's trials that ended without a result, counted for people."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

WORDS = {
    "process died": "worker process died",
    "host memory": "out of host memory",
    "device memory": "out of device memory",
    "device": "device broke",
    "storage": "storage away",
    "error": "error of the trial itself",
}
"""A person's words for the kinds of `failures.parquet`; the others are words already."""
NOT_LOST = ("done", "collapsed", "stopped", "running")  # such a trial's last attempt


def lost_by_kind(
    trials: Iterable[Mapping[str, Any]], failures: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """How many attempts were lost, by kind in words, the most frequent first; of the rows of the
    ledger's two tables. What no row tells of was interrupted: the command ended, or all of Tune."""
    recorded: Counter[tuple[str, int]] = Counter()
    kinds: Counter[str] = Counter()
    for failure in failures:
        recorded[failure["cell"], failure["seed"]] += 1
        kinds[in_words(failure["kind"])] += 1
    for trial in trials:
        diverged = trial["status"] == "diverged"
        kinds["diverged"] += diverged
        lost = int(trial["attempts"]) - (diverged or trial["status"] in NOT_LOST)
        kinds["interrupted"] += max(0, lost - recorded[trial["cell"], trial["seed"]])
    return {kind: number for kind, number in kinds.most_common() if number}


def in_words(kind: str) -> str:
    """`out of host memory` for `host memory`."""
    return WORDS.get(kind, kind)


def counted(kinds: Mapping[str, int]) -> str:
    """`node lost (2), diverged (1)`."""
    return ", ".join(f"{kind} ({number})" for kind, number in kinds.items())
