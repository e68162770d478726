"""A sweep with the systems that are computed from its trials: interpolated with the first stage, or
aggregated from the chunk scores that trials kept."""

from dataclasses import replace

from rank_core.errors import BadInput, unknown
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.best import best_on_dev, left_after
from sweeps.systems.interpolation import first_stage_of, interpolate_cells, missing_input
from sweeps.systems.load import Sweep
from sweeps.terminal.command_line import INTERPOLATE


def with_interpolated(sweep: Sweep, rows: str = "") -> Sweep:
    """The sweep with its first stage and the derived systems of the cells that `rows` names (of
    `INTERPOLATE`; empty: as in the sweep's command); unchanged where it kept no candidates. The
    report names the systems that cannot be derived."""
    rows = rows or sweep.about.interpolate
    if rows not in INTERPOLATE:
        raise unknown("--interpolate", rows, INTERPOLATE)
    missing = missing_input(sweep)
    if sweep.aggregates:
        if missing:  # they are computed from these files
            raise BadInput(f"{sweep.folder}: {missing}")
        from sweeps.systems.aggregations import with_aggregations  # brings in torch

        sweep = with_aggregations(sweep, rows)
        return replace(sweep, first_stage=first_stage_of(sweep) if sweep.interpolated else None)
    if rows == "none" or sweep.split != "test":
        return sweep
    if missing:
        return replace(sweep, not_interpolated=missing)
    if not (sweep.folder / FIRST_STAGE).is_dir():
        return sweep
    eliminated, best = left_after(sweep), (sweep.baseline, best_on_dev(sweep))
    cells = [cell.cell for cell in sweep.cells if rows == "all" or cell.cell in best]
    try:
        systems = interpolate_cells(sweep, [name for name in cells if name not in eliminated])
        return replace(sweep, interpolated=systems, first_stage=first_stage_of(sweep))
    except (BadInput, OSError) as error:
        return replace(sweep, not_interpolated=str(error))
