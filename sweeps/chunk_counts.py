"""How many chunks of a document does a reranker need to read?

Paper: Boytsov et al. 2022, Table 7, and the later Table 6 (PARADE-Attn over 1 to 6 chunks of 477
tokens; gains end at 3 to 4).
Cells: 1 to 6 chunks of the model's window, disjoint; the baseline reads the first chunk only.
Size: 6 cells x 3 seeds; cost grows with the number of chunks.
Expected: the gain is large if the relevant text is not in the first chunk. Further chunks make
differences within seed variance.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, model_and_windows

PAPER_WINDOW = 477
COUNTS = (1, 2, 3, 4, 5, 6)


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """1 to 6 windows, which together cover a document of the paper's length."""
    longest = min(backbone.max_window(base.chunking.max_query_tokens), PAPER_WINDOW)
    window = longest if longest == PAPER_WINDOW else longest // 2
    cut = {
        "chunking.window": window,
        "chunking.stride": window,
        "chunking.max_document_tokens": max(COUNTS) * window,
    }
    first, *more = ({**cut, "chunking.max_chunks": count} for count in COUNTS)
    return Grid(points=tuple(more), baseline=first)


def label(config: TrialConfig) -> str:
    """`PARADE-Attn 477, 3 chunks`."""
    count = config.chunking.max_chunks
    return f"{model_and_windows(config)}, {count} chunk{'s' if count > 1 else ''}"


EXPERIMENT = Experiment(
    name="chunk_counts",
    question="How many chunks are worth reading?",
    swept=("chunking.max_chunks",),
    grid=grid,
    label=label,
    defaults={"model.name": "parade-attn"},
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
