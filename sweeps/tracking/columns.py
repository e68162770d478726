"""Which metrics and settings a sweep turned out to have, learnt from its records."""

from collections.abc import Iterable, Mapping
from typing import Any

from sweeps.tracking.views import Layout, layout_of


class Columns:
    """Grows with the records of a sweep and says when the saved views are out of date."""

    def __init__(self, final_metrics: Iterable[str], curves: Iterable[str]) -> None:
        self.final_metrics = list(final_metrics)
        self.curves = set(curves)
        self._config_ids: set[str] = set()
        self._first: dict[str, str] = {}
        self._swept: dict[str, None] = {}
        self._shown: Layout | None = None

    def add(self, record: Mapping[str, Any]) -> None:
        """Take note of one record."""
        if record["kind"] == "trial":
            self._config_ids.update({record["tags"].get("config.id")} - {None})
            for name, value in record["params"].items():
                if self._first.setdefault(name, value) != value:
                    self._swept[name] = None
        elif record["kind"] == "metrics" and record["step"] > 0:
            self.curves.update(record["values"])
        elif record["kind"] == "finish" and record["status"] == "FINISHED":
            known = set(self.final_metrics)
            self.final_metrics += [name for name in record["metrics"] if name not in known]

    def changed(self) -> Layout | None:
        """The layout to show, None if it is the one last confirmed with `shown`."""
        layout = layout_of(self.final_metrics, self._swept, self.curves, self._config_ids)
        return None if layout == self._shown else layout

    def shown(self, layout: Layout) -> None:
        """Remember that the views show `layout`."""
        self._shown = layout
