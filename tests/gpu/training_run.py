"""A training that keeps checkpoints and may kill itself.

python -m tests.gpu.training_run FOLDER BACKBONE DEVICE STRICT DIE_AT appends each step's loss to
FOLDER/curve.jsonl, exactly, and resumes from the last checkpoint that it finds. STRICT is 0 or 1;
after step DIE_AT the process is killed as by `kill -9`, never where that is 0.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.encoders.backbones import resolve_backbone
from rank_core.machine import autocast_type, make_deterministic
from rank_core.ranking.encode import Work
from rank_core.training.train import initial_state, train
from tests.gpu.work import STREAMS, parts, queries

NUM_STEPS, EVERY = 12, 3  # steps of the training, and between two checkpoints


def main() -> None:
    """Trains to the end or dies."""
    folder, backbone, device, strict, die_at = sys.argv[1:]
    make_deterministic(strict == "1")
    place = torch.device(device)
    autocast = autocast_type("fp32" if strict == "1" else "auto", place)
    settings = {"training.max_steps": NUM_STEPS, "training.num_epochs": 40}
    settings |= {"training.batch_size": 4, "model.dropout": 0.1, "training.validate_every": 1}
    settings |= {"training.backbone_learning_rate": 1e-3, "training.micro_batch_tokens": 500}
    some = parts("parade-transformer", resolve_backbone(backbone), place, settings)
    state = initial_state(some.model, some.config.training, autocast)
    checkpoints = Checkpoints(f"{folder}/checkpoints/trial", Cadence(steps=EVERY))
    if kept := checkpoints.load():
        some.model.load_state_dict(kept["weights"])
        state.optimizer.load_state_dict(kept["optimizer"])
        state.scaler.load_state_dict(kept["scaler"])
        state.step = kept["step"]
    kinds = {"streams": STREAMS, "autocast": autocast, "work": Work(), "state": state}
    for record in train(some.model, some.pairs, queries(), some.config.training, **kinds):
        with Path(folder, "curve.jsonl").open("a") as file:
            for point in record.curve:
                file.write(json.dumps([point.step, point.loss.hex()]) + "\n")
        if checkpoints.due(record.step):
            content = {"weights": some.model.state_dict(), "step": state.step}
            content |= {"optimizer": state.optimizer.state_dict()}
            content |= {"scaler": state.scaler.state_dict()}
            checkpoints.save(content, (0, record.step))
        if record.step == int(die_at):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
