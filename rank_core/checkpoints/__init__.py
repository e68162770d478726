"""Checkpoints that a trial resumes from, and weights that other trials start from."""

from dataclasses import dataclass

COST_SHARE = 0.02  # maximum share of a trial's time in which it waits for checkpoints
UPLOAD_SHARE = 0.2  # maximum share of a trial's time in which one is on its way to the storage


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

    def lost_seconds(self, num_bytes: int, rate: float, trials: int) -> float:
        """The seconds of work that the loss of a node costs one of its trials on average: `trials`
        share a storage of `rate` bytes per second."""
        upload = num_bytes / rate
        interval = max(self.interval(0.0), trials * upload)
        return upload + interval / 2
