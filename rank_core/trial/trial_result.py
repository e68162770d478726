"""The progress of a running trial, its result, and its files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rank_core.data.trec import write_run
from rank_core.evaluate import mean_values
from rank_core.files import write_json
from rank_core.ranking.encode import Work
from rank_core.records import Run
from rank_core.settings.config import TrialConfig
from rank_core.training.train import CurvePoint
from rank_core.trial.workers import Workers, worker_seconds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Progress:
    """A report of a running trial: curve points since the last, dev measures after a validation."""

    step: int
    num_steps: int
    curve: tuple[CurvePoint, ...]
    dev: dict[str, float] | None

    def after(self, steps: int, num_steps: int) -> "Progress":
        """The report as part of a trial of `num_steps` steps, after `steps` of them."""
        curve = tuple(replace(point, step=point.step + steps) for point in self.curve)
        return Progress(self.step + steps, num_steps, curve, self.dev)


@dataclass(frozen=True)
class ModelResult:
    """The runs and measures on dev and test of a model, or a system without trained weights."""

    runs: dict[str, Run]
    tables: "dict[str, pd.DataFrame]"  # query_id, measure, value
    collapsed: bool = False  # all candidates of a query get the same score
    best_step: int = 0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    # Counts of this worker:
    training: Work = field(default_factory=Work)
    evaluation: Work = field(default_factory=Work)
    ties: int = 0  # on test
    notes: Mapping[str, Any] = field(default_factory=dict)  # {file name: its content as JSON}
    layers: str = ""  # of flat rows on a GPU: compiled, not compiled; elsewhere OpenVINO's version


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial, with the contents of `result.json` in its folder.

    Examples:
        >>> import ranksweep
        >>> config = ranksweep.TrialConfig("own_collection:notes").override({"model.name": "bm25"})
        >>> *_, result = ranksweep.run_trial(config, "one-trial")
        >>> result.status, list(result.test)
        ('done', ['RR@10', 'nDCG@10'])
    """

    cell: str
    seed: int
    status: str  # done, or collapsed: all candidates of a query get the same score
    best_step: int  # with folds their rounded mean
    dev: dict[str, float]  # empty where nothing is trained and there is no dev
    test: dict[str, float]
    train_seconds: float
    eval_seconds: float
    peak_memory_bytes: int
    encoder_tokens: int  # without padding, in training and evaluation
    padding_share: float  # fraction of padding among the encoder's tokens in evaluation
    training_padding_share: float  # the same in training
    ties: int  # test documents with the score of another document of the query
    versions: dict[str, str]
    workers: tuple[Workers, ...] = ()  # several where their number or devices changed

    @property
    def worker_seconds(self) -> float:
        """The seconds of training and evaluation, of all its workers in all."""
        return worker_seconds(self.train_seconds + self.eval_seconds, self.workers)


def values_of(models: Sequence[ModelResult], split: str) -> dict[str, float]:
    """{measure: mean over the queries of all models}; empty for a split that was not ranked."""
    return mean_values(_table(models, split)) if split in models[0].runs else {}


def write_trial(
    workdir: Path, config: TrialConfig, result: TrialResult, models: Sequence[ModelResult]
) -> None:
    """Writes the trial's files, `result.json` last, so that its presence means that all are there.
    With folds, `folds.parquet` has the fold of each value."""
    import pandas as pd

    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / "config.json", config.settings())
    splits = tuple(models[0].runs)
    for split in splits:
        run = {query_id: docs for model in models for query_id, docs in model.runs[split].items()}
        write_run(workdir / f"{split}.run.gz", run, tag=result.cell)
    values = [_table(models, split).assign(split=split) for split in splits]
    table = pd.concat(values, ignore_index=True).assign(cell=result.cell, seed=result.seed)
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    table[columns].to_parquet(workdir / "per_query.parquet", index=False)
    for name in dict.fromkeys(name for model in models for name in model.notes):
        notes = {f"fold{fold}": model.notes[name] for fold, model in enumerate(models, start=1)}
        write_json(workdir / name, notes if config.evaluation.folds else models[0].notes[name])
    if config.evaluation.folds:
        by_fold = [
            model.tables[split].assign(fold=fold, split=split, best_step=model.best_step)
            for fold, model in enumerate(models, start=1)
            for split in splits
        ]
        columns = ["fold", "split", "query_id", "measure", "value", "best_step"]
        folds = pd.concat(by_fold, ignore_index=True)[columns]
        folds.to_parquet(workdir / "folds.parquet", index=False)
    write_json(workdir / "result.json", asdict(result))


def is_constant(run: Run) -> bool:
    """True if all candidates of every query get the same score, apart from tie-breaking."""
    spreads = [
        max(scores.values()) - min(scores.values()) for scores in run.values() if len(scores) > 1
    ]
    return bool(spreads) and max(spreads) < 1e-4


def _table(models: Sequence[ModelResult], split: str) -> "pd.DataFrame":
    import pandas as pd

    table = pd.concat([model.tables[split] for model in models])
    return table.sort_values(["measure", "query_id"], ignore_index=True)
