"""Per-query values as a table that MLflow's pages show and join over runs, query by query."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

PER_QUERY = "per_query.parquet"
_TABLE = "eval/per_query.json"
_TABLES_TAG = "mlflow.loggedArtifacts"  # what MLflowClient.log_table sets, too


def log_query_table(client: "MlflowClient", run_id: str, parquet: Path) -> None:
    """The test values of a trial's `per_query.parquet` as a table of its run.

    `MlflowClient.log_table` would append to a table that is there already; this replaces it.
    """
    import pandas as pd

    put_query_table(client, run_id, pd.read_parquet(parquet))


def put_query_table(client: "MlflowClient", run_id: str, values: "pd.DataFrame") -> None:
    """The test values of one configuration, several seeds averaged, as a table of a run: a row per
    query, a column per measure."""
    client.log_dict(run_id, query_table(values), _TABLE)
    client.set_tag(run_id, _TABLES_TAG, json.dumps([{"path": _TABLE, "type": "table"}]))


def query_table(values: "pd.DataFrame") -> dict[str, Any]:
    """{columns, data} with the rows of split test, one per query, measures in order."""
    test = values[values["split"] == "test"]
    wide = test.pivot_table("value", "query_id", "measure", sort=False).sort_index()
    rows = wide.reset_index().itertuples(index=False, name=None)
    return {"columns": ["query_id", *wide.columns], "data": [list(row) for row in rows]}
