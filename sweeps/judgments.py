"""For a given number of judgments: many queries with few each, or few queries with many?

Paper: Zhang, Yates & Lin 2021, section 3.3 and Figure 1 (training sets sampled at rates .1 to 1).
Cells: all training judgments (the baseline), and the same share of them, kept for whole queries
(deep) or spread over all queries (shallow).
Size: 7 cells x 3 seeds; on collections with one judgment per query shallow sampling is impossible:
4 cells.
Expected: the loss grows with fewer judgments. For the same number, shallow is better than deep.
"""

import sys

from rank_core.data.transforms.expression import base_of
from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, model_and_windows, suited

RATES = (0.1, 0.3, 0.5)


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Deep and shallow samples at each rate."""
    windows = suited(base, backbone)
    points = [
        {**windows, "collection": f"{base.collection}|{depth}(rate={rate})"}
        for rate in RATES
        for depth in ("deep", "shallow")
    ]
    return Grid(points=tuple(points), baseline={**windows, "collection": base.collection})


def label(config: TrialConfig) -> str:
    """`deep .3`."""
    if config.collection == base_of(config.collection):
        return f"{model_and_windows(config)} all judgments"
    kind, _, rate = config.collection.rpartition("|")[2].removesuffix(")").partition("(rate=")
    return f"{kind} {rate}"


EXPERIMENT = Experiment(
    name="judgments",
    question="Many queries judged a little, or few judged deeply?",
    swept=("collection",),
    grid=grid,
    label=label,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
