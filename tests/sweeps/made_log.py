"""The event log of made-up trials, as a driver writes it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.store.driver_lock import this_process
from sweeps.store.trial_events import (
    EVENTS,
    PROGRESS,
    AnyEvent,
    AttemptStarted,
    CommandBegan,
    Reported,
    TrialEnded,
    append_lines,
    line_of,
)

COSTS = {
    "train_seconds": 10.0,
    "eval_seconds": 1.0,
    "peak_memory_bytes": 2**20,
    "encoder_tokens": 1000,
    "padding_share": 0.25,
    "training_padding_share": 0.125,
    "ties": 0,
}
"""Of a trial."""


class MadeLog:
    """Appends to the log of the sweep in `folder`; a trial is named `c1-seed1`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path, self.progress = folder, folder / EVENTS, folder / PROGRESS
        self.add(CommandBegan(writer=this_process(), model="maxp", model_label="MaxP", tags={}))

    def add(self, *events: AnyEvent) -> None:
        append_lines(self.path, b"".join(map(line_of, events)))

    def start(
        self,
        trial: str,
        *,
        attempt: int = 1,
        label: str = "",
        swept: Mapping[str, Any] | None = None,
        ignored: Sequence[str] = (),
        data: Mapping[str, Any] | None = None,
    ) -> None:
        cell, _, seed = trial.rpartition("-seed")
        swept = swept or {}
        settings = {"seed": int(seed), "model.name": "maxp", **swept}
        label = label or cell
        names = tuple(swept)
        self.add(
            AttemptStarted(
                trial=trial,
                attempt=attempt,
                label=label,
                settings=settings,
                swept=names,
                ignored=ignored,
                data=data or {},
            )
        )

    def report(
        self, trial: str, step: int, dev: Mapping[str, Any] | None = None, **point: Any
    ) -> None:
        curve = [{"step": step, **point}] if point else []
        self.tell(Reported(trial=trial, step=step, num_steps=100, curve=curve, dev=dev))

    def tell(self, event: Reported) -> None:
        append_lines(self.progress, line_of(event))

    def end(
        self, trial: str, status: str = "done", *, files: Sequence[str] = (), **result: Any
    ) -> None:
        used = status in ("done", "collapsed")
        whole = (
            COSTS
            | {"train_seconds": 10.0, "test": {"P@5": 0.5}, "dev": {"P@5": 0.4}, "best_step": 1}
            | result
        )
        reason = "completed" if used else "the reason"
        self.add(
            TrialEnded(
                trial=trial,
                status=status,
                reason=reason,
                result=whole if used else {},
                files=tuple(files),
            )
        )

    def whole(self, trial: str, *, steps: int = 3, status: str = "done", **facts: Any) -> None:
        """A trial from its start to its end; 2 events, and one per step."""
        self.start(trial, **facts)
        for step in range(1, steps + 1):
            self.report(trial, step, loss=1 / step)
        self.end(trial, status)
