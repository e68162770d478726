"""The saved views of an experiment: what a colleague sees first instead of an empty table.

MLflow keeps saved views as experiment tags in a format of its web pages that is not documented
(read in 3.17); a view that a later version ignores costs nothing but the view.
"""

import base64
import json
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
LEADERBOARD, TRIALS, PARALLEL, COST = "leaderboard", "trials", "parallel", "cost"
VIEWS = {
    LEADERBOARD: "Configurations (mean over seeds)",
    TRIALS: "Trials",
    PARALLEL: "Parallel coordinates",
    COST: "Cost against effectiveness",
}
"""Keys and names of the views; the last two open as charts."""
_AS_CHARTS = (PARALLEL, COST)

_RUN_NAME = "attributes.`Run Name`"
_TAG = "mlflow.sharedViewState."
_MAX_TAG = 20_000  # characters of an experiment tag
_MAX_COLUMNS = 8
_MAX_CURVES = 6
_MAX_COSTS = 4
_MAX_FOLDED = 200  # configurations that start as one line each


@dataclass(frozen=True)
class Layout:
    """What a view shows: metrics (the first one sorts) and the swept settings."""

    metrics: tuple[str, ...]
    params: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    config_ids: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()


def layout_of(
    final_metrics: Iterable[str],
    swept: Iterable[str],
    curves: Iterable[str] = (),
    config_ids: Iterable[str] = (),
) -> Layout | None:
    """The layout for a sweep's metrics; None while no final metric is known.

    Test metrics come first, in the order in which they were recorded; `hp/` are copies of params.
    """
    order = {"test": 0, "agg": 0, "dev": 1, "delta": 2, "cost": 3}
    shown = [name for name in final_metrics if not name.startswith("hp/")]
    shown.sort(key=lambda name: order.get(name.partition("/")[0], 4))
    if not shown:
        return None
    return Layout(
        tuple(shown[:_MAX_COLUMNS]),
        tuple(name for name in swept if name != "seed")[:_MAX_COLUMNS],
        tuple(sorted(curves)[:_MAX_CURVES]),
        tuple(sorted(config_ids)[:_MAX_FOLDED]),
        tuple(name for name in shown if name.startswith("cost/"))[:_MAX_COSTS],
    )


def view_tags(layout: Layout) -> dict[str, str]:
    """The experiment tags that hold the saved views. One without data to show is left out."""
    return _tags({LEADERBOARD: _leaderboard(layout), TRIALS: _trials(layout)}, layout)


def summary_view_tags(layout: Layout) -> dict[str, str]:
    """The saved views of a summary experiment: a row is a configuration, nothing is grouped."""
    return _tags({LEADERBOARD: _shared(layout)}, layout)


def deep_link(base_url: str, experiment_id: str, key: str = LEADERBOARD) -> str:
    """The address that opens a view. Without `workflowType` MLflow shows its page for agents."""
    link = (
        f"{base_url.rstrip('/')}/#/experiments/{experiment_id}/runs"
        f"?workflowType=machine_learning&viewStateShareKey={key}"
    )
    return link + "&compareRunsMode=CHART" if key in _AS_CHARTS else link


def saved_views(tags: Mapping[str, str]) -> list[str]:
    """The keys of those of our views that an experiment with these tags has."""
    return [key for key in VIEWS if _TAG + key in tags]


def _tags(tables: Mapping[str, dict[str, Any]], layout: Layout) -> dict[str, str]:
    states = dict(tables)
    shared = _shared(layout)
    if layout.params:
        states[PARALLEL] = shared | _only_charts(PARALLEL, [_parallel(layout)], columns=1)
    if layout.costs:
        charts = [_scatter(cost, layout.metrics[0]) for cost in layout.costs]
        states[COST] = shared | _only_charts(COST, charts, columns=2)
    texts = {key: _view(VIEWS[key], state) for key, state in states.items()}
    return {_TAG + key: text for key, text in texts.items() if len(text) <= _MAX_TAG}


def _view(name: str, state: Mapping[str, Any]) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    now = time.time_ns() // 1_000_000
    return json.dumps(
        {"name": name, "createdAt": now, "updatedAt": now, "state": "deflate;" + packed}
    )


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"


