"""What the trials of a plan will take: measured rates times what they read, with an interval.

Pure arithmetic; `sweeps.forecast.measure` measures, `sweeps.driver.plan_text` prints.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeps.forecast.microbenchmark import Planned, Rate, Speed
from sweeps.plan.trial_cost import Reads

MODEL_SD = 0.1  # of the log of (real / estimated): what no probe of some seconds can see
TRIAL_SD = 0.05  # at least, of the same from trial to trial
Z = 1.96  # 95 %


@dataclass(frozen=True)
class TrialEstimate:
    """One trial of a cell, before calibration."""

    seconds: float
    sd: float  # of `seconds`, from the spread of the repeated measurements
    tokens: float  # that the encoder reads
    peak_bytes: int
    start: float = 0.0  # of `seconds`, before its first step
    end: float = 0.0  # of `seconds`, after its last epoch: test

    def part(self, share: float, *, ends: bool) -> "TrialEstimate":
        """So much of its epochs, in a process of its own; with the end of the trial or without."""
        once = self.start + self.end * ends
        seconds = once + share * (self.seconds - self.start - self.end)
        return TrialEstimate(
            seconds,
            self.sd * seconds / self.seconds,
            self.tokens * seconds / self.seconds,
            self.peak_bytes,
            self.start,
            self.end * ends,
        )


@dataclass(frozen=True)
class Calibration:
    """How real trials compare with the estimate, in logs: mean and standard error."""

    log_ratio: float
    log_sd: float
    num_trials: int

    def interval(self, amount: float) -> tuple[float, float, float]:
        """(low, middle, high) of an estimated amount of time."""
        middle = amount * math.exp(self.log_ratio)
        factor = math.exp(Z * self.log_sd)
        return middle / factor, middle, middle * factor


def trial_estimate(
    reads: Reads, planned: Planned, speed: Speed, *, num_workers: int = 1
) -> TrialEstimate:
    """A trial's time from what it reads; several workers share the reading evenly."""
    parts = [
        (reads.documents * tokens, rate)
        for tokens, rate in zip(planned.scoring, speed.scoring, strict=True)
    ]
    if reads.groups:
        parts += [
            (reads.groups * tokens, rate)
            for tokens, rate in zip(planned.training, speed.training, strict=True)
        ]
    fixed = speed.start_seconds + reads.evaluations * speed.evaluation_seconds
    last = [
        reads.last_documents * tokens * _mean(rate)
        for tokens, rate in zip(planned.scoring, speed.scoring, strict=True)
    ]
    return TrialEstimate(
        seconds=fixed + sum(tokens * _mean(rate) for tokens, rate in parts) / num_workers,
        # A slow or a fast moment of the machine is one for all batches.
        sd=sum(tokens * _sd(rate) for tokens, rate in parts) / num_workers,
        tokens=sum(tokens * rate.read for tokens, rate in parts),
        peak_bytes=speed.peak_bytes,
        start=speed.start_seconds,
        end=bool(reads.last_documents) * speed.evaluation_seconds + sum(last) / num_workers,
    )


def calibrate(
    trials: Sequence[TrialEstimate], real: Sequence[tuple[TrialEstimate, float]]
) -> Calibration:
    """How far to trust the estimates of `trials`, given finished ones with their real seconds.

    The log of real / estimated has a normal prior around 0, as wide as the spread of the
    measurements and `MODEL_SD`; each finished trial is an observation of it.
    """
    total = sum(trial.seconds for trial in trials)
    spread = sum(trial.sd for trial in trials) / total if total else 0.0
    prior = spread**2 + MODEL_SD**2
    logs = [math.log(seconds / trial.seconds) for trial, seconds in real if seconds > 0]
    if not logs:
        return Calibration(0.0, math.sqrt(prior), 0)
    found = float(np.var(logs, ddof=1)) if len(logs) > 1 else prior
    noise = max(found, TRIAL_SD**2) / len(logs)
    weight = prior / (prior + noise)
    sd = math.sqrt(prior * noise / (prior + noise))
    return Calibration(weight * float(np.mean(logs)), sd, len(logs))


def wall_seconds(seconds: Sequence[float], slots: int) -> float:
    """When the last of the trials ends if each starts, in order, on the first free slot."""
    free = [0.0] * slots
    for duration in seconds:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def gpu_share(peak_bytes: int, device_bytes: int) -> float:
    """The share of a GPU that a trial needs, as 1/n with n whole: what a probe's peak and a tenth
    of the memory for fragments leave room for. 1 where memory was not measured."""
    if not peak_bytes or not device_bytes:
        return 1.0
    return 1 / max(1, int(0.9 * device_bytes / peak_bytes))


def merged(speeds: Sequence[Speed]) -> Speed:
    """The measurements of several processes, side by side, of the same configuration."""
    first = speeds[0]

    def together(name: str) -> tuple[Rate, ...]:
        columns = zip(*(getattr(speed, name) for speed in speeds), strict=True)
        return tuple(Rate(sum((r.seconds for r in rates), ()), rates[0].read) for rates in columns)

    return Speed(
        scoring=together("scoring"),
        training=together("training"),
        start_seconds=max(speed.start_seconds for speed in speeds),
        evaluation_seconds=max(speed.evaluation_seconds for speed in speeds),
        peak_bytes=max(speed.peak_bytes for speed in speeds),
        device_bytes=first.device_bytes,
        device=first.device,
        threads=first.threads,
    )


def same_speed(settings: Mapping[str, object]) -> tuple[object, ...]:
    """Equal for configurations whose tokens cost alike, however many there are."""
    return tuple(value for name, value in sorted(settings.items()) if name not in ONLY_HOW_MUCH)


ONLY_HOW_MUCH = frozenset(
    {
        "seed",
        "chunking.stride",
        "chunking.max_chunks",
        "chunking.overflow",
        "training.max_steps",
        "training.validate_every",
        "training.backbone_learning_rate",
        "training.head_learning_rate",
        "training.aggregator_learning_rate",
        "training.weight_decay",
        "training.warmup",
        "training.margin",
    }
)
"""Settings that leave the time of a token as it is."""


def _mean(rate: Rate) -> float:
    return sum(rate.seconds) / len(rate.seconds)


def _sd(rate: Rate) -> float:
    return float(np.std(rate.seconds, ddof=1))
