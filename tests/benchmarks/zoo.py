"""Every trained system of the zoo on the embedded data: before training and after, dev and test.

Each model starts from the embedded backbone, under the windows that suit it; figures are means over
seeds, gains those of each seed. They show that a model learns, not which one is best, which takes
more seeds, a test and a sweep. Most learn on `python-docs` in two epochs; what another one needs,
and why, is in `RECIPES`. Run:
python -m tests.benchmarks.zoo [--models maxp,parade-attn] [--epochs 2] [--seeds 1,2,3] [--json F]
"""

import argparse
import copy
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn
from transformers import BertModel

from rank_core.cache import cached_directory
from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.shipped import FOLDER, SETTINGS
from rank_core.models import MODELS, model_class
from rank_core.progress import reported
from rank_core.settings.config import TrialConfig, parse_setting
from rank_core.trial.trial import run_trial
from rank_core.trial.trial_result import Progress, TrialResult
from sweeps.plan.experiment import suited
from tests.benchmarks.workload import show

MEASURE = "nDCG@10"
EPOCHS = {"training.num_epochs": 2}
UNTRAINED: dict[str, Any] = {"training.max_steps": 1} | {
    f"training.{part}_learning_rate": 1e-12 for part in ("backbone", "head", "aggregator")
}
"""A step that moves nothing: without training no model with new weights is scored."""
# Documents of python-docs are seven windows long and relevant in one of them, never the first.
PASSAGES = {"collection": "python-docs-passages"}
CONTRASTIVE = {"training.loss": "listwise-softmax", "training.negatives": 7}
KEY_BLOCKS = ({"model.selector": "bm25"}, "its selector has no default")
STACKED = "tiny-docs, stacked"
LONGER = {"training.num_epochs": 3}
PASSAGES_TELL_MORE = (
    {**PASSAGES, **CONTRASTIVE},
    "trained on whole documents it gains on dev alone",
)
FIRST_WINDOW = ({**PASSAGES, **CONTRASTIVE}, "reads the first window, where nothing is relevant")

RECIPES: dict[str, tuple[dict[str, Any], str]] = {
    "firstp": FIRST_WINDOW,
    "longp": FIRST_WINDOW,
    "qds": FIRST_WINDOW,
    "randp": (
        {**PASSAGES, **CONTRASTIVE, "chunking.window": 96, "chunking.stride": 96},
        "of seven windows one is relevant, which is chance; most passages are one window of 96",
    ),
    "maxp": (
        {**PASSAGES, **CONTRASTIVE, "training.backbone_learning_rate": 1e-4, **LONGER},
        "its head scores passages already: whole documents teach it nothing more for test",
    ),
    "sump": PASSAGES_TELL_MORE,
    "idcm": PASSAGES_TELL_MORE,
    "parade-max": ({"training.num_epochs": 5}, "slower than its kin"),
    "parade-late-interaction": (
        {**PASSAGES, "model.interaction": "tiny-docs"},
        "two random encoders learn no matching from 396 queries; the paper's are pre-trained",
    ),
    "mores": (
        {**PASSAGES, **CONTRASTIVE, "model.backbone": STACKED, "training.num_epochs": 1},
        "with two layers it has one block, whose [CLS] cannot see what other query tokens found",
    ),
    "bi-encoder": (
        {**PASSAGES, **CONTRASTIVE, "training.backbone_learning_rate": 1e-4},
        "its paper's loss, and a lower rate: at 3e-4 it learns which passages were relevant",
    ),
    "keyb": KEY_BLOCKS,
    "keyb-parade": KEY_BLOCKS,
}
"""{model: (settings beside its windows, why)}."""


def main(argv: Sequence[str]) -> None:
    """Trains and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--models", help="entries of MODELS, separated by commas; default: all")
    flags.add_argument("--epochs", type=int, help="of all models; default: RECIPES, else 2")
    flags.add_argument("--seeds", default="1", help="separated by commas")
    flags.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="of all trials")
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    trained = [name for name in MODELS if model_class(name).trains]
    names = options.models.split(",") if options.models else trained
    seeds = [int(seed) for seed in options.seeds.split(",")]
    words = (setting.partition("=") for setting in options.settings)
    settings = {name: parse_setting(name, text) for name, _, text in words}
    if options.epochs is not None:
        settings["training.num_epochs"] = options.epochs
    show([_row(name, seeds, settings) for name in reported(names, "systems")], options.json)


def _row(name: str, seeds: list[int], given: dict[str, Any]) -> dict[str, str]:
    recipe, why = RECIPES.get(name, ({}, ""))
    settings = {**SETTINGS, **EPOCHS, "model.backbone": "tiny-docs", **recipe, "model.name": name}
    settings |= given
    if settings["model.backbone"] == STACKED:
        settings["model.backbone"] = str(stacked())
    before = [_trial(settings | UNTRAINED, seed)[0] for seed in seeds]
    after, seconds = zip(*(_trial(settings, seed) for seed in seeds), strict=True)
    row = {"model": name, "epochs": str(settings["training.num_epochs"])}
    for split in ("dev", "test"):
        old, new = ([getattr(one, split)[MEASURE] for one in ends] for ends in (before, after))
        gains = " ".join(f"{b - a:+.3f}" for a, b in zip(old, new, strict=True))
        row |= {
            f"{split} before": f"{statistics.mean(old):.3f}",
            f"{split} after": f"{statistics.mean(new):.3f}",
            f"{split} gains": gains,
        }
    return row | {"seconds": f"{statistics.mean(seconds):.0f}", "why": why}


def stacked() -> Path:
    """The folder of `tiny-docs` with four layers: its first one, which matches equal tokens,
    thrice, and its second one."""

    def build(folder: Path) -> None:
        shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
        model = BertModel.from_pretrained(FOLDER, add_pooling_layer=False)
        layers = model.encoder.layer
        model.encoder.layer = nn.ModuleList(copy.deepcopy(layers[i]) for i in (0, 0, 0, 1))
        model.config.num_hidden_layers = 4
        model.save_pretrained(folder)

    return cached_directory("untrained", f"{FOLDER.name}-stacked", build)


def _trial(settings: dict[str, Any], seed: int) -> tuple[TrialResult, float]:
    """The end of a trial and what it took."""
    config = TrialConfig(seed=seed).override(settings)
    backbone = load_inputs(config.collection, config.model.backbone).backbone
    config = config.override(suited(config, backbone))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for news in run_trial(config, Path(folder)):
            result = news
    assert not isinstance(result, Progress)
    return result, time.perf_counter() - start


if __name__ == "__main__":
    main(sys.argv[1:])
