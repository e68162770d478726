"""The report of a sweep: from the tables on disk to `report/`, without Ray and without MLflow."""

from sweeps.report.build import Report, write_report

__all__ = ["Report", "write_report"]
