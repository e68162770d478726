"""The commands of `python -m sweeps` that concern MLflow."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput
from sweeps.tracking.sync import sync
from sweeps.tracking.ui import serve


def ui(argv: Sequence[str]) -> int:
    """Serves the sweep's MLflow experiment on loopback and prints the link to its view."""
    parser = argparse.ArgumentParser(prog="python -m sweeps ui", description=ui.__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    arguments = parser.parse_args(argv)
    sweep = _description(arguments.folder)
    return serve(sweep["tracking_uri"], sweep["experiment"], arguments.port)


def mlflow_sync(argv: Sequence[str]) -> int:
    """Sends what MLflow has not taken yet; sending twice changes nothing."""
    parser = argparse.ArgumentParser(prog="python -m sweeps mlflow-sync", description=sync.__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--tracking-uri", help="default: the one the sweep was run with")
    arguments = parser.parse_args(argv)
    sweep = _description(arguments.folder)
    uri = arguments.tracking_uri or sweep["tracking_uri"]
    print(f"{sync(arguments.folder, uri, sweep['experiment'])} records sent to {uri}")
    return 0


def _description(folder: Path) -> dict[str, Any]:
    path = folder / "sweep.json"
    if not path.exists():
        raise BadInput(
            f"DIR must be a sweep's folder, which holds sweep.json; found none in {folder}"
        )
    try:
        sweep: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    missing = [key for key in ("tracking_uri", "experiment") if key not in sweep]
    if missing:
        raise BadInput(f"{path}: must name tracking_uri and experiment; missing: {missing[0]}")
    return sweep
