"""The events of a sweep's log as records of MLflow runs, under MLflow's names.

Curves of a trial with more than `MOST_STEPS` steps are thinned to every second, third, ... step: 64
trials of 5 steps/s would be 1,000 points/s. All other numbers are sent, and the whole curve is in
the trial's `history.jsonl`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sweeps.store.trial_events import AttemptStarted, CommandBegan, Reported, TrialEnded, TrialEvent
from sweeps.store.trial_status import TrialStatus
from sweeps.tracking.names import metric_name, run_name

Kind = Literal["created", "reopened", "points", "ended"]
Point = tuple[str, float, int]
"""Metric, value, step (of the optimiser; 0 for a single value)."""
RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

MOST_STEPS = 1000
MEBIBYTE = 2**20
EVIDENCE = {
    "config.json": "config",
    "per_query.parquet": "eval",
    "folds.parquet": "eval",
    "dev.run.gz": "runs",
    "test.run.gz": "runs",
}
"""Files of a trial that are sent to MLflow, and their folder there."""
CURVE = {
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "gradient_norm": "train/gradient_norm",
}


@dataclass(frozen=True)
class Record:
    """The additions of one event to the run of its trial."""

    trial: str
    kind: Kind
    time: int
    name: str = ""  # the run's; in the first record alone, as are its params
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # the collection, in the first record
    points: tuple[Point, ...] = ()
    status: RunStatus = "RUNNING"  # since then
    files: tuple[str, ...] = ()  # of the trial's folder
    step: int = 0  # of a report


class RunRecords:
    """The records of a trial, event by event. A resumed attempt repeats the steps since its last
    checkpoint; the first value of a step stays, because MLflow cannot delete a point. `sent` is the
    step up to which MLflow has the reports.
    """

    def __init__(self, sweep_id: str, sent: int = 0) -> None:
        self.sweep_id = sweep_id
        self.created: Record | None = None
        self.writer: Mapping[str, Any] = {}  # of the last attempt
        self.status: RunStatus = "KILLED"  # until the first attempt begins
        self._measures: list[str] = []
        self._curve_step = self._dev_step = sent
        self._nonfinite: set[str] = set()

    def add(self, event: TrialEvent, command: CommandBegan) -> Record | None:
        """The record of an event; None without one."""
        if isinstance(event, AttemptStarted):
            record = self._started(event, command)
        elif self.created is None:
            return None
        elif isinstance(event, Reported):
            return self._reported(event)
        elif isinstance(event, TrialEnded):
            record = self._ended(event)
        else:
            return None
        self.status = record.status
        return record

    def rest(self, reports: Iterable[Reported]) -> Iterator[Record]:
        """The records of a finished trial's reports that were lost with the driver or its
        machine."""
        for event in reports:
            if (record := self._reported(event)) and (record.points or record.tags):
                yield record

    def _reported(self, event: Reported) -> Record | None:
        """The record of a report, at the time of its last step or of the trial's start: equal for
        every reader."""
        if self.created is None or event.step <= min(self._curve_step, self._dev_step):
            return None
        points = tuple(self._news(event))
        seconds = [point["seconds"] for point in event.curve[-1:] if "seconds" in point]
        time = int(1000 * seconds[0]) if seconds else self.created.time
        return replace(self._record(event, "points", points), time=time, step=event.step)

    def _started(self, event: AttemptStarted, command: CommandBegan) -> Record:
        self.writer = command.writer
        self._measures = list(event.settings.get("evaluation.measures", ()))
        tags = {
            "attempts": str(event.attempt),
            "config.hash": event.cell,
            # Without the model that most cells share: MLflow's first column shows a group's name
            # in about a dozen letters.
            "config.id": event.label.removeprefix(f"{command.model_label} "),
            "stage": "final",
            **command.tags,
        }
        if self.created is not None:
            return self._record(event, "reopened", (), tags=tags)
        tags |= {
            "rank.trial_key": f"{self.sweep_id}/{event.trial}",
            "sweep.id": self.sweep_id,
            "mlflow.note.content": f"{event.label}, seed {event.seed}",
        }
        settings = {k: v for k, v in event.settings.items() if k not in event.ignored}
        numbers = [
            (f"hp/{name.rpartition('.')[2]}", float(value), 0)
            for name in event.swept
            if isinstance(value := settings.get(name), int | float)
        ]
        data = {"source": event.settings.get("collection", ""), **event.data}
        self.created = self._record(
            event,
            "created",
            numbers,
            name=run_name(event.label, event.seed),
            params={name: _text(value) for name, value in settings.items()},
            tags=tags,
            data=data if event.data else {},
        )
        return self.created

    def _news(self, event: Reported) -> Iterator[Point]:
        """Curve points, and dev measures after a validation."""
        every = max(1, -(-event.num_steps // MOST_STEPS))
        for point in event.curve:
            step = point["step"]
            if step > self._curve_step:
                self._curve_step = step
                uploaded = step % every == 0 or step == event.num_steps
                for name, metric in CURVE.items():
                    if name in point and (uploaded or not math.isfinite(float(point[name]))):
                        yield metric, float(point[name]), step
        if event.dev and event.step > self._dev_step:
            self._dev_step = event.step
            for measure, value in event.dev.items():
                yield f"dev/{metric_name(measure)}", float(value), event.step

    def _ended(self, event: TrialEnded) -> Record:
        status = TrialStatus(event.status)
        reason = "collapsed" if status is TrialStatus.COLLAPSED else event.reason[:500]
        tags = {"stop.reason": reason}
        if status is TrialStatus.DIVERGED:
            tags["diverged"] = "true"
        if not status.used:
            ended: RunStatus = "FAILED" if status.lost else "KILLED"
            return self._record(event, "ended", (), tags=tags, status=ended)
        versions = event.result.get("versions", {})
        tags |= {f"version.{name}": text for name, text in versions.items()}
        files = tuple(file for file in EVIDENCE if file in event.files)
        return self._record(
            event, "ended", self._finals(event.result), tags=tags, status="FINISHED", files=files
        )

    def _finals(self, result: Mapping[str, Any]) -> Iterator[Point]:
        """Final measures and costs; the primary measure first: MLflow's view sorts by it."""
        for prefix, split in (("test/", "test"), ("best/dev_", "dev")):
            values = result.get(split, {})
            order = [name for name in self._measures if name in values] or list(values)
            yield from ((f"{prefix}{metric_name(name)}", float(values[name]), 0) for name in order)
        costs = dict(result)
        if "peak_memory_bytes" in costs:
            costs["peak_memory_mib"] = costs["peak_memory_bytes"] / MEBIBYTE
        names = {"best/step": "best_step"} | {
            f"cost/{name}": name
            for name in (
                "train_seconds",
                "eval_seconds",
                "peak_memory_mib",
                "encoder_tokens",
                "padding_share",
                "training_padding_share",
            )
        }
        for metric, name in names.items():
            if name in costs:
                yield metric, float(costs[name]), 0

    def _record(
        self, event: TrialEvent, kind: Kind, points: Any, *, tags: Any = None, **facts: Any
    ) -> Record:
        """Numbers that are not finite are tags: MLflow stores infinity as 1.8e308. They need not
        mean divergence: fp16 skips steps whose gradients overflow, such as its first ones."""
        finite, run_tags = [], dict(tags or {})
        for name, value, step in points:
            if math.isfinite(value):
                finite.append((name, value, step))
            elif name not in self._nonfinite:
                self._nonfinite.add(name)
                run_tags[f"nonfinite.{name}"] = f"{value} at step {step}"
        return Record(event.trial, kind, event.time, tags=run_tags, points=tuple(finite), **facts)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    return str(value)
