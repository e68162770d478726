"""How should the scores of a document's passages be aggregated?

Paper: Zhang, Yates & Lin 2021, Table 1 (FirstP, MaxP, SumP, AvgP; passages are trained
independently with the document's label and aggregated at inference only).
Cells: MaxP, SumP, AvgP and the mean of the three best passages; FirstP is the baseline. All train
on passages (`training.unit=passage`); SumP and AvgP sum logits, as the paper's code does, or
probabilities, as its text says. `training.unit=document` trains the aggregation itself.
Size: 7 cells x 3 seeds.
Expected: MaxP is first. SumP and AvgP are behind it if documents are long and one passage is
relevant.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, aggregation_label

MODELS = ("maxp", "sump", "avgp", "kmax-avgp")
PROBABILITY = {"model.chunk_scores": "probability"}


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """The aggregations of one passage model."""
    points = [{"model.name": name} for name in MODELS]
    if base.training.unit == "passage":
        points += [{"model.name": name, **PROBABILITY} for name in ("sump", "avgp")]
    return Grid(points=tuple(points), baseline={"model.name": "firstp"})


EXPERIMENT = Experiment(
    name="aggregation",
    question="How should passage scores be put together?",
    swept=("model.name", "model.chunk_scores"),
    grid=grid,
    label=aggregation_label,
    defaults={"training.unit": "passage"},
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