def _width(column: str) -> int:
    """Pixels in which the name of a column can be read."""
    return 40 + 8 * len(column.partition("`")[2])


def _shared(layout: Layout) -> dict[str, Any]:
    columns = [_column("metrics", name) for name in layout.metrics]
    columns += [_column("params", name) for name in layout.params]
    return {
        "selectedColumns": columns,
        "columnOrder": [_RUN_NAME, *columns],
        "orderByKey": _column("metrics", layout.metrics[0]),
        "orderByAsc": False,
        # A failed trial would enter the mean of its group.
        "searchFilter": "attributes.status = 'FINISHED'",
        "runsHiddenMode": "SHOW_ALL",
        "hideEmptyCharts": True,
        "columnWidths": {_RUN_NAME: 280} | {name: _width(name) for name in columns},
        # In our order, not by name; `hp/` are constants and stay folded.
        "isAccordionReordered": True,
        "compareRunSections": [
            {"uuid": name, "name": name, "display": name != "hp", "isReordered": True}
            for name in ("Overview", "test", "dev", "train", "cost", "hp")
        ],
        "compareRunCharts": _charts(layout),
    }


def _leaderboard(layout: Layout) -> dict[str, Any]:
    return _shared(layout) | {
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": "config.id"}],
        },
        "groupsExpanded": {f"tag.config.id.{name}": False for name in layout.config_ids},
        "useGroupedValuesInCharts": True,
    }


def _trials(layout: Layout) -> dict[str, Any]:
    shared = _shared(layout)
    columns = [
        *(_column("metrics", name) for name in layout.metrics),
        _column("params", "seed"),
        *(_column("params", name) for name in layout.params),
    ]
    # Here failed trials belong in the picture.
    return shared | {
        "selectedColumns": columns,
        "columnOrder": [_RUN_NAME, *columns],
        "searchFilter": "",
    }


def _charts(layout: Layout) -> list[dict[str, Any]]:
    primary = layout.metrics[0]
    charts: list[dict[str, Any]] = [
        {
            "type": "BAR",
            "metricKey": primary,
            "dataAccessKey": primary,
            "uuid": f"bar.{_dotted(primary)}",
        }
    ]
    if layout.params:
        charts.append(_parallel(layout))
    charts += [
        {
            "type": "LINE",
            "metricKey": name,
            "selectedMetricKeys": [name],
            "uuid": f"line.{_dotted(name)}",
            "xAxisKey": "step",
            "scaleType": "linear",
            "lineSmoothness": 0,
            "range": {},
        }
        for name in layout.curves
    ]
    return _placed(charts, "Overview")


def _parallel(layout: Layout) -> dict[str, Any]:
    return {
        "type": "PARALLEL",
        "uuid": "parallel",
        "selectedParams": list(layout.params),
        "selectedMetrics": [layout.metrics[0]],
        "showAllRuns": False,
    }


def _scatter(cost: str, primary: str) -> dict[str, Any]:
    return {
        "type": "SCATTER",
        "uuid": f"scatter.{_dotted(cost)}",
        "xaxis": {"key": cost, "type": "METRIC"},
        "yaxis": {"key": primary, "type": "METRIC"},
    }


def _only_charts(key: str, charts: list[dict[str, Any]], *, columns: int) -> dict[str, Any]:
    """One open section of large charts; MLflow adds folded ones of its own below it."""
    # Named apart from the prefix of a metric, whose charts MLflow would put into it.
    own = f"{key} view"
    sections: list[dict[str, Any]] = [
        {"uuid": own, "name": VIEWS[key], "display": True, "columns": columns, "cardHeight": 440},
        *(
            {"uuid": other, "name": other, "display": False}
            for other in ("Overview", "agg", "best", "test", "dev", "delta", "train", "cost", "hp")
        ),
    ]
    return {
        "compareRunSections": [section | {"isReordered": True} for section in sections],
        "compareRunCharts": _placed(charts, own),
        "runListHidden": True,
    }


def _placed(charts: list[dict[str, Any]], section: str) -> list[dict[str, Any]]:
    shared = {"deleted": False, "isGenerated": False, "metricSectionId": section}
    return [chart | shared | {"runsCountToCompare": 100} for chart in charts]


def _dotted(name: str) -> str:
    return name.replace("/", ".")
