"""Does training on documents with relevant text at any position help rerankers?

Paper: Boytsov et al. 2025, Table 2, after Hofstaetter et al. 2021a (documents are cut at random
and reordered, so that positions are uninformative).
Cells: MaxP and PARADE-Attn trained on the documents as they are and on reordered ones; all are
tested on the documents as they are. The baseline is MaxP on the documents as they are.
The paper trains on 8,109 tokens of a document for one epoch: chunking.max_document_tokens=8109
training.num_epochs=1.
Size: 4 cells x 3 seeds.
Expected: there is little difference if relevant text can already be anywhere (the embedded
collection). On MS MARCO, MRR falls by .02 to .04; it rises if relevant text is late.
"""

import sys

from rank_core.data.transforms.expression import base_of
from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, model_and_windows

MODELS = ("maxp", "parade-attn")
REORDERED = "|debias(seed=1)"


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Both models on both forms of the training documents."""
    points = [
        {"model.name": name, "collection": f"{base.collection}{form}"}
        for form in ("", REORDERED)
        for name in MODELS
    ]
    return Grid(points=tuple(points[1:]), baseline=points[0])


def label(config: TrialConfig) -> str:
    """`MaxP 150/75 reordered`."""
    reordered = config.collection != base_of(config.collection)
    return model_and_windows(config) + (" reordered" if reordered else "")


EXPERIMENT = Experiment(
    name="debiasing",
    question="Does training on reordered documents help?",
    swept=("model.name", "collection"),
    grid=grid,
    label=label,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
