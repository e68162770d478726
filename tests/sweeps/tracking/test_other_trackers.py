"""What docs/tracking.md says of other trackers: they are refused as a tracking URI, and the lines
that copy a finished sweep to them run against their offline modes."""

import importlib.util
import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rank_core.errors import BadInput
from sweeps.report.build import write_report
from sweeps.tracking.client import check_tracking_uri
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

PAGE = Path(__file__).parents[3] / "docs" / "tracking.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("scheme, name", [("wandb", "Weights & Biases"), ("trackio", "trackio")])
def test_another_tracker_is_refused_with_what_is_read(scheme, name):
    with pytest.raises(BadInput) as refused:
        check_tracking_uri(f"{scheme}://team/project")
    assert str(refused.value) == (
        f"--tracking-uri {scheme}:// is not read: the one tracker is MLflow (sqlite:///FILE, "
        "http(s)://HOST:PORT, postgresql://USER@HOST/DATABASE, none), and docs/tracking.md copies "
        f"a finished sweep to {name}"
    )


@pytest.fixture
def sweep(tmp_path) -> dict[str, Any]:
    """The numbers of a finished sweep, in the folder that the page names."""
    folder = write_ranked_sweep(tmp_path / "results" / "window_stride" / "python-docs")
    write_report(folder)
    return json.loads((folder / "report" / "results.json").read_text())


def run_lines(package: str, folder: Path, **given: str) -> None:
    """The lines of the page that import a package, in a process and a folder of their own."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install {package})")
    [code] = [block for block in BLOCKS if f"import {package}\n" in block]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), **given},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def numbers_of(cell: dict[str, Any]) -> dict[str, list[float]]:
    """{name in a tracker: its values} of a configuration."""
    found = {f"{name}/mean": [own["mean"]] for name, own in cell["measures"].items()}
    seeds = {f"{name}/seed": [*own["per_seed"].values()] for name, own in cell["measures"].items()}
    return found | seeds


@pytest.mark.slow
def test_the_lines_for_weights_and_biases_copy_means_seeds_and_report(sweep, tmp_path):
    run_lines("wandb", tmp_path, WANDB_MODE="offline", WANDB_SILENT="true")
    runs = {}
    for file in tmp_path.glob("wandb/offline-run-*/run-*.wandb"):
        name, config, numbers = read_offline_run(file)
        runs[name] = numbers
        cell = next(cell for cell in sweep["cells"] if cell["label"] == name)
        assert config.items() >= cell["settings"].items()
        pages = [*file.parent.glob("files/media/html/report_*.html")]
        assert len(pages) == 1 and "<html" in pages[0].read_text()
    assert runs == {cell["label"]: numbers_of(cell) for cell in sweep["cells"]}


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of a file in the log format of LevelDB, after seven bytes of its own: blocks of
    32 KiB with parts of records, each after a checksum, its length and its type."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if (left := -place % 32768) < 7 and left:  # no room for a part's header
            place += left
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""


def read_offline_run(file: Path) -> tuple[str, dict[str, Any], dict[str, list[float]]]:
    """The name, the settings and the logged numbers of a run that wandb has kept."""
    from wandb.proto import wandb_internal_pb2 as records

    name, config, numbers = "", {}, {}
    for data in records_of(file.read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        if record.run.display_name:
            name = record.run.display_name
        for update in (*record.run.config.update, *record.config.update):
            config[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
        for item in record.history.item:
            key = item.key or ".".join(item.nested_key)
            if key.endswith("/seed"):
                numbers.setdefault(key, []).append(json.loads(item.value_json))
        for item in record.summary.update:
            key = item.key or ".".join(item.nested_key)
            if key.endswith("/mean"):
                numbers[key] = [json.loads(item.value_json)]
    return name, config, numbers


@pytest.mark.slow
def test_the_lines_for_trackio_copy_means_seeds_and_report(sweep, tmp_path):
    run_lines("trackio", tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"), HF_HUB_OFFLINE="1")
    [file] = (tmp_path / "trackio").glob("window_stride*.db")
    with sqlite3.connect(file) as database:
        rows = database.execute("select run_name, metrics from metrics order by step").fetchall()
    runs: dict[str, dict[str, list[float]]] = {}
    pages = {}
    for name, text in rows:
        for key, value in json.loads(text).items():
            if key == "report":
                pages[name] = value
            elif "/" in key:
                runs.setdefault(name, {}).setdefault(key, []).append(value)
    assert runs == {cell["label"]: numbers_of(cell) for cell in sweep["cells"]}
    assert pages.keys() == runs.keys()
