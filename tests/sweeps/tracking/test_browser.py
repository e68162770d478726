"""The saved views as a browser shows them: every link opens on what it promises."""

import html
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.summary import SummaryRow, log_summary
from sweeps.tracking.ui import links
from sweeps.tracking.uploader import Uploader
from tests.sweeps.made_log import MadeLog

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]

EXPERIMENT = "rank/ws"
SHOWN = {
    "trials, means over seeds": ["Group: 48/32", "test/p_5", "cost/train_seconds"],
    "summary, the table to quote": ["agg/p_5_mean", "48/32", "96/64"],
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A server with a sweep of two configurations and three seeds, its summary, its report."""
    home = tmp_path_factory.mktemp("views")
    report = home / "report"
    (report / "plots").mkdir(parents=True)
    (report / "plots" / "forest.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (report / "table.md").write_text("| system | P@5 |\n|---|---|\n| 48/32 | .5 |\n")
    with local_server(f"sqlite:///{home / 'mlflow.db'}") as (base, _):
        log, rows = MadeLog(home / "ws"), []
        for window, stride in ((48, 32), (96, 64)):
            label = f"{window}/{stride}"
            params = {"chunking.window": window, "chunking.stride": stride}
            values = pd.concat([_trial(log, params, seed) for seed in (1, 2, 3)])
            numbers = {"agg/p_5_mean": values["value"].mean(), "agg/p_5_std": 0.01, "agg/p_5_n": 3}
            numbers |= {"cost/train_seconds": float(window)}
            rows.append(SummaryRow(label, label, numbers, params, {}, values.copy))
        uploader = Uploader(log.folder, base, EXPERIMENT)
        uploader.start()
        assert uploader.close(60) == 0
        assert log_summary(base, EXPERIMENT, rows, report) == 2
        yield base


def _trial(log: MadeLog, params: dict[str, int], seed: int) -> pd.DataFrame:
    window, stride = params.values()
    trial = f"w{window}-seed{seed}"
    folder = log.folder / "runs" / trial
    folder.mkdir(parents=True)
    rows = [("test", f"q{n}", "P@5", (window + seed + n) / 200) for n in range(5)]
    values = pd.DataFrame(rows, columns=["split", "query_id", "measure", "value"])
    values.to_parquet(folder / "per_query.parquet")
    log.start(trial, label=f"{window}/{stride}", swept=params)
    log.report(trial, 1, loss=1.0)
    test = {"P@5": values["value"].mean()}
    log.end(trial, test=test, train_seconds=float(window), files=["per_query.parquet"])
    return values


def test_every_link_opens_on_its_view(base, tmp_path):
    client = connect(base)
    experiments = [client.get_experiment_by_name(EXPERIMENT + tail) for tail in ("", "/summary")]
    printed = [re.split("  +", line) for line in links(base, *experiments).splitlines()]
    assert [name for name, _ in printed] == list(SHOWN)
    for name, link in printed:
        page = _rendered(link, tmp_path / "profile")
        assert "shared view" in page, name
        assert [words for words in SHOWN[name] if words not in page] == [], name


def test_per_query_tables_are_what_mlflow_compares_over_runs(base):
    client = connect(base)
    for tail, number in (("", 6), ("/summary", 2)):
        experiment = client.get_experiment_by_name(EXPERIMENT + tail)
        runs = client.search_runs([experiment.experiment_id])
        assert len(runs) == number
        for run in runs:
            [table] = json.loads(run.data.tags["mlflow.loggedArtifacts"])
            assert table == {"path": "eval/per_query.json", "type": "table"}
    values = _artifact(base, runs[0].info.run_id, "eval/per_query.json")
    assert values["columns"] == ["query_id", "P@5"]
    window = int(runs[0].data.params["chunking.window"])
    expected = [[f"q{n}", pytest.approx((window + 2 + n) / 200)] for n in range(5)]
    assert values["data"] == expected  # the mean over the three seeds


def test_the_report_is_one_run_with_its_plots(base):
    client = connect(base)
    experiment = client.get_experiment_by_name(f"{EXPERIMENT}/report")
    [run] = client.search_runs([experiment.experiment_id])
    files = client.list_artifacts(run.info.run_id, "report/plots")
    assert [file.path for file in files] == ["report/plots/forest.svg"]
    assert "48/32" in run.data.tags["mlflow.note.content"] and run.info.status == "FINISHED"


def _artifact(base: str, run_id: str, path: str):
    with urllib.request.urlopen(f"{base}/get-artifact?run_id={run_id}&path={path}") as answer:
        return json.load(answer)


def _rendered(link: str, profile: Path) -> str:
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--window-size=1600,1000 --virtual-time-budget=15000 --dump-dom"
    ).split()
    command = ["chromium", *options, f"--user-data-dir={profile}", link]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    return html.unescape(done.stdout)
