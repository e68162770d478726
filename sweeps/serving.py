"""Which window, stride and aggregation should the reranker that I have be served with?

Paper: Dai & Callan 2019 and Zhang, Yates & Lin 2021 (aggregations of passage scores), Boytsov et
al. 2022 (windows and strides). Servers cut at a fixed size and take the maximum, untested.
Cells: every (window, stride), its chunks scored once by the checkpoint as it is. The rows are all
aggregations of these chunk scores; those of the best are interpolated with the first stage. The
baseline is the first window of the longest size, as where documents are truncated.
Size: no training and no seeds, one pass over dev and test per cell. Dev queries choose the answer,
test queries test it; `serving.json` states it for a server.
Expected: the answer is far above the first window if relevant text starts late, and little above it
elsewhere. Sums of logits are behind the maximum. The interpolation is above both.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid

SIZES = (128, 256, 512, 1024)
SMALL_SIZES = (32, 64)  # for a reranker of about 100 tokens
FIXED = {
    "model.name": "maxp",
    "training.num_epochs": 0,
    "training.keep_weights": "none",
    "evaluation.keep_chunk_scores": True,
    "evaluation.folds": 0,
}
"""Settings without which there is no single scoring of a model as it is."""


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Windows up to the longest, each with strides of half of it and of all of it."""
    from rank_core.encoders.backbones import row_length  # brings in torch, which no help needs
    from rank_core.encoders.checkpoint import foreign_architecture
    from rank_core.encoders.published_heads import unread_head

    settings = base.settings()
    if not model_class(base.model.name).reads_pairs:
        raise BadInput(
            "serving puts one score of each chunk together, of rows of query and chunk, and "
            f"{base.model.name} reads texts apart: a file such as docs/examples/late_windows.toml "
            "compares the windows of late interaction, each scored as it is "
            "(training.num_epochs=0); `ranksweep run chunk_size` is for an embedding model"
        )
    for name, value in FIXED.items():
        if settings[name] != value:
            raise BadInput(
                f"serving scores chunks once, by a model as it is: {name}={value} must hold, got "
                f"{settings[name]}; `ranksweep run window_stride` trains"
            )
    has_head = backbone.trained_head or (backbone.folder / RANKING_HEAD).exists()
    if not has_head and (foreign := foreign_architecture(backbone.folder)):
        raise BadInput(
            f"{backbone.name} is a {foreign}, which transformers does not have: it is no reranker "
            "that scores a query and a text, and is not read"
        )
    if not has_head or base.model.head == "new":
        raise BadInput(
            f"serving needs a trained reranker, and backbone {backbone.name} has no ranking head "
            f"(model.head={base.model.head}); `ranksweep run chunk_size` is for an embedding "
            "model, docs/examples/late_windows.toml for one of late interaction, `ranksweep run "
            f"window_stride` trains a head{unread_head(backbone)}"
        )
    chunking = base.chunking
    around = chunking.max_query_tokens + backbone.layout.num_tokens
    longest = min(row_length(backbone) - around, chunking.max_document_tokens)
    if longest < 1:
        raise BadInput(
            f"{backbone.name} reads rows of {row_length(backbone)} tokens, which queries of "
            f"{chunking.max_query_tokens} fill (chunking.max_query_tokens): no text fits behind"
        )
    sizes = [size for size in (SIZES if longest > SIZES[0] else SMALL_SIZES) if size < longest]
    pairs = [(w, s) for w in (*sizes, longest) for s in (max(1, w // 2), w)]
    points = [{"chunking.window": w, "chunking.stride": s} for w, s in pairs]
    return Grid(points=tuple(points[:-1]), baseline=points[-1])


EXPERIMENT = Experiment(
    name="serving",
    question="Which window, stride and aggregation for the reranker that I have?",
    swept=("chunking.window", "chunking.stride"),
    crossed=("training.precision",),
    grid=grid,
    settings=FIXED,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
