"""The public names for Python, each imported on first use; `ranksweep.pt` is for PyTerrier.

Sweeps and comparisons: `run`, `plan`, `load`, `compare`, `measure`; they return `Sweep`,
`SweepPlan`, `Comparison` and `MeasuredRun`. A model in use: `Reranker`. The parts: `TrialConfig`,
`run_trial`, `load_collection`, `read_run`, `read_qrels`, `per_query`, `compare_cells`, `mixture`,
`choose_alpha`. A question file and code of your own: `Experiment`, `Grid`, `main`, `Backbone`,
`Ranker`, `Collection`, `Split`. Bad input raises `BadInput`.

Examples:
    >>> import ranksweep
    >>> runs = {"A": "runs/a.*.run", "B": "runs/b.*.run"}  # each has three seeds
    >>> ranksweep.compare(runs, "test.qrels", measures="RR@10").frame.shape[0]
    2
    >>> ranksweep.__version__ > "0"
    True
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import rank_core

if TYPE_CHECKING:  # for editors, type checkers and the API reference
    from rank_core import COLLECTIONS as COLLECTIONS
    from rank_core import MODELS as MODELS
    from rank_core import BadInput as BadInput
    from rank_core import Reranker as Reranker
    from rank_core import TrialConfig as TrialConfig
    from rank_core import TrialResult as TrialResult
    from rank_core import choose_alpha as choose_alpha
    from rank_core import compare_cells as compare_cells
    from rank_core import load_collection as load_collection
    from rank_core import mixture as mixture
    from rank_core import per_query as per_query
    from rank_core import read_qrels as read_qrels
    from rank_core import read_run as read_run
    from rank_core import run_trial as run_trial
    from rank_core.encoders.backbone_types import Backbone as Backbone
    from rank_core.models.ranker import Ranker as Ranker
    from rank_core.records import Collection as Collection
    from rank_core.records import Split as Split
    from ranksweep.api import compare as compare
    from ranksweep.api import load as load
    from ranksweep.api import measure as measure
    from ranksweep.api import plan as plan
    from ranksweep.api import run as run
    from ranksweep.planned import SweepPlan as SweepPlan
    from ranksweep.results import Comparison as Comparison
    from ranksweep.results import Sweep as Sweep
    from sweeps.launch.command import main as main
    from sweeps.plan.experiment import Experiment as Experiment
    from sweeps.plan.experiment import Grid as Grid
    from sweeps.report.measured import MeasuredRun as MeasuredRun

    __version__: str

_PUBLIC = {
    "Backbone": "rank_core.encoders.backbone_types",
    "Collection": "rank_core.records",
    "Comparison": "ranksweep.results",
    "Experiment": "sweeps.plan.experiment",
    "Grid": "sweeps.plan.experiment",
    "MeasuredRun": "sweeps.report.measured",
    "Ranker": "rank_core.models.ranker",
    "Split": "rank_core.records",
    "Sweep": "ranksweep.results",
    "SweepPlan": "ranksweep.planned",
    "compare": "ranksweep.api",
    "load": "ranksweep.api",
    "main": "sweeps.launch.command",
    "measure": "ranksweep.api",
    "plan": "ranksweep.api",
    "run": "ranksweep.api",
    **dict.fromkeys(rank_core.__all__, "rank_core"),
}
"""{public name: the module that has it}; all of `rank_core` is public here too."""

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        try:
            return version("ranksweep")
        except PackageNotFoundError:  # a checkout on the path
            return "0+unknown"
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
