"""Is it enough to read a few key blocks of a document, and how should they be selected?

Paper: Li, Popa, Chagnon, Cinar & Gaussier (KeyB), Tables 4-7: blocks selected by TF-IDF, BM25 or
the ranker itself, compared with a truncated document and PARADE.
Cells: `keyb` with each selector, MaxP, which reads everything; the baseline is FirstP, which reads
the start.
Size: 7 cells x 3 seeds; learned selection reads every block once more.
Expected: any informed selection is far above the first window if relevant text starts late. BM25 is
close to learned selection at a tenth of its cost. Random blocks are in between.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, model_and_windows

SELECTORS = ("random", "tfidf", "bm25", "learned-shared", "bm25-then-learned")


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """A cell per selector, and MaxP."""
    chosen = [{"model.name": "keyb", "model.selector": selector} for selector in SELECTORS]
    everything = {"model.name": "maxp", "model.selector": ""}
    return Grid(points=(*chosen, everything), baseline={"model.name": "firstp"})


def label(config: TrialConfig) -> str:
    """`KeyB bm25`; model and windows for cells without a selector."""
    if config.model.selector:
        return f"KeyB {config.model.selector}"
    return model_and_windows(config)


EXPERIMENT = Experiment(
    name="key_blocks",
    question="Which blocks are worth reading, and who should choose them?",
    swept=("model.name", "model.selector"),
    grid=grid,
    label=label,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
