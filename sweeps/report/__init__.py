"""The report of a sweep: from its trials' folders to `report/`, without Ray and MLflow."""
