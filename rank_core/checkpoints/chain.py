"""Trials that go on from the trials of another cell, each from the one with its own seed."""

import json
import re
from pathlib import Path

from rank_core.errors import BadInput

SEED = re.compile(r"(.*)-seed(\d+)")  # a trial's name


def cell_trials(init_from: str) -> dict[int, Path]:
    """{seed: folder} of the trials of the cell that `training.init_from` names, as a sweep's folder
    `runs/<cell>` without its `-seed<n>`; nothing where it names a trial or a file.

    A chain is known by the name of the cell it goes on from, so each folder must be what it says.
    """
    cell = Path(init_from)
    if not init_from or cell.exists():
        return {}
    found = {path: SEED.fullmatch(path.name) for path in cell.parent.glob("*-seed*")}
    trials = {int(m[2]): path for path, m in found.items() if m and m[1] == cell.name}
    for seed, path in trials.items():
        result = path / "result.json"
        told = json.loads(result.read_text()) if result.is_file() else {}
        if (told.get("cell"), told.get("seed")) != (cell.name, seed):
            raise BadInput(
                f"training.init_from={init_from}: every folder of a cell must be a finished trial "
                f"of it, and {path} is none by its result.json"
            )
    return trials
