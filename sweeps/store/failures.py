"""The kinds of failure that end an attempt of a trial, and the retries that each kind gets."""

import re
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from rank_core.errors import OUT_OF_MEMORY
from sweeps.store.trial_status import USED, TrialStatus

FailureKind = Literal[
    "process died", "node lost", "host memory", "device memory", "device", "storage", "error"
]
LIMITS: dict[FailureKind, int] = {
    "process died": 3,
    "node lost": 30,  # spot machines are lost often, without a fault of the trial
    "host memory": 3,
    "device memory": 0,  # training has already reduced its batches to one example
    "device": 2,  # each in a new process; after that the settings or all devices are faulty
    "storage": 1,
    "error": 0,  # the same settings give the same error
}
"""{kind of failure: retries of a trial by one command}."""

WORDS = {
    "process died": "worker process died",
    "host memory": "out of host memory",
    "device memory": "out of device memory",
    "device": "device broke",
    "storage": "storage away",
    "error": "error of the trial itself",
}
"""Readable names of kinds; the others are readable as they are."""

_DEVICE = re.compile(
    r"AcceleratorError|CUDA (driver |unknown )?error|Triton Error|CU[A-Z]+_STATUS_|NCCL|NVLink"
    r"|\bXid\b|ECC error|GPU is lost|No CUDA GPUs|device-side assert|illegal memory access"
    r"|launch failure",
    re.IGNORECASE,
)
_LONGEST = 300  # characters of an error in a line, or of its cause where that is longer
_TRACEBACK = "Traceback (most recent call last):"
_SENTENCE = re.compile(r"[.!?](?= )")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_ACTOR_FACTS = re.compile(r"(class_name|actor_id|pid|name|namespace|ip):")


def kind_of_reason(reason: str) -> FailureKind:
    """The kind of an error that a trial's own process caught, by the name of the exception."""
    if reason.startswith("OutOfMemory") or any(words in reason for words in OUT_OF_MEMORY):
        return "device memory"
    if reason.startswith("StorageAway"):
        return "storage"
    return "device" if _DEVICE.search(reason) else "error"


def first_line(error: BaseException | None) -> str:
    """An error in a line: of Ray's many lines the last ones name the cause, and of a traceback the
    last one does."""
    if error is None:
        return "unknown"
    text, found, frames = _COLOUR.sub("", str(error)).rpartition(_TRACEBACK)
    if not found:
        text, frames = frames, ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines[1:] if not _ACTOR_FACTS.match(line)]
    raised = [line.strip() for line in frames.splitlines() if line[:1].strip()]
    # What an exception says is its author's; Ray's prose goes on with advice of its own.
    cause = _cut(raised[0], _LONGEST) if raised else _cut("".join(causes[:1]), _LONGEST // 2)
    heading = _cut("".join(lines[:1]), max(_LONGEST - len(cause), _LONGEST // 3))
    return _named(error, f"{heading} {cause}".strip())


def _cut(text: str, room: int) -> str:
    """The sentences of a text that have room, else its first words."""
    if len(text) <= room:
        return text
    whole = [end.end() for end in _SENTENCE.finditer(text) if end.end() <= room]
    return text[: whole[-1]] if whole else f"{text[:room].rpartition(' ')[0] or text[:room]}..."


def reason_of(error: BaseException) -> str:
    """An error that a trial's own process caught, whose first line says something: of an error
    without a message that is its place."""
    if text := str(error).strip():
        return _named(error, text)
    frames = traceback.extract_tb(error.__traceback__)
    return _named(error, f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "")


def _named(error: BaseException, text: str) -> str:
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Failures:
    """The number of failures of a command, which decides on retries."""

    def __init__(self) -> None:
        self._of_trial: Counter[tuple[str, FailureKind]] = Counter()
        self._steps: dict[str, int] = {}

    def count(self, trial: str, kind: FailureKind, step: int = 0) -> bool:
        """Counts a failure; returns True if the trial is retried. A trial that has reached a later
        `step` since it last lost a node gets all of its retries again: machines that live for half
        an hour do not end a trial of a day."""
        if kind == "node lost" and step > self._steps.get(trial, 0):
            self._steps[trial] = step
            del self._of_trial[trial, kind]
        self._of_trial[trial, kind] += 1
        return self._of_trial[trial, kind] <= LIMITS[kind]


def lost_by_kind(
    trials: Iterable[Mapping[str, Any]], failures: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """{kind of failure in words: lost attempts}, the most frequent first, from rows of trials
    and of lost attempts. Other attempts without a result were interrupted."""
    lost_attempts = list(failures)
    recorded = Counter((failure["cell"], failure["seed"]) for failure in lost_attempts)
    kinds = Counter(WORDS.get(failure["kind"], failure["kind"]) for failure in lost_attempts)
    for trial in trials:
        diverged = trial["status"] == TrialStatus.DIVERGED
        kinds["diverged"] += diverged
        good = (*USED, TrialStatus.STOPPED, TrialStatus.RUNNING)  # the last attempt was not lost
        lost = int(trial["attempts"]) - (diverged or trial["status"] in good)
        kinds["interrupted"] += max(0, lost - recorded[trial["cell"], trial["seed"]])
    return {kind: number for kind, number in kinds.most_common() if number}


def counted(kinds: Mapping[str, int]) -> str:
    """`node lost (2), diverged (1)`."""
    return ", ".join(f"{kind} ({number})" for kind, number in kinds.items())
