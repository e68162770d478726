"""The interface between the runner and a search, which decides the next trials."""

from collections.abc import Sequence
from typing import Protocol

from sweeps.plan.plan import Trial


class Feed(Protocol):
    """The source of trials. Only the driver's thread calls it, and it never blocks. The runner
    retries a trial whose process or node died; a feed sees the final end only.
    """

    def next(self) -> Trial | None:
        """The trial to launch now; None: none at this moment. Called several times a second, and
        after every end of a trial, until `over`. Waiting costs warm processes, so a feed returns
        any trial that will be needed."""
        ...

    @property
    def over(self) -> bool:
        """True once no trial can follow, whatever the results of the running ones."""
        ...

    @property
    def ahead(self) -> Sequence[Trial]:
        """Trials that may still come, as far as known now, for the display of progress."""
        ...

    @property
    def wanted(self) -> Sequence[Trial]:
        """All trials of the search so far, including ended ones: the rows of the live table."""
        ...

    def ended(self, trial: Trial, status: str) -> None:
        """A trial has ended for good: `done` or `collapsed` (its result is in the store's folder),
        `stopped` by ASHA, `failed` or `diverged` (the reason is in the ledger)."""
        ...
