"""Neural rerankers for long documents: models, data, training, statistics. Public names are
imported on first use, so that each part needs only its own libraries."""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "COLLECTIONS": "rank_core.data.load",
    "MODELS": "rank_core.models",
    "BadInput": "rank_core.errors",
    "Reranker": "rank_core.export.reranker",
    "choose_alpha": "rank_core.ranking.interpolation",
    "TrialConfig": "rank_core.settings.config",
    "TrialResult": "rank_core.trial.trial",
    "compare": "rank_core.stats.compare",
    "load_collection": "rank_core.data.load",
    "mixture": "rank_core.ranking.interpolation",
    "per_query": "rank_core.evaluate",
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
