"""Measurements of groups of workers as runs of MLflow, found by a tag as those of trials are."""

from collections.abc import Mapping, Sequence
from typing import Any

from rank_core.secrets import redact, redact_text
from sweeps.tracking.experiment_runs import GROUP_RUN, ExperimentRuns
from sweeps.tracking.trial_run import GROUP, param_text
from sweeps.tracking.view import send_files


class GroupRuns(ExperimentRuns):
    """A run for each group, with its settings and what it measured, and one with the report. A
    report of a group has `label`, `turn`, `settings`, `values` and `versions`. The driver reports
    also the groups of earlier commands; those that MLflow has stay as they are."""

    noun = "measurement"

    def send(self, name: str, reports: Sequence[Mapping[str, Any]], *, changed: bool) -> None:
        """Sends the last of the reports of a group."""
        if not reports:
            return
        group = reports[-1]
        tags = {GROUP: group["label"]}
        tags |= {f"version.{library}": text for library, text in group["versions"].items()}
        settings = redact(dict(group["settings"]))
        params = {setting: param_text(value) for setting, value in settings.items()}
        shown = f"{group['label']} #{group['turn']}"
        values = {metric: float(value) for metric, value in group["values"].items()}
        run, more = f"{GROUP_RUN}{name}", (shown, tags, values, params)
        self.part(run, "measurements", self.values_run, run, *more)

    def describe(self) -> None:
        """Sends the files of the report, which have the sweep's name, once they are there; without
        secrets, which an earlier command may have written."""
        storage, sweep = self.records.storage, self.records.sweep
        start = self.records.path(f"{sweep}.")
        contents = storage.read_all([one for one in storage.files(sweep) if one.startswith(start)])
        if contents:
            send_files(self, sweep, {path: _redacted(own) for path, own in contents.items()})


def _redacted(content: bytes) -> bytes:
    try:
        return redact_text(content.decode()).encode()
    except UnicodeDecodeError:  # a figure
        return content
