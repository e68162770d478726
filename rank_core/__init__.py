"""Neural rerankers for long documents: models, data, training, statistics. Public names are
imported on first use, so that each part needs only its own libraries."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors, type checkers and the API reference
    from rank_core.data.given import per_query as per_query
    from rank_core.data.load import COLLECTIONS as COLLECTIONS
    from rank_core.data.load import load_collection as load_collection
    from rank_core.data.trec import read_qrels as read_qrels
    from rank_core.data.trec import read_run as read_run
    from rank_core.errors import BadInput as BadInput
    from rank_core.export.reranker import Reranker as Reranker
    from rank_core.models import MODELS as MODELS
    from rank_core.ranking.interpolation import choose_alpha as choose_alpha
    from rank_core.ranking.interpolation import mixture as mixture
    from rank_core.settings.config import TrialConfig as TrialConfig
    from rank_core.stats.compare import compare_cells as compare_cells
    from rank_core.trial.trial import TrialResult as TrialResult
    from rank_core.trial.trial import run_trial as run_trial

_PUBLIC = {
    "COLLECTIONS": "rank_core.data.load",
    "MODELS": "rank_core.models",
    "BadInput": "rank_core.errors",
    "Reranker": "rank_core.export.reranker",
    "choose_alpha": "rank_core.ranking.interpolation",
    "TrialConfig": "rank_core.settings.config",
    "TrialResult": "rank_core.trial.trial",
    "compare_cells": "rank_core.stats.compare",
    "load_collection": "rank_core.data.load",
    "mixture": "rank_core.ranking.interpolation",
    "per_query": "rank_core.data.given",
    "read_qrels": "rank_core.data.trec",
    "read_run": "rank_core.data.trec",
    "run_trial": "rank_core.trial.trial",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
