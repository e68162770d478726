"""The report of a sweep: from the tables on disk to `report/`, without Ray and without MLflow."""

from sweeps.report.build import Report, write_report
from sweeps.report.command import main

__all__ = ["Report", "main", "write_report"]
