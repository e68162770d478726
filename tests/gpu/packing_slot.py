"""A slot on a GPU: one process that runs trials one after the other, as a sweep's slot does.

python -m tests.gpu.packing_slot COLLECTION BACKBONE MODEL SHARE THREADS STEPS TRIALS prints a line
of JSON once it is warm, waits for a line, and prints one after each trial. SHARE is of the GPU's
memory. A trial builds its model, trains it, ranks dev, and ranks test with the weights that it has
kept, by the loops of the product; it computes no measures, which need libraries that a machine
with a GPU may lack, and writes no files.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.machine import begin_on_device, release_memory
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import training_queries
from rank_core.training.train import Streams, train
from rank_core.trial.fold_model import FoldModel, on_host
from tests.benchmarks.workload import machine, wait_for_device

WARM = {"training.max_steps": 3, "evaluation.max_dev_queries": 2, "evaluation.max_test_queries": 2}


def main() -> None:
    """Runs the trials."""
    collection, backbone, model, share, threads, steps, trials = sys.argv[1:]
    torch.set_num_threads(int(threads))
    disable_progress_bar()
    begin_on_device(float(share))
    inputs = load_inputs(collection, backbone)
    own: dict[str, Any] = {"model.name": model, "model.backbone": str(Path(backbone))}
    config = TrialConfig().override(own | {"collection": collection, "training.num_epochs": 1000})
    trial(config.override(WARM), inputs)
    tell(machine())
    sys.stdin.readline()
    for seed in range(int(trials)):
        start = time.time()
        of_trial = {"training.max_steps": int(steps), "seed": seed}
        tokens = trial(config.override(of_trial), inputs)
        tell({"start": start, "end": time.time(), "tokens": tokens, "bytes": reserved()})


def tell(line: dict[str, Any]) -> None:
    """Prints a line for the one who started this process."""
    print(json.dumps(line), flush=True)


def trial(config: TrialConfig, inputs: Inputs) -> int:
    """Runs a trial; returns the encoder tokens that it has read."""
    streams = Streams(*(4 * config.seed + stream for stream in range(4)))
    fold, best = FoldModel(config, inputs, streams), None
    for record in train(
        fold.model,
        fold.scorer.pairs,
        training_queries(inputs, config),
        config.training,
        streams=streams,
        autocast=fold.autocast,
        work=fold.work,
        state=fold.loop,
        times=fold.times,
    ):
        if record.validate:
            fold.scorer.run("dev")
            best = on_host(fold.model.learned_state())
    assert best is not None
    fold.model.load_learned(best)
    fold.scorer.run("test")
    wait_for_device()
    tokens = fold.work.tokens + fold.scorer.work.tokens
    del fold
    release_memory()
    return tokens


def reserved() -> int:
    """The most bytes of the GPU that this process has held."""
    return torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0


if __name__ == "__main__":
    main()
