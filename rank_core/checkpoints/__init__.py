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
        """The seconds of work that the loss of a node costs one of its trials on average: `trials`
        on some `nodes` share a storage of `rate` bytes per second, and one of a node uploads at a
        time. An upload in units of what it takes alone is 1 / (1 - load * others / nodes): all
        nodes upload all the time where the storage is the limit. The loss is an upload and half an
        interval, longer by the variance of its random stretch."""
        alone, least = num_bytes / rate, 60 * self.minutes
        others = (nodes - 1) / nodes
        load = trials * alone / max(least, trials * alone, 1e-9)
        # The second where uploads make checkpoints rarer, which lowers the load.
        upload = min(alone / (1 - load * others), alone * (1 + UPLOAD_SHARE * trials * others))
        interval = max(self.interval(0.0, upload), trials * alone)
        low, high = STRETCH
        return upload + interval / 2 * (1 + (high - low) ** 2 / 12)
