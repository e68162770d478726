"""Do rerankers find relevant text far from a document's start, zero-shot and fine-tuned?

Paper: Boytsov et al. 2025, Table 4 (FarRelevant: models trained on MS MARCO, zero-shot and then
fine-tuned; FirstP stays at chance, chunked models do not).
Cells: FirstP, MaxP, PARADE-Attn and PARADE-Transformer, zero-shot and fine-tuned; a random order of
the candidates (chance); the baseline is BM25, the first stage. The
embedded collection is built this way; make one from any passage collection with
`--collection 'NAME|far-relevant'`, for example of `python-docs-passages`.
Size: 10 cells, less the zero-shot ones whose weights neither the backbone nor `--init-from` has: 8
with the default backbone. Deterministic cells run once, the others with 3 seeds.
Expected: FirstP is at chance before and after fine-tuning. Chunked models are above BM25 once they
are fine-tuned.
"""

import sys

from rank_core.encoders.backbone_types import Backbone
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig
from sweeps.launch.command import main
from sweeps.plan.experiment import Experiment, Grid, model_and_windows

MODELS = ("firstp", "maxp", "parade-attn", "parade-transformer")


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """Every model without and with training, and the systems that need none."""
    tuned = base.training.num_epochs or 1
    points = [
        {"model.name": name, "training.num_epochs": epochs}
        for epochs in (0, tuned)
        for name in MODELS
    ]
    first_stage, chance = (
        {"model.name": name, "training.num_epochs": 0} for name in ("bm25", "random")
    )
    return Grid(points=(chance, *points), baseline=first_stage)


def label(config: TrialConfig) -> str:
    """`MaxP 150/75 zero-shot`."""
    if not model_class(config.model.name).trains:
        return model_and_windows(config)
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
