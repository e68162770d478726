"""The results of trials at rungs: of a paused trial, and of a finished one when it passed."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import atomic_write
from sweeps.store.storage_retry import patient_read, patiently
from sweeps.store.trial_store import Store

FOLDER = "rungs"


@dataclass(frozen=True)
class Rung:
    """A paused trial. `dev` is its best mean of the primary measure so far, that of its best
    checkpoint."""

    epochs: int
    num_epochs: int  # of the whole trial
    step: int
    num_steps: int
    measure: str
    dev: float

    def text(self) -> str:
        """The rung in tables and messages."""
        return f"after {self.epochs} of {self.num_epochs} epochs, dev {self.measure} {self.dev:.3f}"


def best_on_dev(history: Iterable[str], measure: str, step: int | None) -> float:
    """The best mean on dev in a trial's history, up to a step; None: to its end."""
    return max(
        float(news["dev"][measure])
        for news in map(json.loads, history)
        if news["dev"] and (step is None or news["step"] <= step)
    )


def leave_rung(store: Store, name: str, rung: Rung) -> None:
    """Writes a rung atomically; a rung that exists is kept."""
    path = _path(name, rung.epochs)

    def write() -> None:
        store.require()
        if store.fs.exists(f"{store.root}/{path}"):
            return
        content = json.dumps(asdict(rung), indent=1).encode()
        if not store.is_local:
            store.fs.pipe_file(f"{store.root}/{path}", content)
            return
        target = Path(f"{store.root}/{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as unfinished:
            unfinished.write_bytes(content)

    patiently(write, f"{store.storage} rejected {path}")


def read_rung(store: Store, name: str, epochs: int) -> Rung | None:
    """The rung of a trial after `epochs`; None if it has not paused there."""
    path = f"{store.root}/{_path(name, epochs)}"

    def read() -> Rung | None:
        try:
            content = store.fs.cat_file(path)
        except FileNotFoundError:
            return None
        try:
            return Rung(**json.loads(content))
        except (ValueError, TypeError):
            raise BadInput(
                f"{path} must hold a trial's state at its rung; move it away, and the trial "
                "resumes from its checkpoint"
            ) from None

    return patient_read(store, read)


def _path(name: str, epochs: int) -> str:
    return f"{FOLDER}/{name}-epoch{epochs}.json"
