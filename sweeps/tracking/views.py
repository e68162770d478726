"""The saved view of an experiment: what a colleague sees first instead of an empty table.

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
LEADERBOARD = "leaderboard"
"""Key of the view grouped by configuration."""
TRIALS = "trials"
"""Key of the view with one row per trial."""

_TAG = "mlflow.sharedViewState."
_MAX_TAG = 20_000  # characters of an experiment tag
_MAX_COLUMNS = 8
_MAX_CURVES = 6
_MAX_FOLDED = 200  # configurations that start as one line each


@dataclass(frozen=True)
class Layout:
    """What a view shows: metrics (the first one sorts) and the swept settings."""

    metrics: tuple[str, ...]
    params: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    config_ids: tuple[str, ...] = ()


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
    )


def view_tags(layout: Layout) -> dict[str, str]:
    """The experiment tags that hold the saved views."""
    views = {
        LEADERBOARD: _view("Configurations (mean over seeds)", _leaderboard(layout)),
        TRIALS: _view("Trials", _trials(layout)),
    }
    return {_TAG + key: text for key, text in views.items() if len(text) <= _MAX_TAG}


def summary_view_tags(layout: Layout) -> dict[str, str]:
    """The saved view of a summary experiment: a row is a configuration, nothing is grouped."""
    return {_TAG + LEADERBOARD: _view("Leaderboard", _shared(layout))}


def deep_link(
    base_url: str, experiment_id: str, key: str = LEADERBOARD, *, charts: bool = False
) -> str:
    """The address that opens a view. Without `workflowType` MLflow shows its page for agents."""
    link = (
        f"{base_url.rstrip('/')}/#/experiments/{experiment_id}/runs"
        f"?workflowType=machine_learning&viewStateShareKey={key}"
    )
    return link + "&compareRunsMode=CHART" if charts else link


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
        "columnOrder": columns,
        "orderByKey": _column("metrics", layout.metrics[0]),
        "orderByAsc": False,
        # A failed trial would enter the mean of its group.
        "searchFilter": "attributes.status = 'FINISHED'",
        "runsHiddenMode": "SHOW_ALL",
        "hideEmptyCharts": True,
        "columnWidths": {name: _width(name) for name in columns},
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
    return shared | {"selectedColumns": columns, "columnOrder": columns, "searchFilter": ""}


def _charts(layout: Layout) -> list[dict[str, Any]]:
    primary = layout.metrics[0]
    bar = primary.replace("/", ".")
    charts: list[dict[str, Any]] = [
        {"type": "BAR", "metricKey": primary, "dataAccessKey": primary, "uuid": f"bar.{bar}"}
    ]
    if layout.params:
        charts.append(
            {
                "type": "PARALLEL",
                "uuid": "parallel",
                "selectedParams": list(layout.params),
                "selectedMetrics": [primary],
                "showAllRuns": False,
            }
        )
    charts += [
        {
            "type": "LINE",
            "metricKey": name,
            "selectedMetricKeys": [name],
            "uuid": f"line.{name.replace('/', '.')}",
            "xAxisKey": "step",
            "scaleType": "linear",
            "lineSmoothness": 0,
            "range": {},
        }
        for name in layout.curves
    ]
    shared = {"deleted": False, "isGenerated": False, "metricSectionId": "Overview"}
    return [chart | shared | {"runsCountToCompare": 100} for chart in charts]
