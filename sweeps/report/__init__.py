"""The report of a sweep: from the tables on disk to `report/`, without Ray and without MLflow."""
