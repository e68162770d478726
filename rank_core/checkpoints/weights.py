"""The weights that a finished trial kept in its folder, and the trials of another cell to start
from: each trial starts from the one with its own seed.

Torch is imported only when weights are read or written.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rank_core.errors import BadInput
from rank_core.files import atomic_write
from rank_core.parsing import parsed_json

SEED = re.compile(r"(.*)-seed(-?[0-9]+)")  # a trial's name


SWEEP = "sweep:"
"""Begins a `training.init_from` that names a finished sweep; its plan puts the cell of the same
model in its place."""
STORED = "cell:"
"""Begins a `training.init_from` that names a cell of the sweep's own storage: its trial with the
same seed, whose weights the sweep brings to the process that runs the trial."""


def stored_cell(init_from: str) -> str:
    """The cell that `cell:NAME` names; empty for paths."""
    return init_from.removeprefix(STORED) if init_from.startswith(STORED) else ""


def cell_trials(init_from: str) -> dict[int, Path]:
    """{seed: folder} of the trials of the cell named by `training.init_from`, in the form
    `trials/<cell>` without `-seed<n>`; empty if it names a trial or a file.

    A chained trial is identified by the cell's name, so each folder must have a trial of that cell;
    raises `BadInput` otherwise.
    """
    cell = Path(init_from)
    if not init_from or stored_cell(init_from) or cell.exists():
        return {}
    names = {path: SEED.fullmatch(path.name) for path in cell.parent.glob("*-seed*")}
    trials = {int(m[2]): path for path, m in names.items() if m and m[1] == cell.name}
    for seed, path in trials.items():
        result = path / "result.json"
        recorded = parsed_json(result.read_text(), result) if result.is_file() else {}
        if (recorded.get("cell"), recorded.get("seed")) != (cell.name, seed):
            raise BadInput(
                f"training.init_from={init_from}: {path} is not a finished trial of that cell, "
                "according to its result.json"
            )
    return trials


if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = "weights.safetensors"
ENCODER = "encoder."


def weights_file(init_from: str, seed: int) -> Path:
    """The weights that `training.init_from` gives to a trial with `seed`: of a cell's trial with
    that seed, of a trial's folder, or the file itself. Raises `BadInput` for a missing file."""
    if stored_cell(init_from):
        raise BadInput(
            f"training.init_from={init_from} names a cell of a sweep's storage, which only a "
            "sweep knows; name the folder of a finished trial"
        )
    trials = cell_trials(init_from)
    if trials and seed not in trials:
        known = ", ".join(map(str, sorted(trials)))
        raise BadInput(
            f"training.init_from={init_from} has no trial with seed {seed}, only with {known}; run "
            "its sweep with more --seeds and training.keep_weights=all"
        )
    path = trials.get(seed, Path(init_from))
    if path.is_dir():
        path = path / WEIGHTS
    if not path.is_file():
        raise BadInput(
            f"training.init_from: there is no file {path}; name a finished trial's folder with "
            f"its weights (training.keep_weights=all), its {WEIGHTS}, or the cell of such "
            "trials"
        )
    return path


BASE = "base"
"""The key of an adapter's metadata with the content hash of the encoder that it is for."""


def save_weights(folder: Path, weights: Mapping[str, "Tensor"], base: str = "") -> None:
    """Writes `weights.safetensors` to a folder, atomically; `base` is the content hash of the
    encoder that adapters are for."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: w.detach().cpu().contiguous() for name, w in weights.items()}
    # Written as bytes, because the library creates files that other users cannot read.
    with atomic_write(folder / WEIGHTS) as unfinished:
        unfinished.write_bytes(save(tensors, {BASE: base} if base else None))


def require_base(path: Path, base: str) -> None:
    """Raises `BadInput` for adapters of another encoder than that with content hash `base`, and for
    a file without weights."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            own = (file.metadata() or {}).get(BASE, base)
    except (SafetensorError, OSError) as error:
        raise _no_weights(path, error) from None
    if own != base:
        raise BadInput(
            f"{path} holds adapters (training.lora_rank) of another backbone: of content {own}, "
            f"this one's is {base}"
        )


def _no_weights(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path} has no safetensors weights: {error}")


def saved_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """{weight: its shape} of a file, by its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}
    except (SafetensorError, OSError) as error:
        raise _no_weights(path, error) from None


def require_encoder(
    path: Path, own: Mapping[str, tuple[int, ...]], saved: Mapping[str, tuple[int, ...]]
) -> None:
    """Raises `BadInput` unless the file has all weights of the model's encoder with their shapes.
    Both are {weight: its shape}."""
    for name, shape in own.items():
        if name.startswith(ENCODER) and saved.get(name) != shape:
            other = f"of shape {saved[name]}" if name in saved else "missing"
            raise BadInput(
                f"{path}: the weights are of another encoder; {name} has shape {shape} in the "
                f"model and is {other} in the file"
            )


def load_weights(
    model: "nn.Module", path: Path, own: "Mapping[str, Tensor] | None" = None
) -> tuple[str, ...]:
    """Copies the weights in `path` into the model; returns the names of those copied. `own` are the
    model's weights that are wanted, all by default.

    The encoder must be the same: raises `BadInput` unless all of its parameters are there with the
    same shapes. Heads and aggregators are copied if name and shape agree; otherwise they keep their
    random initialisation, as a chain may change the model (CEDR from a fine-tuned BERT).
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        saved = load_file(path)
    except (SafetensorError, OSError) as error:
        raise _no_weights(path, error) from None
    own = model.state_dict() if own is None else own
    shapes = [{name: tuple(w.shape) for name, w in weights.items()} for weights in (own, saved)]
    require_encoder(path, *shapes)
    taken = {name: w for name, w in saved.items() if name in own and own[name].shape == w.shape}
    with torch.no_grad():
        model.load_state_dict(taken, strict=False)
    return tuple(taken)
