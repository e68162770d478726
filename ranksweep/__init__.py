"""The public names for Python, each imported on first use: `load` and `compare` (tested tables),
`run` (a sweep), `Reranker` (an exported or published model). `ranksweep.pt` is for PyTerrier."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rank_core.export.reranker import Reranker
    from sweeps._api import compare, load, run

__all__ = ["Reranker", "compare", "load", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "rank_core.export.reranker" if name == "Reranker" else "sweeps._api"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return __all__
