"""How should the scores of a document's passages be put together?

Paper: Zhang, Yates & Lin 2021, Table 1 (FirstP, MaxP, SumP, AvgP; passages trained on their own
with the document's label, put together at inference only).
Cells: MaxP, SumP, AvgP and the mean of the three best passages; FirstP is the baseline. All train
on passages (`training.unit=passage`); `training.unit=document` trains the aggregation itself.
Size: 5 cells x 3 seeds.
Expected: MaxP first; SumP and AvgP behind it where documents are long and one passage is relevant.
"""

import sys

from rank_core.backbones import Backbone
from rank_core.config import TrialConfig
from sweeps.experiment import Experiment, Grid
from sweeps.suited import model_and_windows
from sweeps.sweep import main

MODELS = ("maxp", "sump", "avgp", "kmax-avgp")


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """The aggregations of one passage model."""
    return Grid(
        points=tuple({"model.name": name} for name in MODELS),
        baseline={"model.name": "firstp"},
    )


EXPERIMENT = Experiment(
    name="aggregation",
    question="How should passage scores be put together?",
    swept=("model.name",),
    grid=grid,
    label=model_and_windows,
    defaults={"training.unit": "passage"},
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
