"""Folds of a file: every form gives the same folds, and what is wrong is refused by its line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rank_core.chunking.inputs import cell_of, load_inputs
from rank_core.data.folds_file import read_folds
from rank_core.errors import BadInput
from rank_core.records import Collection, Split
from rank_core.settings.config import TrialConfig
from rank_core.trial.cross_validation import divided_by_file, parts_of

QUERIES = {"7": "seven", "a": "first", "b": "Second  text", "c": "third", "d": "second TEXT"}
FOLD_OF = {"b": "1", "d": "1", "7": "10", "c": "2", "a": "2"}
ROWS = [*FOLD_OF.items()]


def lines(rows: list[tuple[str, str]], mark: str = "\t", header: str = "") -> str:
    return "".join(f"{line}\n" for line in [header, *map(mark.join, rows)] if line)


def write_parquet(path: Path, rows: list[tuple[str, str]]) -> None:
    pd.DataFrame(rows, columns=["query_id", "fold"]).to_parquet(path)


FORMS: dict[str, Callable[[Path, list[tuple[str, str]]], object]] = {
    "plain.tsv": lambda path, rows: path.write_text(lines(rows)),
    "named.tsv": lambda path, rows: path.write_text(lines(rows, "\t", "query_id\tfold")),
    "topics.csv": lambda path, rows: path.write_text(
        lines([(fold, query_id) for query_id, fold in rows], ",", "fold,qid")
    ),
    "numbers.jsonl": lambda path, rows: path.write_text(
        "".join(json.dumps({"query_id": query_id, "fold": int(n)}) + "\n" for query_id, n in rows)
    ),
    "frame.parquet": write_parquet,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_file_has_the_same_folds_in_the_order_of_their_names(
    name: str, tmp_path: Path
) -> None:
    FORMS[name](tmp_path / name, ROWS)
    assert read_folds(tmp_path / name, QUERIES, {}, 3) == [{"b", "d"}, {"a", "c"}, {"7"}]


REFUSED: dict[str, tuple[list[tuple[str, str]], int, str]] = {
    "an unknown query": ([*ROWS, ("672", "1")], 3, "FILE:6: query '672' is no judged query"),
    "a query without a fold": (ROWS[:-1], 3, "FILE must have the fold of query 'a'"),
    "no fold in a line": ([*ROWS[:-1], ("a", "")], 3, "FILE:5: .*a"),
    "a query in two folds": ([*ROWS, ("a", "1")], 3, "FILE:6: query 'a' has two folds"),
    "two folds": ([(q, f.replace("10", "2")) for q, f in ROWS], 3, "FILE must have at least 3"),
    "another number": (ROWS, 4, "FILE has 3 folds; evaluation.folds=3 must hold, got 4"),
    "a text on two sides": (
        [(q, "2" if q == "d" else f) for q, f in ROWS],
        3,
        r"FILE:2: query 'd' is in fold 2 and query 'b' in fold 1 \(FILE:1\)",
    ),
    "nothing": ([], 3, "FILE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_file_is_refused_by_its_line(case: str, tmp_path: Path) -> None:
    rows, number, message = REFUSED[case]
    path = tmp_path / "folds.tsv"
    path.write_text(lines(rows))
    with pytest.raises(BadInput, match=message.replace("FILE", str(path))):
        read_folds(path, QUERIES, {}, number)


def test_queries_of_one_group_are_in_one_fold(tmp_path: Path) -> None:
    path = tmp_path / "folds.tsv"
    path.write_text(lines(ROWS))
    groups = {query_id: "g" if query_id in "7a" else query_id for query_id in QUERIES}
    with pytest.raises(BadInput, match=r":5: query 'a' is in fold 2 and query '7' in fold 10"):
        read_folds(path, QUERIES, groups, 3)


def test_each_fold_is_tested_the_next_one_selects_and_the_rest_trains(tmp_path: Path) -> None:
    path = tmp_path / "folds.tsv"
    path.write_text(lines(ROWS))
    qrels = {query_id: {"d1": 1, "gone": 1} for query_id in QUERIES}
    split = Split(QUERIES, qrels, {query_id: {} for query_id in QUERIES})
    whole = Collection("c", "hash", {"d1": "text"}, {"test": split}, language="de")
    folds = divided_by_file(whole, path, 3)
    assert [fold.name for fold in folds] == ["c/fold1", "c/fold2", "c/fold3"]
    assert [set(fold.splits["test"].queries) for fold in folds] == [{*"bd"}, {*"ac"}, {"7"}]
    assert [set(fold.splits["dev"].queries) for fold in folds] == [{*"ac"}, {"7"}, {*"bd"}]
    assert [set(fold.splits["train"].queries) for fold in folds] == [{"7"}, {*"bd"}, {*"ac"}]
    assert {fold.language for fold in folds} == {"de"}
    path.write_text(lines([(query_id, "4" if fold == "2" else fold) for query_id, fold in ROWS]))
    same = divided_by_file(replace(whole, name="c"), path, 3)
    assert [fold.content_hash for fold in same] == [fold.content_hash for fold in folds]


def test_a_trial_reads_the_folds_of_its_file_also_after_a_change(
    small_trial: TrialConfig, tmp_path: Path
) -> None:
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    queries = [q for split in inputs.collection.splits.values() for q in split.queries]
    path = tmp_path / "folds.tsv"
    config = small_trial.override(
        {"evaluation.folds": 3, "evaluation.folds_file": str(path), "training.max_steps": 2}
    )
    cells = {cell_of(config.override({"evaluation.folds_file": ""}), inputs)}
    for shift in (0, 1):
        of = {query_id: str((n + shift * (n > 8)) % 3) for n, query_id in enumerate(queries)}
        path.write_text(lines([*of.items()]))
        for number, part in enumerate(parts_of(config, inputs)):
            tested = {query_id for query_id, fold in of.items() if fold == str(number)}
            assert set(part.collection.splits["test"].queries) == tested
        cells.add(cell_of(config, inputs))
    assert len(cells) == 3


def test_a_file_of_folds_needs_their_number_and_has_to_be_there(
    small_trial: TrialConfig, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"evaluation.folds_file needs evaluation.folds"):
        small_trial.override({"evaluation.folds_file": "folds.tsv"})
    lost = {"evaluation.folds": 3, "evaluation.folds_file": str(tmp_path / "folds.tsv")}
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    with pytest.raises(BadInput, match=r"evaluation.folds_file must name a file"):
        parts_of(small_trial.override(lost), inputs)
