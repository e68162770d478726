"""The weights of a finished trial: left in its folder, taken up by another trial."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from rank_core.checkpoints.chain import cell_trials
from rank_core.errors import BadInput
from rank_core.files import atomic_write

WEIGHTS = "weights.safetensors"
ENCODER = "encoder."


def weights_file(init_from: str, seed: int) -> Path:
    """The file that `training.init_from` means to a trial with `seed`: that of a cell's trial with
    the same seed, of a trial's folder, or the file itself."""
    trials = cell_trials(init_from)
    if trials and seed not in trials:
        known = ", ".join(map(str, sorted(trials)))
        raise BadInput(
            "training.init_from must be a trial, or a cell that has a trial with each seed; "
            f"{init_from} has none with seed {seed}, only with {known}; its sweep makes them with "
            "--seeds and training.keep_weights=true"
        )
    path = trials.get(seed, Path(init_from))
    if path.is_dir():
        path = path / WEIGHTS
    if not path.is_file():
        raise BadInput(
            "training.init_from must be the folder of a finished trial that has kept its weights "
            f"(training.keep_weights=true), its {WEIGHTS}, or the cell of such trials; found no "
            f"file {path}"
        )
    return path


def save_weights(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes `weights.safetensors` into a folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: w.detach().cpu().contiguous() for name, w in weights.items()}
    # As bytes: the library's own writer leaves a file that nobody else may read.
    with atomic_write(folder / WEIGHTS) as unfinished:
        unfinished.write_bytes(save(tensors))


def take_over(model: nn.Module, path: Path) -> tuple[str, ...]:
    """Continues from the weights in `path`; returns the names of those that were taken.

    The encoder must be the same: every parameter of the model's must be there in its shape. Heads
    and aggregators are taken where name and shape agree; others start as they were drawn, because
    a chain of trials may end in another model than it began with (CEDR from a fine-tuned BERT).
    """
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: must hold weights as safetensors; {error}") from None
    own = model.state_dict()
    for name, weight in own.items():
        if name.startswith(ENCODER) and (name not in found or found[name].shape != weight.shape):
            other = f"of shape {tuple(found[name].shape)}" if name in found else "not there"
            raise BadInput(
                f"{path}: the weights must be of the same encoder; {name} has shape "
                f"{tuple(weight.shape)} in the model and is {other} in the file"
            )
    taken = {name: w for name, w in found.items() if name in own and own[name].shape == w.shape}
    with torch.no_grad():
        model.load_state_dict(taken, strict=False)
    return tuple(taken)
