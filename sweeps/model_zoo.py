"""Which ranking system of the four papers is best, at what cost, and by more than a lucky seed?

Paper: Boytsov et al. 2022, Table 1 (its models are the default over a backbone of 512 tokens); any
entries of the zoo can be named with `model.name=a,b,c`, several encoders with `model.backbone=x,y`.
Cells: the models over each backbone; FirstP is the baseline, of the same backbone where there are
several.
Size: 14 rows x 3 seeds; 7 rows with the embedded backbone.
Expected: if the relevant text of documents starts late, FirstP is near chance and every long model
is far above it. On the papers' collections, they gain .01 to .04 in MRR over FirstP.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid

PAPER_ROWS = (
    "avg-cls",
    "maxp",
    "sump",
    "cedr-drmm",
    "cedr-knrm",
    "cedr-pacrr",
    "neural-model1",
    "parade-attn",
    "parade-avg",
    "parade-max",
    "parade-transformer",
    "parade-transformer-pretrained",
    "parade-late-interaction",
)
SMALL_ROWS = ("maxp", "sump", "parade-attn", "parade-max", "parade-transformer", "cedr-knrm")


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """The paper's rows over a backbone that reads as much as theirs, a few over a small one."""
    rows = PAPER_ROWS if backbone.max_input_tokens >= 512 else SMALL_ROWS
    name = base.model.backbone
    return Grid(
        points=tuple({"model.name": row, "model.backbone": name} for row in rows),
        baseline={"model.name": "firstp", "model.backbone": name},
    )


EXPERIMENT = Experiment(
    name="model_zoo",
    question="Which ranking system, and is its lead more than one lucky seed?",
    swept=("model.name", "model.backbone"),
    grid=grid,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
