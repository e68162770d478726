"""Every trained system of the zoo on the embedded collection: dev before training and after.

Each model starts from the embedded backbone, under the windows that suit it; figures are means over
seeds. They show that it learns, not which one is best, which takes more seeds, a test and a sweep.
Run:
python -m tests.benchmarks.zoo [--models maxp,parade-attn] [--epochs 2] [--seeds 1,2] [--json FILE]
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rank_core.chunking.inputs import load_inputs
from rank_core.encoders import tiny
from rank_core.models import MODELS, model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.settings.config import TrialConfig, parse_setting
from rank_core.trial.trial import run_trial
from rank_core.trial.trial_result import Progress, TrialResult
from sweeps.plan.experiment import suited
from tests.benchmarks.workload import machine, print_table, save

MEASURE = "nDCG@10"
# What a system needs beside its windows to be trained at all.
NEEDS: dict[str, dict[str, Any]] = {
    "keyb": {"model.selector": "bm25"},
    "keyb-parade": {"model.selector": "bm25"},
}


def main(argv: Sequence[str]) -> None:
    """Trains and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--models", help="entries of MODELS, separated by commas; default: all")
    flags.add_argument("--epochs", type=int, default=2)
    flags.add_argument("--seeds", default="1", help="separated by commas")
    flags.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="of all trials")
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    trained = [name for name in MODELS if not issubclass(model_class(name), ListRanker)]
    names = options.models.split(",") if options.models else trained
    seeds = [int(seed) for seed in options.seeds.split(",")]
    words = (setting.partition("=") for setting in options.settings)
    settings = {name: parse_setting(name, text) for name, _, text in words}
    print(machine())
    rows = []
    for name in names:
        rows.append(_row(name, options.epochs, seeds, settings))
        print_table(rows[-1:])
    print_table(rows)
    save(options.json, {"rows": rows})


def _row(name: str, epochs: int, seeds: list[int], settings: dict[str, Any]) -> dict[str, str]:
    before = [_trial(name, 0, seed, settings)[0] for seed in seeds]
    after, seconds = zip(*(_trial(name, epochs, seed, settings) for seed in seeds), strict=True)
    gains = [new.dev[MEASURE] - old.dev[MEASURE] for old, new in zip(before, after, strict=True)]
    return {
        "model": name,
        "epochs": str(epochs),
        "dev before": f"{statistics.mean(one.dev[MEASURE] for one in before):.3f}",
        "dev after": f"{statistics.mean(one.dev[MEASURE] for one in after):.3f}",
        "gain": " ".join(f"{gain:+.3f}" for gain in gains),
        "test": f"{statistics.mean(one.test[MEASURE] for one in after):.3f}",
        "seconds": f"{statistics.mean(seconds):.0f}",
    }


def _trial(
    name: str, epochs: int, seed: int, settings: dict[str, Any]
) -> tuple[TrialResult, float]:
    """The end of a trial and what it took."""
    base = TrialConfig(seed=seed).override({"model.name": name, "training.num_epochs": epochs})
    config = base.override({**tiny.SETTINGS, **NEEDS.get(name, {}), **settings})
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
