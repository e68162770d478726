"""Plans over the small collection, and what a trial leaves behind."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sweeps.command_line import parse
from sweeps.plan import Plan, make_plan
from sweeps.store import Store
from sweeps.window_stride import EXPERIMENT

PlanOf = Callable[..., Plan]
"""Words of a command line to the plan of window_stride over the small collection."""


@pytest.fixture
def inputs_words(backbone_folder: Path, collection_folder: Path) -> list[str]:
    return ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]


@pytest.fixture
def plan_of(inputs_words: list[str]) -> PlanOf:
    def plan(*words: str) -> Plan:
        options = parse([*inputs_words, *words], prog="window_stride.py", description="")
        return make_plan(EXPERIMENT, options)

    return plan


@pytest.fixture
def leave_result(tmp_path: Path) -> Callable[..., None]:
    """Publishes a made-up result of a trial, as the trial's own process does."""

    def leave(store: Store, name: str, status: str = "done", seconds: float = 2.0) -> None:
        workdir = tmp_path / "workdirs" / name
        workdir.mkdir(parents=True)
        cell, _, seed = name.rpartition("-seed")
        rows = [(cell, int(seed), "test", f"q{i}", "nDCG@10", i / 10) for i in range(3)]
        columns = ["cell", "seed", "split", "query_id", "measure", "value"]
        pd.DataFrame(rows, columns=columns).to_parquet(workdir / "per_query.parquet", index=False)
        result = {
            "cell": cell,
            "seed": int(seed),
            "status": status,
            "train_seconds": seconds,
            "eval_seconds": 1.0,
            "peak_memory_bytes": 2**20,
            "encoder_tokens": 1000,
            "padding_share": 0.25,
            "training_padding_share": 0.125,
            "ties": 0,
        }
        (workdir / "result.json").write_text(json.dumps(result))
        store.publish(workdir, name)

    return leave
