"""Checkpoints that a trial resumes from, and weights that other trials start from."""

from dataclasses import dataclass

COST_SHARE = 0.02  # maximum share of a trial's time spent on checkpoints


@dataclass(frozen=True)
class Cadence:
    """The frequency of checkpoints. A trial shorter than `minutes` has none. Slow checkpoints, of a
    large model, are less frequent, so that they take at most `COST_SHARE` of the time."""

    minutes: float = 1.0
    steps: int = 0  # optimizer steps between checkpoints, instead of time; 0: by time
    quota_bytes: int = 0  # for all trials in the parent folder; 0: no quota
