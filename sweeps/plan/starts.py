"""Cells of a finished sweep to start from: `training.init_from=sweep:DIR`."""

from pathlib import Path

from rank_core.checkpoints.weights import SWEEP
from rank_core.errors import BadInput
from rank_core.models import model_class, trains
from rank_core.settings.config import TrialConfig
from sweeps.store.records import TRIALS
from sweeps.store.sweep_file import Cell, find_sweep, read_sweep_file
from sweeps.terminal.notation import names_text

WINDOWS = ("chunking.window", "chunking.stride")


def with_start(config: TrialConfig) -> TrialConfig:
    """The configuration that starts from the cell of the same model, where its settings name a
    sweep; a system without trained weights starts from none. Raises `BadInput` where the sweep has
    no such cell, or several that differ in more than their windows."""
    start = config.training.init_from
    if not start.startswith(SWEEP):
        return config
    if not trains(model_class(config.model.name)):
        return config.override({"training.init_from": ""})
    folder = start.removeprefix(SWEEP)
    records = find_sweep(folder)
    if not records.storage.is_local:
        raise BadInput(
            f"training.init_from={start}: the sweep must be a folder on this machine; copy it here"
        )
    cells = _of_model(read_sweep_file(records).cells, config)
    own = config.settings()
    alike = [cell for cell in cells if all(cell.config.get(n) == own[n] for n in WINDOWS)]
    if len(found := alike or cells) != 1:
        what = f"no cell of model {config.model.name} with the same settings of the model"
        if found:
            labels = names_text([cell.label or cell.cell for cell in found])
            what = f"several cells of model {config.model.name}: {labels}"
        raise BadInput(
            f"training.init_from={start}: the sweep has {what}; name one as {folder}/../../"
            f"{TRIALS}/CELL, in a file as training.init_from of its points"
        )
    return config.override(
        {"training.init_from": str(Path(records.storage.root, TRIALS, found[0].cell))}
    )


def _of_model(cells: tuple[Cell, ...], config: TrialConfig) -> list[Cell]:
    """The trained cells with the settings of the model, but for the name of its backbone, whose
    content is checked when the weights are read."""
    own = {name: value for name, value in config.settings().items() if name.startswith("model.")}
    del own["model.backbone"]
    plain = TrialConfig().override({}).settings()

    def same(cell: Cell) -> bool:
        theirs = {name: cell.config.get(name, plain[name]) for name in own}
        lists = {name: tuple(v) if isinstance(v, list) else v for name, v in theirs.items()}
        return lists == own and cell.config.get("training.num_epochs") != 0

    return [cell for cell in cells if same(cell)]
