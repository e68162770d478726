"""What a trial says while it runs and what it leaves in its folder."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rank_core.config import TrialConfig
from rank_core.data import Run
from rank_core.data.trec import write_run
from rank_core.train import CurvePoint

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Progress:
    """News of a running trial: curve points since the last news, dev measures when validated."""

    step: int
    num_steps: int
    curve: tuple[CurvePoint, ...]
    dev: dict[str, float] | None


@dataclass(frozen=True)
class TrialResult:
    """The end of a trial; the same facts are in `result.json` in its folder."""

    cell: str
    seed: int
    status: str  # done, or collapsed: the model gives all candidates of a query the same score
    best_step: int
    dev: dict[str, float]
    test: dict[str, float]
    train_seconds: float
    eval_seconds: float
    peak_memory_bytes: int
    encoder_tokens: int  # real ones, read in training and evaluation
    padding_share: float  # of the tokens the encoder was given in evaluation
    training_padding_share: float  # of those it was given in training
    ties: int  # documents of test whose score equals another's, ordered by doc_id
    versions: dict[str, str]


def write_trial(
    workdir: Path,
    config: TrialConfig,
    result: TrialResult,
    runs: dict[str, Run],
    tables: "dict[str, pd.DataFrame]",
) -> None:
    """The trial's files, `result.json` last: where it is, the rest is whole."""
    import pandas as pd

    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps(config.settings(), indent=1))
    for split, run in runs.items():
        write_run(workdir / f"{split}.run.gz", run, tag=result.cell)
    values = [table.assign(split=split) for split, table in tables.items()]
    table = pd.concat(values, ignore_index=True).assign(cell=result.cell, seed=result.seed)
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    table[columns].to_parquet(workdir / "per_query.parquet", index=False)
    unfinished = workdir / "result.json.unfinished"
    unfinished.write_text(json.dumps(asdict(result), indent=1))
    os.replace(unfinished, workdir / "result.json")


def constant(run: Run) -> bool:
    """True where no query's scores tell its candidates apart (tie breaking aside)."""
    spreads = [
        max(scores.values()) - min(scores.values()) for scores in run.values() if len(scores) > 1
    ]
    return bool(spreads) and max(spreads) < 1e-4
