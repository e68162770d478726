"""The weights of a finished trial, left in its folder, and the trials of another cell that a trial
may start from: each from the one with its own seed.

Torch is imported only where weights are read or written.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rank_core.errors import BadInput
from rank_core.files import atomic_write

SEED = re.compile(r"(.*)-seed(\d+)")  # a trial's name


def cell_trials(init_from: str) -> dict[int, Path]:
    """{seed: folder} of the trials of the cell that `training.init_from` names, as a sweep's folder
    `runs/<cell>` without its `-seed<n>`; nothing where it names a trial or a file.

    A chain is known by the name of the cell it starts from, so each folder must be a trial of it.
    Raises `BadInput` where one is not.
    """
    cell = Path(init_from)
    if not init_from or cell.exists():
        return {}
    names = {path: SEED.fullmatch(path.name) for path in cell.parent.glob("*-seed*")}
    trials = {int(m[2]): path for path, m in names.items() if m and m[1] == cell.name}
    for seed, path in trials.items():
        result = path / "result.json"
        recorded = json.loads(result.read_text()) if result.is_file() else {}
        if (recorded.get("cell"), recorded.get("seed")) != (cell.name, seed):
            raise BadInput(
                f"training.init_from={init_from}: every folder of a cell must be a finished trial "
                f"of it, and {path} is none by its result.json"
            )
    return trials


if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = "weights.safetensors"
ENCODER = "encoder."


def weights_file(init_from: str, seed: int) -> Path:
    """The file that `training.init_from` names for a trial with `seed`: that of a cell's trial with
    the same seed, of a trial's folder, or the file itself."""
    trials = cell_trials(init_from)
    if trials and seed not in trials:
        known = ", ".join(map(str, sorted(trials)))
        raise BadInput(
            "training.init_from must be a trial, or a cell that has a trial with each seed; "
            f"{init_from} has none with seed {seed}, only with {known}; its sweep makes them with "
            "--seeds and training.keep_weights=all"
        )
    path = trials.get(seed, Path(init_from))
    if path.is_dir():
        path = path / WEIGHTS
    if not path.is_file():
        raise BadInput(
            "training.init_from must be the folder of a finished trial that has kept its weights "
            f"(training.keep_weights=all), its {WEIGHTS}, or the cell of such trials; found no "
            f"file {path}"
        )
    return path


def save_weights(folder: Path, weights: Mapping[str, "Tensor"]) -> None:
    """Writes `weights.safetensors` into a folder, whole or not at all."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: w.detach().cpu().contiguous() for name, w in weights.items()}
    # As bytes: the library's own writer leaves a file that nobody else may read.
    with atomic_write(folder / WEIGHTS) as unfinished:
        unfinished.write_bytes(save(tensors))


def load_weights(model: "nn.Module", path: Path) -> tuple[str, ...]:
    """Copies the weights in `path` into the model; returns the names of those that were taken.

    The encoder must be the same: every parameter of the model's must be there in its shape. Heads
    and aggregators are taken where name and shape agree; others start as they were drawn, because
    a chain of trials may end in another model than it began with (CEDR from a fine-tuned BERT).
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        saved = load_file(path)
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: must hold weights as safetensors; {error}") from None
    own = model.state_dict()
    for name, weight in own.items():
        if name.startswith(ENCODER) and (name not in saved or saved[name].shape != weight.shape):
            other = f"of shape {tuple(saved[name].shape)}" if name in saved else "not there"
            raise BadInput(
                f"{path}: the weights must be of the same encoder; {name} has shape "
                f"{tuple(weight.shape)} in the model and is {other} in the file"
            )
    taken = {name: w for name, w in saved.items() if name in own and own[name].shape == w.shape}
    with torch.no_grad():
        model.load_state_dict(taken, strict=False)
    return tuple(taken)
