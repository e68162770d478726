"""The results that mteb keeps of models, `MODEL/REVISION/TASK.json`: each task is a query, and its
score the mean over its splits and subsets, as mteb's `TaskResult.get_score` has it."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.errors import BadInput
from rank_core.parsing import Unparsed, parsed_json

MODEL = "model_meta.json"
"""Beside the tasks of a revision of a model."""
SCORE = "main_score"


def mteb_results(folder: Path) -> dict[str, tuple[Path, pd.DataFrame]]:
    """{model: (the folder of its revision, its table of query_id, measure, value)}, of the results
    in a folder, of a model or of a revision; empty where there are none. A model of several
    revisions has them in its names. Raises `BadInput` for a task without a score."""
    revisions = [
        place.parent for depth in ("", "*/", "*/*/") for place in sorted(folder.glob(depth + MODEL))
    ]
    names = {place: _name(place) for place in revisions}
    count = Counter(names.values())
    return {
        name if count[name] == 1 else f"{name}@{place.name}": (place, _table(place))
        for place, name in names.items()
    }


def _name(revision: Path) -> str:
    name = _object(revision / MODEL).get("name")
    return name if isinstance(name, str) and name else revision.parent.name.replace("__", "/")


def _table(revision: Path) -> pd.DataFrame:
    rows = [row for path in sorted(revision.glob("*.json")) for row in _task(path)]
    if not rows:
        raise BadInput(f"{revision} has {MODEL} of mteb, but no task")
    table = pd.DataFrame(rows, columns=["query_id", "measure", "value"])
    if (twice := table["query_id"].duplicated()).any():
        raise BadInput(f"{revision} has two files of the task {table['query_id'][twice].iloc[0]}")
    return table


def _task(path: Path) -> Iterator[tuple[str, str, float]]:
    """The row of a task; none for a file of another content."""
    content = _object(path)
    splits = content.get("scores")
    if path.name == MODEL or not isinstance(splits, dict):
        return
    subsets = [one for split in splits.values() for one in (split if type(split) is list else [0])]
    scores = [subset.get(SCORE) if isinstance(subset, dict) else None for subset in subsets]
    numbers = [s for s in scores if isinstance(s, int | float) and not isinstance(s, bool)]
    good = [score for score in numbers if math.isfinite(score)]
    if not good or len(good) < len(scores):
        raise BadInput(
            f"{path}: each subset of a task must have a finite {SCORE}; evaluate the task again "
            "with a newer mteb"
        )
    yield str(content.get("task_name") or path.stem), SCORE, sum(good) / len(good)


def _object(path: Path) -> dict[str, Any]:
    try:
        content = parsed_json(path.read_bytes())
    except Unparsed as error:
        raise BadInput(f"{path} is no JSON ({error.reason})") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} must be an object, as mteb writes it")
    return content
