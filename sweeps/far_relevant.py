"""Do rerankers find relevant text far from a document's start, before and after training on such?

Paper: Boytsov et al. 2025, Table 4 (FarRelevant: models trained on MS MARCO, zero-shot and then
fine-tuned; FirstP stays at chance, chunked models do not).
Cells: FirstP, MaxP, PARADE-Attn and PARADE-Transformer, as they come (zero-shot) and fine-tuned;
the baseline is FirstP as it comes. The embedded collection is built this way; make one from any
passage collection with `--collection 'NAME|far-relevant'`.
Size: 8 cells; those whose runs no seed can change run once, the others with 3 seeds.
Expected: FirstP below the first stage before and after; chunked models above it once fine-tuned.
"""

import sys

from rank_core.backbones import Backbone
from rank_core.config import TrialConfig
from sweeps.experiment import Experiment, Grid
from sweeps.suited import model_and_windows
from sweeps.sweep import main

MODELS = ("firstp", "maxp", "parade-attn", "parade-transformer")


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Every model without and with training."""
    tuned = base.training.num_epochs or 1
    points = [
        {"model.name": name, "training.num_epochs": epochs}
        for epochs in (0, tuned)
        for name in MODELS
    ]
    return Grid(points=tuple(points[1:]), baseline=points[0])


def label(config: TrialConfig) -> str:
    """`MaxP 150/75 zero-shot`."""
    how = "tuned" if config.training.num_epochs else "zero-shot"
    return f"{model_and_windows(config)} {how}"


EXPERIMENT = Experiment(
    name="far_relevant",
    question="Is relevant text found far from the start, before and after training?",
    swept=("model.name", "training.num_epochs"),
    grid=grid,
    label=label,
    defaults={"training.num_epochs": 2},
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
