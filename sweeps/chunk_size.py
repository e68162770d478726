"""Which chunk size and overlap should the index of the embedding model that I have use?

Paper: Karpukhin et al. 2020 (passages of 100 words as the units of dense retrieval), Dai & Callan
2019 (a document has the score of its best passage). Indexes are built with 512 tokens and no
overlap, or 256 and half, untested.
Cells: every window up to the model's limit x overlap (0, 12.5, 25, 50%) x windows that end with
sentences or anywhere x the title before each chunk or not, where documents have titles. The
baseline is the document cut at the model's limit. The best is fused with BM25, by interpolation
and by reciprocal ranks.
Several values of model.truncate_dim (dimensions), model.stored (fp32, int8, binary) or of a prompt
give every cell with each of them: `model.truncate_dim=0,128 model.stored=fp32,int8`.
Size: no training and no seeds; the whole collection is embedded once for each cell, and a chunk
that several cells share, or that an earlier sweep had, once in all, for all dimensions and stored
precisions. Dev queries choose the answer, test queries test it; `chunking.json` states it for an
index.
Expected: far above the cut document where answers are far inside; the overlaps differ little.
"""

import sys
from itertools import product

from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid
from sweeps.systems.chunk_sizes import usual_label

SIZES = (128, 256, 512, 1024)
SMALL_SIZES = (32, 64)  # for a model of about 100 tokens
OVERLAPS = (0.0, 0.125, 0.25, 0.5)
FIXED = {"model.name": "dense", "training.num_epochs": 0, "evaluation.folds": 0}
DEFAULTS = {
    "training.precision": "fp32",
    "evaluation.measures": ("nDCG@10", "R@100"),
    "chunking.stride": 1,  # which overlaps replace: it must not exceed a window
}


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Windows that the model reads whole, with all overlaps, ends and titles."""
    settings = base.settings()
    for name, value in FIXED.items():
        if settings[name] != value:
            raise BadInput(
                f"chunk_size indexes a collection by an embedding model as it is: {name}={value} "
                f"must hold, got {settings[name]}"
            )
    from rank_core.retrieval.collection import has_titles  # transformers, which help must not load

    longest = _max_window(base)
    sizes = [size for size in (SIZES if longest > SIZES[0] else SMALL_SIZES) if size < longest]
    titles = (False, True) if has_titles(base.collection) else (False,)
    points = [
        {
            "chunking.window": window,
            "chunking.overlap": overlap,
            "chunking.snap": snap,
            "chunking.title": title,
        }
        for window, snap, title, overlap in product(
            (*sizes, longest), (False, True), titles, OVERLAPS
        )
    ]
    return Grid(points=tuple(points), baseline={"model.name": "dense-cut"})


def _max_window(config: TrialConfig) -> int:
    """The tokens of a document that the model reads at once."""
    from rank_core.models.dense import embedding_model  # transformers, which help must not load

    return embedding_model(config, "cpu").max_window


def label(config: TrialConfig) -> str:
    """`254/50%, sentences, title`, `cut at 254`."""
    if "chunking.window" not in model_class(config.model.name).reads:
        return f"cut at {_max_window(config)}"
    chunking = config.chunking
    ends = ", sentences" * chunking.snap + ", title" * chunking.title
    return usual_label(chunking.window, chunking.overlap) + ends


EXPERIMENT = Experiment(
    name="chunk_size",
    question="Which chunk size and overlap for the embedding model that I have?",
    swept=("chunking.window", "chunking.overlap", "chunking.snap", "chunking.title"),
    crossed=(
        "training.precision",
        "model.query_prompt",
        "model.document_prompt",
        "model.truncate_dim",
        "model.stored",
    ),
    grid=grid,
    label=label,
    defaults=DEFAULTS,
    settings=FIXED,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
