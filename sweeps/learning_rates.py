"""Which learning rates suit a backbone and a head, and does the choice matter more than a seed?

Paper: Zhang, Yates & Lin 2021 (backbone 1e-5, other parts 1e-3) and Boytsov et al. 2022 (1e-5 and
1e-4); neither reports a grid.
Cells: the backbone's rate times a third, one and three; the head's and the aggregator's likewise.
The baseline is the middle of the grid, the rates that the settings already have.
Size: 9 cells x 3 seeds of one training each.
Expected: there is a plateau around the middle, and a loss if the backbone's rate is three times too
high.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, suited

FACTORS = (1 / 3, 1.0, 3.0)


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Rates around those of the settings."""
    training, windows = base.training, suited(base, backbone)
    points = [
        {
            **windows,
            "training.backbone_learning_rate": _rounded(training.backbone_learning_rate * first),
            "training.head_learning_rate": _rounded(training.head_learning_rate * second),
            "training.aggregator_learning_rate": _rounded(
                training.aggregator_learning_rate * second
            ),
        }
        for first in FACTORS
        for second in FACTORS
    ]
    middle = points.pop(len(points) // 2)
    return Grid(points=tuple(points), baseline=middle)


def label(config: TrialConfig) -> str:
    """`1e-05 / 0.0001`: backbone and head."""
    training = config.training
    return f"{training.backbone_learning_rate:g} / {training.head_learning_rate:g}"


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")


EXPERIMENT = Experiment(
    name="learning_rates",
    question="Which learning rates, and does the choice matter more than a seed?",
    swept=(
        "training.backbone_learning_rate",
        "training.head_learning_rate",
        "training.aggregator_learning_rate",
    ),
    grid=grid,
    label=label,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
