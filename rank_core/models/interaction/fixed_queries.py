"""Layers over all query tokens side by side, which have weights for so many tokens and no more."""

from torch import Tensor
from torch.nn.functional import pad

from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig

MAX_QUERY = 32
"""Query tokens that there are weights for; the papers' largest."""


def at_fixed_length(x_BQF: Tensor) -> Tensor:
    """x_BQF of MAX_QUERY tokens; those that a query does not have are zeros."""
    return pad(x_BQF, (0, 0, 0, MAX_QUERY - x_BQF.shape[1]))


def check_query_length(config: TrialConfig) -> None:
    """Refuses queries that there are no weights for."""
    if config.chunking.max_query_tokens > MAX_QUERY:
        raise BadInput(
            f"chunking.max_query_tokens <= {MAX_QUERY} must hold for model {config.model.name}, "
            "which has weights of its own for each query token, got "
            f"chunking.max_query_tokens={config.chunking.max_query_tokens}"
        )
