"""Which backbone ranks long documents best, and what does pre-fine-tuning on passages add?

Paper: Zhang, Yates & Lin 2021, Table 2, and Boytsov et al. 2022, Table 5 (BERT, RoBERTa, ALBERT,
ELECTRA; with and without MS MARCO).
Cells: FirstP and the model of the settings over each backbone; name several with
`model.backbone=a,b`. With the shipped backbone: pre-fine-tuned (`tiny-docs`) and random
(`tiny-docs-untrained`).
Size: 2 cells a backbone x 3 seeds.
Expected: the backbone matters more than the aggregation. Without pre-fine-tuning, a few hundred
queries teach little.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.shipped import SHIPPED
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid

PAPER = (
    "bert-base-uncased",
    "roberta-base",
    "google/electra-base-discriminator",
    "microsoft/deberta-v3-base",
)


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Every backbone under both models."""
    families = (PAPER, SHIPPED, (base.model.backbone,))
    names = next(family for family in families if base.model.backbone in family)
    models = ("firstp", base.model.name if base.model.name != "firstp" else "maxp")
    points = [{"model.name": model, "model.backbone": name} for name in names for model in models]
    return Grid(points=tuple(points[1:]), baseline=points[0])


EXPERIMENT = Experiment(
    name="backbones",
    question="Which backbone, and is it worth pre-fine-tuning?",
    swept=("model.name", "model.backbone"),
    grid=grid,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
