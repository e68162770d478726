"""What does effectiveness cost in encoder tokens, seconds and memory?

Paper: Boytsov et al. 2022, Figure 3, and Li et al., Tables 8-9 and Figure 10 (latency per document
against effectiveness).
Cells: models from the cheapest to the most expensive, chunked ones with disjoint and with
half-overlapping windows; FirstP is the baseline.
Size: 8 cells x 3 seeds.
Expected: FirstP, selected blocks and disjoint windows form the Pareto front. Overlap costs twice
the tokens for differences within seed variance.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, model_and_windows, suited

CHUNKED = ("maxp", "parade-attn", "parade-transformer")


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Each chunked model with a stride of a window and of half a window; blocks chosen by BM25."""
    chunked = base.override({"model.name": "maxp"})
    window = suited(chunked, backbone).get("chunking.window", base.chunking.window)
    points = [
        {"model.name": name, "chunking.window": window, "chunking.stride": stride}
        for name in CHUNKED
        for stride in (window, window // 2)
    ]
    blocks = {"model.name": "keyb", "model.selector": "bm25"}
    return Grid(points=(*points, blocks), baseline={"model.name": "firstp"})


EXPERIMENT = Experiment(
    name="efficiency",
    question="What does each point of effectiveness cost?",
    swept=("model.name", "chunking.window", "chunking.stride", "model.selector"),
    grid=grid,
    label=model_and_windows,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
