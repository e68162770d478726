"""Trial statuses, and how each is handled."""

from enum import StrEnum


class TrialStatus(StrEnum):
    """The status of a trial, as in tables; `result.json` has done or collapsed."""

    DONE = "done"
    COLLAPSED = "collapsed"  # finished, with the same score for all candidates of a query
    FAILED = "failed"  # runs again with the next command
    DIVERGED = "diverged"  # never runs again
    STOPPED = "stopped"  # by ASHA
    RUNNING = "running"
    PLANNED = "planned"  # it waits; with earlier attempts, the command ended first

    @property
    def used(self) -> bool:
        """True if its scores count: a collapsed seed is a result of its configuration."""
        return self in USED

    @property
    def lost(self) -> bool:
        """True if it ended without scores."""
        return self in LOST

    @property
    def over(self) -> bool:
        """True if no command runs it again."""
        return self.used or self is TrialStatus.DIVERGED

    @property
    def waits(self) -> bool:
        """True until it has ended in any way."""
        return self in (TrialStatus.RUNNING, TrialStatus.PLANNED)


USED = (TrialStatus.DONE, TrialStatus.COLLAPSED)
LOST = (TrialStatus.FAILED, TrialStatus.DIVERGED)
INTERRUPTED = "interrupted"
"""The end of an attempt that its driver gave up, and the word for a planned trial with attempts."""
RESIZED = "resized"
"""The end of an attempt that the next one continues with more workers."""
