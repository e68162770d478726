"""What MLflow shows of a sweep besides its trials: answer, report, and a saved view, which replaces
MLflow's empty default table: a line per configuration with its means over seeds, and charts.

MLflow keeps saved views as experiment tags in an undocumented format of its web pages (read in
3.17); a later version may ignore it.
"""

import base64
import hashlib
import json
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sweeps.store.sweep_file import FIRST_STAGE, SweepFile, verdict
from sweeps.terminal.escape import markdown_text
from sweeps.tracking.experiment_runs import ExperimentRuns
from sweeps.tracking.trial_run import GROUP, config_tags, metric_name, number_name

VIEW = "leaderboard"
_NAME = "Configurations (mean over seeds)"
_TAG = f"mlflow.sharedViewState.{VIEW}"
_RUN_NAME = "attributes.`Run Name`"
_MAX_TAG = 20_000  # characters of an experiment tag
_MAX_COLUMNS = 8
_MAX_FOLDED = 200  # configurations that start as one line each
BEST, LATEST = "best/dev_", "dev/"  # prefixes of the values on dev: at the best step, the last
REPORT = "report"
_NOTE, _OURS = "mlflow.note.content", "mlflow.note.contentHash"  # hidden, as are all mlflow.*
_PLACED = {"deleted": False, "isGenerated": False, "metricSectionId": "Overview",
           "runsCountToCompare": 100}  # fmt: skip


def describe(runs: ExperimentRuns, sweep: SweepFile) -> None:
    """Sets the saved view, the runs of the first stage and of the report, and the description of
    the experiment. A description that a user has changed in MLflow stays."""
    _send_first_stage(runs, sweep)
    experiment = runs.client.get_experiment(runs.experiment_id)
    tags = view_tags(sweep, experiment.creation_time or 0)
    text = _text(runs, sweep, _send_report(runs))
    before = experiment.tags.get(_NOTE, "")
    if experiment.tags.get(_OURS, "") == (_hash(before) if before else ""):
        tags |= {_NOTE: text, _OURS: _hash(text)}
    for name, value in tags.items():
        if experiment.tags.get(name) != value:
            send = runs.client.set_experiment_tag
            runs.part(experiment.name, name, send, runs.experiment_id, name, value)


def _text(runs: ExperimentRuns, sweep: SweepFile, report: str) -> str:
    """The answer (the report's first sentence), the question, the table. The list of experiments
    shows the beginning, without Markdown."""
    question = markdown_text(f"Question: {sweep.question}")
    meaning = "A run is a trial: one configuration, one seed."
    if not report:
        return "\n\n".join([question, "No answer yet.", meaning])
    table = (runs.records.read_file(f"{REPORT}/table.md") or b"").decode()
    link = f"#/experiments/{runs.experiment_id}/runs/{report}/artifacts"
    linked = f"[The report]({link}?workflowType=machine_learning) has page, tables and plots."
    parts = [markdown_text(verdict(runs.records)), question, f"{meaning} {linked}"]
    text = "\n\n".join(filter(None, parts))
    whole = f"{text}\n\n{table}"
    return whole if len(whole) <= _MAX_TAG else text


def _send_report(runs: ExperimentRuns) -> str:
    """The id of the run with the report's files, sent if they have changed; "" without a report.
    The view leaves it out: it has no configuration."""
    storage, start = runs.records.storage, runs.records.path(REPORT)
    contents = storage.read_all(storage.files(start))
    if f"{start}/results.json" not in contents:
        return ""
    return send_files(runs, start, contents)


