"""Which window and stride should a reranker of long documents use, and is the difference real?

Paper: Boytsov et al. 2022, Table 8 (window/stride of PARADE on MS MARCO, 35/25 to 300/200).
Cells: every (window, stride) pair that fits the backbone, and FirstP over the longest window that
fits as the baseline; seeds are nested in cells. If you name several windows and all are shorter,
FirstP also runs over each of them.
Size: 7 pairs x 3 seeds and the baseline; a pair costs about as much as its encoder tokens per
document (`--dry-run` prints them). With the embedded backbone: 4 pairs, a few minutes on two cores.
Expected: chunked models are far above FirstP if relevant text starts late. The differences among
the pairs are small, and most of them are within seed variance.
"""

import sys
from collections.abc import Sequence

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, Settings

PAPER_PAIRS = ((35, 25), (75, 50), (150, 50), (150, 75), (150, 100), (300, 200), (477, 477))
SMALL_PAIRS = ((32, 24), (48, 32), (64, 48), (96, 64))  # for a backbone of about 100 tokens


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """The paper's pairs, or smaller ones where the backbone reads less than the paper's did."""
    longest = backbone.max_window(base.chunking.max_query_tokens)
    pairs = PAPER_PAIRS if longest >= 300 else SMALL_PAIRS
    first = {"model.name": "firstp", "chunking.window": longest, "chunking.stride": longest}
    return Grid(
        points=tuple({"chunking.window": w, "chunking.stride": s} for w, s in pairs), baseline=first
    )


def same_window(baseline: Settings, windows: Sequence[int]) -> tuple[Settings, ...]:
    """FirstP over each of the windows, if all are shorter than the baseline's: without it a
    difference from the baseline would be one of the window too."""
    if len(windows) < 2 or max(windows) >= baseline["chunking.window"]:
        return ()
    return tuple({**baseline, "chunking.window": w, "chunking.stride": w} for w in windows)


EXPERIMENT = Experiment(
    name="window_stride",
    question="Which window and stride, and is the difference real or one lucky seed?",
    swept=("chunking.window", "chunking.stride"),
    grid=grid,
    beside=same_window,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
