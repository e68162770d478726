"""A sweep with the systems that are computed from its trials: interpolated with the first stage, or
aggregated from the chunk scores that trials kept."""

from dataclasses import replace

from rank_core.errors import BadInput, unknown
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.choice import with_rows
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

        return with_aggregations(sweep, rows)
    if {rows, sweep.about.interpolate} == {"none"} or sweep.split != "test":
        return sweep
    if missing:
        return replace(sweep, not_interpolated=missing)
    if not (sweep.folder / FIRST_STAGE).is_dir():
        return sweep
    cells = [cell.cell for cell in sweep.cells if cell.cell not in sweep.about.eliminated]
    try:
        mixed = interpolate_cells(sweep, cells)
        return with_rows(replace(sweep, mixed=mixed, first_stage=first_stage_of(sweep)), rows)
    except (BadInput, OSError) as error:
        return replace(sweep, not_interpolated=str(error))
