"""How far the outbox has been uploaded, kept beside it. Losing it costs time, never data."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rank_core.files import write_json


@dataclass
class UploadState:
    """Byte offsets and run ids per trial file, for one target."""

    path: Path
    target: str = ""
    offsets: dict[str, int] = field(default_factory=dict)
    run_ids: dict[str, str] = field(default_factory=dict)
    final_metrics: list[str] = field(default_factory=list)
    curves: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path, target: str | None = None) -> "UploadState":
        """The stored state; an empty one if it is missing, damaged or of another `target`.

        Starting over is safe: sending a record again changes nothing.
        """
        path = folder / "state.json"
        try:
            stored = json.loads(path.read_text())
            state = cls(
                path,
                str(stored["target"]),
                {str(name): int(end) for name, end in stored["offsets"].items()},
                {str(name): str(run_id) for name, run_id in stored["run_ids"].items()},
                [str(name) for name in stored["final_metrics"]],
                [str(name) for name in stored["curves"]],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(path, target or "")
        return state if target in (None, state.target) else cls(path, target or "")

    def save(self) -> None:
        """Write atomically: a reader or a killed writer never leaves half a file."""
        stored = asdict(self)
        del stored["path"]
        write_json(self.path, stored)


def target_of(tracking_uri: str, experiment: str) -> str:
    """A digest that names where the outbox goes; the URI itself may hold a password."""
    return hashlib.sha256(f"{tracking_uri}\n{experiment}".encode()).hexdigest()[:16]
