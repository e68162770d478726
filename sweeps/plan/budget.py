"""A budget: device time of a sweep, or time until a command's deadline."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from rank_core.errors import BadInput, shown

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")


@dataclass(frozen=True)
class Budget:
    """The budget of a sweep; infinite where no limit is set."""

    device_hours: float = float("inf")  # GPU-hours of all trials; core-hours where there is no GPU
    deadline: float = float("inf")  # Unix time

    @property
    def limited(self) -> bool:
        """True if there is a limit."""
        return min(self.device_hours, self.deadline) < float("inf")


def parse_budget(device_hours: float | None, deadline: str | None, now: float) -> Budget:
    """The budget of the flags `--max-gpu-hours` and `--deadline` (ISO time, or a duration)."""
    if device_hours is not None and not 0 < device_hours < float("inf"):
        raise BadInput(f"--max-gpu-hours > 0 must hold, got {device_hours}")
    return Budget(
        float("inf") if device_hours is None else device_hours,
        float("inf") if deadline is None else _moment(deadline, now),
    )


def _moment(text: str, now: float) -> float:
    parts = DURATION.fullmatch(text)
    try:
        if parts and text:
            sizes = zip(parts.groups(), UNITS.values(), strict=True)
            moment = now + sum(int(number) * size for number, size in sizes if number)
        else:
            moment = datetime.fromisoformat(text).timestamp()  # without a zone: local time
    except (ValueError, OverflowError):
        raise BadInput(
            "--deadline must be a time such as 2026-11-21T18:00 or a duration such as 2h30m, "
            f"got {shown(text)}"
        ) from None
    if moment <= now:
        is_now = datetime.fromtimestamp(now, UTC).isoformat(timespec="minutes")
        raise BadInput(f"--deadline must be in the future, got {text}; it is {is_now}")
    return moment
