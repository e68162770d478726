"""Trials that go on from the trials of another cell, each from the one with its own seed."""

import re
from pathlib import Path

SEED = re.compile(r"(.*)-seed(\d+)")  # a trial's name


def cell_trials(init_from: str) -> dict[int, Path]:
    """{seed: folder} of the trials of the cell that `training.init_from` names, as a sweep's folder
    `runs/<cell>` without its `-seed<n>`; nothing where it names a trial or a file."""
    cell = Path(init_from)
    if not init_from or cell.exists():
        return {}
    found = {path: SEED.fullmatch(path.name) for path in cell.parent.glob("*-seed*")}
    return {int(match[2]): path for path, match in found.items() if match and match[1] == cell.name}
