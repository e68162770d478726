"""What `--smoke-test` makes small: the whole path on very little, in seconds."""

from typing import Any

from sweeps.plan.search_options import SearchSettings

FEW = {
    "training.batch_size": 4,
    "evaluation.depth": 5,
    "evaluation.max_dev_queries": 4,
    "evaluation.max_test_queries": 8,
}
TWO_STEPS = {"training.max_steps": 2}
TWO_EPOCHS = {"training.epoch_steps": 1, "training.num_epochs": 2}
"""Two steps as well, with a rung between them."""
POINTS = 2


def smoke_settings(search: SearchSettings) -> dict[str, Any]:
    """Settings under which a trial takes two steps."""
    return FEW | (TWO_EPOCHS if search.name == "asha" else TWO_STEPS)


def smoke_points(search: SearchSettings) -> int:
    """How many points of the grid are enough."""
    return max(POINTS, search.fewest)
