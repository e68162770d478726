"""Checksums of the files of a finished trial, and the damage that they show.

`result.json` names size and SHA-256 of every other file of the trial (`files`) and the SHA-256 of
its own content (`checksum`). Results of version 0.1 have neither and are not checked.

A sweep's command checks finished trials when it begins: `result.json` by its checksum, every other
file by its size, and by its SHA-256 where it has at most `SMALL` bytes or was changed after
`result.json`. Commands that only read (status, report) hash changed files alone. Every file of a
trial is checked when it is read, by `read_checked`. 2,000 trials of .4 MB take 1.2 processor
seconds, .3 for commands that only read.
"""

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.errors import BadInput
from rank_core.files import file_sha256, write_json
from sweeps.store.trial_status import TrialStatus

if TYPE_CHECKING:
    import pandas as pd

RESULT = "result.json"
SMALL = 2**20
MAY_GO = (WEIGHTS,)
"""Files that a finished trial may lack: only the best seed of a cell keeps them."""
REMEDY = "the sweep's command sets the trial aside and runs it again"
SCORES = "per_query.parquet"
COSTS = (
    "train_seconds",
    "eval_seconds",
    "peak_memory_bytes",
    "encoder_tokens",
    "padding_share",
    "training_padding_share",
    "ties",
)
"""The numbers that every result has."""


class DamagedTrial(BadInput):
    """A file of a finished trial that has changed since the trial's end, or is missing."""

    def __init__(self, folder: Path | str, file: str, reason: str) -> None:
        super().__init__(f"{folder}/{file} {reason}; {REMEDY}")
        self.text = f"{file} {reason}"


@dataclass(frozen=True)
class Result:
    """The content of a `result.json`: the trial's `facts`, and {file: its size and SHA-256}."""

    facts: dict[str, Any]
    files: dict[str, dict[str, Any]]


def seal(folder: Path) -> None:
    """Adds the checksums to the `result.json` of a trial whose files are complete."""
    facts = parse_result((folder / RESULT).read_bytes(), folder).facts
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted(folder.iterdir())
        if path.name != RESULT
    }
    content = facts | {"files": files}
    write_json(folder / RESULT, content | {"checksum": _own_digest(content)})


def parse_result(content: bytes, folder: Path | str) -> Result:
    """The content of a `result.json`; raises `DamagedTrial` if it was changed or is incomplete."""
    try:
        facts = json.loads(content)
        checksum, files = facts.pop("checksum", None), facts.get("files", {})
        TrialStatus(facts["status"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedTrial(folder, RESULT, "must be the result of a trial") from None
    if (checksum is None and files) or checksum not in (None, _own_digest(facts)):
        raise DamagedTrial(folder, RESULT, "was changed after the trial's end")
    return Result({name: fact for name, fact in facts.items() if name != "files"}, files)


def read_result(folder: Path) -> Result:
    """The result in a trial's folder."""
    try:
        content = (folder / RESULT).read_bytes()
    except FileNotFoundError:
        raise DamagedTrial(folder, RESULT, "is missing") from None
    return parse_result(content, folder)


def read_whole_result(folder: Path) -> Result:
    """The result in a trial's folder with all `COSTS`, which an unchecked result may lack."""
    result = read_result(folder)
    missing = [name for name in COSTS if not isinstance(result.facts.get(name), int | float)]
    if missing:
        raise DamagedTrial(folder, RESULT, f"must have the numbers {', '.join(missing)}")
    return result


def read_checked(folder: Path, file: str) -> bytes:
    """The content of a file of a finished trial, as it was at the trial's end."""
    result = read_result(folder)
    try:
        content = (folder / file).read_bytes()
    except FileNotFoundError:
        raise DamagedTrial(folder, file, "is missing") from None
    if file in result.files:
        known = result.files[file]
        _check_size(folder, file, len(content), known["bytes"])
        if hashlib.sha256(content).hexdigest() != known["sha256"]:
            raise DamagedTrial(folder, file, "was changed after the trial's end")
    return content


def read_scores(folder: Path) -> "pd.DataFrame":
    """The per-query values of a finished trial."""
    import pandas as pd

    content = read_checked(folder, SCORES)
    try:
        return pd.read_parquet(io.BytesIO(content))
    except Exception:  # of version 0.1; pyarrow has many kinds
        raise DamagedTrial(folder, SCORES, "must be a table") from None


def damage(folder: Path, *, thorough: bool) -> str:
    """The damage of a finished trial by the rule above; "" for none."""
    try:
        result = read_whole_result(folder)
        ended = (folder / RESULT).stat().st_mtime_ns
        for file, known in result.files.items():
            if file in MAY_GO and not (folder / file).exists():
                continue
            _check_size(folder, file, _size(folder, file), known["bytes"])
            changed = (folder / file).stat().st_mtime_ns > ended
            if (changed or (thorough and known["bytes"] <= SMALL)) and (
                file_sha256(folder / file) != known["sha256"]
            ):
                raise DamagedTrial(folder, file, "was changed after the trial's end")
        if thorough and not result.files:
            read_scores(folder)
    except DamagedTrial as error:
        return error.text
    return ""


def _size(folder: Path, file: str) -> int:
    try:
        return (folder / file).stat().st_size
    except FileNotFoundError:
        raise DamagedTrial(folder, file, "is missing") from None


def _check_size(folder: Path, file: str, num_bytes: int, known: int) -> None:
    if num_bytes != known:
        raise DamagedTrial(folder, file, f"has {num_bytes} of {known} bytes")


def _own_digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
