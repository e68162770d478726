"""Lost attempts: how they are counted."""

from collections.abc import Mapping
from typing import Any

import pytest

from sweeps.store.failures import lost_by_kind


def trial(seed: int, status: str, attempts: int) -> dict[str, Any]:
    return {"cell": "c", "seed": seed, "status": status, "attempts": attempts}


def failure(seed: int, kind: str) -> dict[str, Any]:
    return {"cell": "c", "seed": seed, "kind": kind}


@pytest.mark.parametrize(
    ("status", "attempts", "kinds", "expected"),
    [
        ("done", 1, [], {}),
        ("done", 3, ["node lost", "node lost"], {"node lost": 2}),
        ("done", 3, ["host memory"], {"out of host memory": 1, "interrupted": 1}),
        ("failed", 2, ["process died", "error"], None),
        ("diverged", 2, ["device"], {"diverged": 1, "device broke": 1}),
        ("running", 1, [], {}),
        ("planned", 2, ["storage"], {"storage away": 1, "interrupted": 1}),
        ("interrupted", 1, [], {"interrupted": 1}),
        ("stopped", 1, [], {}),
    ],
)
def test_every_attempt_but_a_last_good_one_is_lost_by_some_kind(
    status: str, attempts: int, kinds: list[str], expected: Mapping[str, int] | None
) -> None:
    found = lost_by_kind([trial(1, status, attempts)], [failure(1, kind) for kind in kinds])
    if expected is not None:
        assert found == expected
    good = status in ("done", "collapsed", "stopped", "running")
    assert sum(found.values()) == attempts - good
