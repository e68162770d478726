"""How much does a result vary over seeds?

Paper: Boytsov et al. 2022 and Zhang, Yates & Lin 2021 average 3 and 5 seeds and test as if those
means were exact.
Cells: one model over its usual windows, and FirstP as the baseline; many seeds of both.
Size: 2 cells x as many seeds as asked for (`--num-seeds 10` gives a usable spread).
Expected: the standard deviation over seeds is .002 to .01 on large collections and more on small
ones. The report's variance components and `ranksweep design` start from it.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """The model of the settings beside FirstP."""
    name = base.model.name if base.model.name != "firstp" else "maxp"
    return Grid(points=({"model.name": name},), baseline={"model.name": "firstp"})


EXPERIMENT = Experiment(
    name="seeds",
    question="How much does a result vary over seeds?",
    swept=("model.name",),
    grid=grid,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
