"""Whether an interrupted sweep got on, for a batch job: one that did not would get no further when
it is started again."""

import os
from pathlib import Path

from sweeps.engine.trial_events import TrialEvents
from sweeps.store.records import CHECKPOINTS, Records
from sweeps.store.storage import Entry
from sweeps.store.trial_status import TrialStatus

VARIABLE = "RANKSWEEP_PROGRESS_FILE"
"""In the environment, the file that an interrupted sweep makes if it got on; unset for none."""


class ProgressFile:
    """The file, and the checkpoints that there were when the sweep's trials began."""

    def __init__(self, events: TrialEvents) -> None:
        self._events = events
        self._path = os.environ.get(VARIABLE, "")
        self._before = _checkpoints(events.records) if self._path else {}

    def interrupted(self) -> None:
        """Makes the file if a trial ended for good or was checkpointed since."""
        if self._path and (self._ended() or self._checkpointed()):
            Path(self._path).touch()

    def _ended(self) -> bool:
        # A failed trial is tried again.
        ends = self._events.screen.statuses.values()
        return any(status is not TrialStatus.FAILED for status in ends)

    def _checkpointed(self) -> bool:
        new = _checkpoints(self._events.records).items() - self._before.items()
        return any(path.split("/")[1] in self._events.screen.trials for path, _ in new)


def _checkpoints(records: Records) -> dict[str, Entry]:
    return records.storage.files(CHECKPOINTS)
