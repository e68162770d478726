"""Checkpoints that a trial resumes from, and weights that other trials start from."""

from dataclasses import dataclass

COST_SHARE = 0.02  # maximum share of a trial's time in which it waits for checkpoints
UPLOAD_SHARE = 0.2  # maximum share of a trial's time in which one is on its way to the storage
STRETCH = 0.5, 1.5
"""An interval is stretched by a random factor between these, so that trials that begin together do
not upload together."""


@dataclass(frozen=True)
class Cadence:
    """The frequency of checkpoints. A trial shorter than `minutes` has none. Slow checkpoints, of a
    large model, are less frequent: a trial waits for them at most `COST_SHARE` of its time, and
    loads the storage at most `UPLOAD_SHARE`."""

    minutes: float = 1.0
    steps: int = 0  # optimizer steps between checkpoints, instead of time; 0: by time
    quota_bytes: int = 0  # for all trials in the parent folder; 0: no quota

    def interval(self, cost: float, upload: float = 0.0) -> float:
        """Seconds between two checkpoints, of which the last one took `cost` of the trial and
        `upload` on its way."""
        return max(60 * self.minutes, cost / COST_SHARE, upload / UPLOAD_SHARE)

    def lost_seconds(self, num_bytes: int, rate: float, trials: int, nodes: int) -> float:
        """The mean seconds of work that a trial loses with its node: upload + interval / 2 * 13/12.

        `trials` on some `nodes` share a storage of `rate` bytes per second. One trial of a node
        uploads at a time. `load` is the share of time in which a node uploads: at load 1 all nodes
        share the storage all the time. 13/12 comes from the random stretch of intervals."""
        alone, least = num_bytes / rate, 60 * self.minutes
        others = (nodes - 1) / nodes
        load = trials * alone / max(least, trials * alone, 1e-9)
        # The second where uploads make checkpoints rarer, which lowers the load.
        upload = min(alone / (1 - load * others), alone * (1 + UPLOAD_SHARE * trials * others))
        interval = max(self.interval(0.0, upload), trials * alone)
        low, high = STRETCH
        return upload + interval / 2 * (1 + (high - low) ** 2 / 12)
