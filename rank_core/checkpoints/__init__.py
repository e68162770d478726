"""Checkpoints that a trial resumes from, and weights that another trial starts from."""

from dataclasses import dataclass

COST_SHARE = 0.02  # of a trial's time at most, from a copy's beginning until it is written


@dataclass(frozen=True)
class Cadence:
    """The frequency of checkpoints. A trial shorter than `minutes` has none; a large model, whose
    checkpoints take long, has fewer, so that they cost at most `COST_SHARE` of the time."""

    minutes: float = 1.0
    steps: int = 0  # optimizer steps of a model between checkpoints, whatever the time; 0: by time
    quota_bytes: int = 0  # of all trials that share the parent folder; 0: what the disk holds
