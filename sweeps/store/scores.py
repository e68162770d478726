"""The per-query values of finished trials as one table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rank_core.bounds import check_parquet
from sweeps.store.records import SCORES, DamagedTrial, Records

if TYPE_CHECKING:
    import pandas as pd

SCORE_COLUMNS = ("cell", "seed", "split", "query_id", "measure", "value")
TEXTS = ("cell", "split", "query_id", "measure")
"""Columns of few different texts: read as categories, a row takes 32 bytes."""


def read_scores(records: Records, names: Sequence[str]) -> "pd.DataFrame":
    """The per-query values of these trials, `TEXTS` as sorted categories; raises `DamagedTrial`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.dictionary(pa.int32(), pa.string())
    types = dict.fromkeys(TEXTS, text) | {"seed": pa.int64(), "value": pa.float64()}
    schema = pa.schema([(name, types[name]) for name in SCORE_COLUMNS])
    tables = [schema.empty_table()]
    for name, content in records.read_each(names, SCORES).items():
        try:
            # `pq.read_table` would spend most of its time in looking for further files.
            file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=list(TEXTS))
            check_parquet(file, f"{name}/{SCORES}", len(content))
            tables.append(file.read().select(list(SCORE_COLUMNS)).cast(schema))
        except (pa.ArrowException, KeyError) as error:
            raise DamagedTrial(name, SCORES, f"must be a table: {error}") from None
    whole = pa.concat_tables(tables).unify_dictionaries()
    return as_categories(whole.to_pandas(self_destruct=True, split_blocks=True))


def as_categories(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table with its `TEXTS` columns as categories, which sort as the texts do."""
    for name in TEXTS:
        column = table[name].astype("category")
        table[name] = column.cat.reorder_categories(sorted(column.cat.categories))
    return table
