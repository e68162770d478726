"""How many encoder tokens one backward pass may hold."""

import torch

from rank_core.batches import PairEncoder
from rank_core.models.ranker import Ranker

ON_CPU = 8192  # beyond it nothing gets faster, and the working set leaves the caches


def micro_batch_tokens(model: Ranker, pairs: PairEncoder, autocast: torch.dtype | None) -> int:
    """What suits the device."""
    return ON_CPU
