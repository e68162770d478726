"""The saved view of an experiment, which replaces MLflow's empty default table.

MLflow keeps saved views as experiment tags in an undocumented format of its web pages (read in
3.17); a later version may ignore it.
"""

import base64
import json
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sweeps.tracking.records import Record

VIEW = "leaderboard"
VIEW_NAME = "Configurations (mean over seeds)"

ATTRIBUTES = ("Dataset", "Models")  # columns that MLflow fills itself
_RUN_NAME = "attributes.`Run Name`"
_TAG = f"mlflow.sharedViewState.{VIEW}"
_MAX_TAG = 20_000  # characters of an experiment tag
_MAX_COLUMNS = 8
_MAX_CURVES = 6
_MAX_FOLDED = 200  # configurations that start as one line each


@dataclass(frozen=True)
class Layout:
    """The content of a view: metrics (the first one sorts) and the swept settings."""

    metrics: tuple[str, ...]
    params: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    config_ids: tuple[str, ...] = ()


class Columns:
    """The metrics and settings of a sweep, collected from its records."""

    def __init__(self, curves: Iterable[str] = ()) -> None:
        self._finals: dict[str, None] = {}
        self.curves = set(curves)
        self._config_ids: set[str] = set()
        self._first: dict[str, str] = {}
        self._swept: dict[str, None] = {}
        self._shown: Layout | None = None

    def add(self, record: Record) -> None:
        """Add a record."""
        if record.kind == "created":
            self._config_ids.update({record.tags.get("config.id", "")} - {""})
            for name, value in record.params.items():
                if self._first.setdefault(name, value) != value:
                    self._swept[name] = None
        elif record.kind == "points":
            self.curves.update(name for name, _, _ in record.points)
        elif record.status == "FINISHED":
            self._finals |= dict.fromkeys(name for name, _, _ in record.points)

    def changed(self) -> Layout | None:
        """The layout to show; None if `shown` has confirmed it."""
        layout = layout_of(self._finals, self._swept, self.curves, self._config_ids)
        return None if layout == self._shown else layout

    def shown(self, layout: Layout) -> None:
        """Record that the view shows `layout`."""
        self._shown = layout


def layout_of(
    final_metrics: Iterable[str],
    swept: Iterable[str],
    curves: Iterable[str] = (),
    config_ids: Iterable[str] = (),
) -> Layout | None:
    """The layout for a sweep's metrics; None without a final metric. Test metrics come first, in
    the order of their records; `hp/` are copies of params.
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
    """The experiment tag that holds the view of a sweep's trials, a line per configuration."""
    return _tags(_state(layout, ATTRIBUTES) | _grouped(layout))


def summary_view_tags(layout: Layout) -> dict[str, str]:
    """The tag with the view of a summary experiment: a row per configuration, no groups."""
    return _tags(_state(layout))


def deep_link(base_url: str, experiment_id: str) -> str:
    """The address that opens the view. Without `workflowType` MLflow shows its page for agents."""
    return (
        f"{base_url.rstrip('/')}/#/experiments/{experiment_id}/runs"
        f"?workflowType=machine_learning&viewStateShareKey={VIEW}"
    )


def _tags(state: dict[str, Any]) -> dict[str, str]:
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    now = time.time_ns() // 1_000_000
    view = {"name": VIEW_NAME, "createdAt": now, "updatedAt": now, "state": "deflate;" + packed}
    text = json.dumps(view)
    return {_TAG: text} if len(text) <= _MAX_TAG else {}


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"


def _width(column: str) -> int:
    """Width in pixels of a column's name."""
    return 40 + 8 * len(column.partition("`")[2])


def _state(layout: Layout, attributes: Iterable[str] = ()) -> dict[str, Any]:
    columns = [_column("metrics", name) for name in layout.metrics]
    columns += [_column("params", name) for name in layout.params]
    columns += [_column("attributes", name) for name in attributes]
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
        # In this order, not by name; `hp/` are constants and stay folded.
        "isAccordionReordered": True,
        "compareRunSections": [
            {"uuid": name, "name": name, "display": name != "hp", "isReordered": True}
            for name in ("Overview", "test", "dev", "train", "cost", "hp")
        ],
        "compareRunCharts": _charts(layout),
    }


def _grouped(layout: Layout) -> dict[str, Any]:
    return {
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "tag", "groupByData": "config.id"}],
        },
        "groupsExpanded": {f"tag.config.id.{name}": False for name in layout.config_ids},
        "useGroupedValuesInCharts": True,
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


def _placed(charts: list[dict[str, Any]], section: str) -> list[dict[str, Any]]:
    shared = {"deleted": False, "isGenerated": False, "metricSectionId": section}
    return [chart | shared | {"runsCountToCompare": 100} for chart in charts]


def _dotted(name: str) -> str:
    return name.replace("/", ".")
