"""Measurements of groups of workers, each a file in the storage as soon as its group has ended: the
same command measures only what is missing."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rank_core.parsing import parsed_json
from rank_core.settings.config import NO_PART_OF_A_CELL, TrialConfig
from sweeps.ray_engine.timing import Timing
from sweeps.ray_engine.train_group import Timed
from sweeps.store.records import Records

_OF_THE_DRIVER = ("device", "threads")  # of versions: a worker's are in its own measurement


class Kept:
    """The measurements of one configuration, which `facts` identify (cell, settings, versions), by
    group (its workers and their resources) and repeat."""

    def __init__(self, records: Records, facts: Mapping[str, Any]) -> None:
        self._records, self._facts = records, facts

    def find(self, group: Mapping[str, Any], repeat: int) -> Timed | None:
        """What an earlier command measured; None where it did not, or its file is damaged."""
        if (content := self._records.read_file(self._file(group, repeat))) is None:
            return None
        try:
            found = parsed_json(content.decode())
            timing: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in found.pop("timing").items()
            }
            return Timed(Timing(**timing), **found)
        except (ValueError, TypeError, AttributeError, KeyError):
            return None

    def keep(self, group: Mapping[str, Any], repeat: int, measured: Timed) -> None:
        """Writes what was measured, whole or not at all."""
        content = json.dumps(asdict(measured), indent=1).encode()
        self._records.write_file(self._file(group, repeat), content)

    def name(self, group: Mapping[str, Any], repeat: int) -> str:
        """What tells a measurement from all others."""
        key = json.dumps([self._facts, group], sort_keys=True)
        return f"{hashlib.sha256(key.encode()).hexdigest()[:16]}-repeat{repeat}"

    def _file(self, group: Mapping[str, Any], repeat: int) -> str:
        return f"groups/{self.name(group, repeat)}.json"


def identity(cell: str, config: TrialConfig, versions: Mapping[str, str]) -> dict[str, Any]:
    """What tells one measurement from another, but for the group and the repeat: beside the cell
    also the settings that change the speed alone."""
    settings = {name: config.settings()[name] for name in ("seed", *NO_PART_OF_A_CELL)}
    libraries = {name: own for name, own in versions.items() if name not in _OF_THE_DRIVER}
    return {"cell": cell, "settings": settings, "versions": libraries}