def send_files(runs: ExperimentRuns, start: str, contents: Mapping[str, bytes]) -> str:
    """The id of the report's run, with files from below `start` of the storage."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        for path, content in sorted(contents.items()):
            file = Path(folder, path.removeprefix(f"{start}/"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            digest.update(path.encode() + content)
        return runs.files_run(REPORT, Path(folder), digest.hexdigest()[:16])


def _send_first_stage(runs: ExperimentRuns, sweep: SweepFile) -> None:
    """The first stage as a finished run: what every configuration has to beat."""
    values = {"test/": sweep.first_stage, BEST: sweep.first_stage_dev}
    points = {
        f"{prefix}{metric_name(name)}": value
        for prefix, means in values.items()
        for name, value in means.items()
    }
    if points and not any(cell.config.get("model.name") == "bm25" for cell in sweep.cells):
        label = str(sweep.collection.get("first_stage") or "first stage")
        runs.values_run(FIRST_STAGE, label, config_tags(label, FIRST_STAGE), points)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def view_tags(sweep: SweepFile, time: int) -> dict[str, str]:
    """The experiment tag that holds the view; nothing for a sweep too large for a tag."""
    packed = base64.b64encode(zlib.compress(json.dumps(_state(sweep)).encode())).decode()
    view = {"name": _NAME, "createdAt": time, "updatedAt": time, "state": "deflate;" + packed}
    text = json.dumps(view)
    return {_TAG: text} if len(text) <= _MAX_TAG else {}


def links(base_url: str, experiment_id: str) -> str:
    """The addresses that open the view as a table and as charts. Without `workflowType` MLflow
    shows its page for agents."""
    page = f"{base_url.rstrip('/')}/#/experiments/{experiment_id}/runs"
    page += f"?workflowType=machine_learning&viewStateShareKey={VIEW}"
    return f"table   {page}\ncharts  {page}&compareRunsMode=CHART"


def _state(sweep: SweepFile) -> dict[str, Any]:
    measures = [sweep.primary, *(name for name in sweep.measures if name != sweep.primary)]
    metrics = [f"test/{metric_name(name)}" for name in measures][:_MAX_COLUMNS]
    # Dev chooses, so it comes first; a running trial has its latest value alone.
    dev, latest = (f"{prefix}{metric_name(sweep.primary)}" for prefix in (BEST, LATEST))
    params = _varied(sweep)
    shown = [dev, *metrics, latest, "cost/train_seconds"]
    columns = [f"metrics.`{name}`" for name in shown]
    columns += [f"params.`{name}`" for name in params]
    return {
        "selectedColumns": columns,
        "columnOrder": [_RUN_NAME, *columns],
        "orderByKey": columns[0],
        "orderByAsc": False,
        # A failed trial would enter the mean of its group; the report's run has no configuration.
        "searchFilter": "attributes.status != 'FAILED' and attributes.status != 'KILLED' "
        f"and tags.{GROUP} != ''",
        "runsHiddenMode": "SHOW_ALL",
        "hideEmptyCharts": True,
        # In pixels.
        "columnWidths": {_RUN_NAME: 520} | {c: 40 + 8 * len(c.partition("`")[2]) for c in columns},
        "groupBy": {
            "aggregateFunction": "average",
            # Of several tags MLflow's list beside the charts would show the first one's name alone.
            "groupByKeys": [{"mode": "tag", "groupByData": GROUP}],
        },
        "groupsExpanded": {
            f"tag.{GROUP}.{config_tags(cell.label, cell.cell)[GROUP]}": False
            for cell in sweep.cells[:_MAX_FOLDED]
        },
        "useGroupedValuesInCharts": True,
        # In this order, not by name.
        "isAccordionReordered": True,
        "compareRunSections": [
            {"uuid": name, "name": name, "display": name != "hp", "isReordered": True}
            for name in ("Overview", "best", "test", "train", "cost", "hp")
        ],
        "compareRunCharts": list(_charts(sweep, dev, metrics[0])),
    }


def _varied(sweep: SweepFile, *, numbers: bool = False) -> list[str]:
    """The swept settings with several values; MLflow's lines between axes need `numbers`."""
    varied = []
    for name in sweep.swept:
        given = [cell.config[name] for cell in sweep.cells if name in cell.config]
        drawn = not numbers or all(isinstance(value, int | float) for value in given)
        if len(set(map(str, given))) > 1 and drawn:
            varied.append(name)
    return varied[:_MAX_COLUMNS]


def _charts(sweep: SweepFile, dev: str, primary: str) -> Iterable[dict[str, Any]]:
    """Bars of the measure on dev and on test, learning curves with bands over seeds, parallel
    coordinates."""
    for name, place in ((dev, "bar.dev"), (primary, "bar")):
        yield _PLACED | {"type": "BAR", "metricKey": name, "dataAccessKey": name, "uuid": place}
    for name in (f"dev/{metric_name(sweep.primary)}", "train/loss"):
        yield _PLACED | {
            "type": "LINE",
            "metricKey": name,
            "selectedMetricKeys": [name],
            "uuid": f"line.{name.replace('/', '.')}",
            "xAxisKey": "step",
            "scaleType": "linear",
            "lineSmoothness": 0,
            "range": {},
        }
    if numbers := _varied(sweep, numbers=True):
        yield _PLACED | {
            "type": "PARALLEL",
            "uuid": "parallel",
            # MLflow shows no chart at all over a param that one configuration lacks.
            "selectedParams": [],
            "selectedMetrics": [*map(number_name, numbers), primary],
            "showAllRuns": False,
        }
