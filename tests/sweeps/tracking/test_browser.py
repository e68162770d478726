"""The saved view as a browser shows it: configurations, charts and parallel coordinates."""

import html
import shutil
import subprocess

import pytest

from sweeps.tracking.client import connect, find_experiment
from sweeps.tracking.server import local_server
from sweeps.tracking.thread import sync
from sweeps.tracking.view import links
from tests.sweeps.tracking.made_sweep import EXPERIMENT, SHOWN, MadeSweep

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]
# A person reads the label, in the narrow list beside the charts too.
FIRSTP, MAXP = "Group: FirstP 48 (c1)", "Group: MaxP 48/32 (c2)"
CONTENT = {
    "table": [FIRSTP, MAXP, "test/p_5", "chunking.window"],
    "charts": [MAXP, "train/loss", "Parallel Coordinates", "hp/window"],
}


def test_the_links_open_on_the_view(tmp_path):
    sweep = MadeSweep(tmp_path)
    sweep.whole("c1-seed1", "c1-seed2", "c2-seed1", "c2-seed2")
    sweep.records.write_file("report/results.json", b'{"conclusions": ["48/32 is better."]}')
    with local_server(f"sqlite:///{tmp_path / 'mlflow.db'}") as (base, _):
        assert sync(sweep.reader, base, EXPERIMENT) == 4
        experiment = find_experiment(connect(base), EXPERIMENT).experiment_id
        for line in links(base, experiment).splitlines():
            name, link = line.split()
            page = rendered(link, tmp_path / "profile")
            shown = ["shared view", SHOWN.partition("/")[2], "48/32 is better.", *CONTENT[name]]
            assert [words for words in shown if words not in page] == [], name
            assert "Additional runs" not in page, "the report is not a configuration"
            assert "does not support" not in page, "a chart that MLflow cannot draw"


def rendered(link: str, profile) -> str:
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--window-size=2200,2000 --virtual-time-budget=25000 --dump-dom"
    ).split()
    command = ["chromium", *options, f"--user-data-dir={profile}", link]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    return html.unescape(done.stdout)
