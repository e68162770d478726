"""Cross-validation folds of a file, such as those that a paper publishes."""

from collections.abc import Mapping
from pathlib import Path

from rank_core.data.folds import kept_together
from rank_core.data.readers import gathered_groups, has_names, labels
from rank_core.data.trec import query_lines
from rank_core.data.vocabulary import FOLD
from rank_core.errors import BadInput, shown

LEAST = 3  # one for testing, one for validation, the rest for training


def read_folds(
    path: Path, queries: Mapping[str, str], groups: Mapping[str, str], num_folds: int
) -> list[set[str]]:
    """The queries of each fold, in the order of the folds' names: 2 before 10.

    A file has lines `query_id TAB fold`, or records (TSV, CSV, JSON, Parquet) with the fields
    query_id and fold. Raises `BadInput` for an unknown query, a query without a fold or with two,
    queries of one text or one of the `groups` in two folds, and another number of folds.
    """
    named = has_names(path, FOLD, {})
    rows = list(labels(path, "fold", FOLD, {}) if named else query_lines(path, "fold"))
    fold_of = gathered_groups(rows, "fold")
    places = {query_id: place for place, query_id, _ in rows}
    for query_id, place in places.items():
        if query_id not in queries:
            raise BadInput(
                f"{place}: query {shown(query_id)} is no judged query of the collection; a fold "
                "must have such queries alone"
            )
    if lacking := next((query_id for query_id in queries if query_id not in fold_of), None):
        raise BadInput(f"{path} must have the fold of query {shown(lacking)}, which is judged")
    names = sorted(set(fold_of.values()), key=lambda name: (len(name), name))
    if len(names) < LEAST:
        raise BadInput(
            f"{path} must have at least {LEAST} folds (one for testing, one for validation, the "
            f"rest for training), found {len(names)}"
        )
    if len(names) != num_folds:
        raise BadInput(
            f"{path} has {len(names)} folds; evaluation.folds={len(names)} must hold, got "
            f"{num_folds}"
        )
    _check_together(queries, groups, fold_of, places)
    return [{query_id for query_id, fold in fold_of.items() if fold == name} for name in names]


def _check_together(
    queries: Mapping[str, str],
    groups: Mapping[str, str],
    fold_of: Mapping[str, str],
    places: Mapping[str, str],
) -> None:
    """Raises `BadInput` where a model could learn a text, or a group, that it is tested on."""
    first: dict[str, str] = {}  # {unit of queries: its first query}
    units = kept_together(queries, groups)
    for query_id in places:
        other = first.setdefault(units[query_id], query_id)
        if fold_of[other] != fold_of[query_id]:
            raise BadInput(
                f"{places[query_id]}: query {shown(query_id)} is in fold {fold_of[query_id]} and "
                f"query {shown(other)} in fold {fold_of[other]} ({places[other]}), but they have "
                f"the same text{' or group' * bool(groups)}; queries that belong together must be "
                "in one fold"
            )
