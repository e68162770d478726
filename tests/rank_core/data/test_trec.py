"""Queries, qrels and runs: round trips, ordering, and one error per malformed line."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from rank_core.data.readers import queries_of
from rank_core.data.trec import (
    read_qrels,
    read_run,
    write_lines,
    write_qrels,
    write_queries,
    write_run,
)
from rank_core.errors import BadInput


def read_text(tmp_path, text):
    path = tmp_path / "x.run"
    path.write_text(text)
    return read_run(path)


@pytest.mark.parametrize(
    ("ranks", "order"),
    [
        ({"a": 3, "b": 1, "c": 2}, ["b", "c", "a"]),
        ({"a": 1, "b": 0, "c": -1}, ["c", "b", "a"]),
        ({"c": 5, "b": 5, "a": 5}, ["a", "b", "c"]),  # equal ranks: by doc_id
        ({"c": 2, "b": 7, "a": 7}, ["c", "a", "b"]),
    ],
)
def test_equal_scores_are_ordered_by_the_rank_column_and_then_by_doc_id(tmp_path, ranks, order):
    lines = [f"q Q0 {doc_id} {rank} 1.5 t\n" for doc_id, rank in ranks.items()]
    run = read_text(tmp_path, "".join(lines) + "q Q0 best 9 2 t\n")
    assert list(run["q"]) == ["best", *order]


def test_a_written_run_has_ranks_from_1_in_rank_order(tmp_path):
    path = tmp_path / "x.run"
    write_run(path, {"q1": {"b": 1.0, "c": 3.0, "a": 1.0}}, tag="mine")
    assert path.read_text() == "q1 Q0 c 1 3.0 mine\nq1 Q0 b 2 1.0 mine\nq1 Q0 a 3 1.0 mine\n"


@pytest.mark.parametrize("name", ["x.run", "x.run.gz"])
def test_float32_scores_survive_writing_and_reading(tmp_path, name):
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 2000, dtype=np.uint32).view(np.float32)
    scores = [score for score in bits if np.isfinite(score)]
    run = {"q": {f"d{number}": score for number, score in enumerate(scores)}, "nothing": {}}
    write_run(tmp_path / name, run, tag="t")
    back = read_run(tmp_path / name)
    assert list(back) == ["q"]
    for number, score in enumerate(scores):
        assert np.float32(back["q"][f"d{number}"]).tobytes() == score.tobytes()


def test_qrels_and_queries_survive_writing_and_reading(tmp_path):
    qrels = {"q2": {"d1": 0, "d9": 3}, "q1": {"d1": -2}}
    write_qrels(tmp_path / "qrels.trec", qrels)
    assert read_qrels(tmp_path / "qrels.trec") == read_qrels(f"{tmp_path}/qrels.trec") == qrels
    queries = {"q2": "größe of  \t a thing", "q1": "next\u2028line\x85separators"}
    write_queries(tmp_path / "queries.tsv.gz", queries)
    assert queries_of(tmp_path / "queries.tsv.gz", {}) == {
        "q2": "größe of a thing",
        "q1": "next line separators",
    }


def test_gzip_files_depend_on_nothing_but_their_lines(tmp_path):
    write_lines(tmp_path / "first.gz", ["a", "b"])
    write_lines(tmp_path / "second.gz", ["a", "b"])
    content = (tmp_path / "first.gz").read_bytes()
    assert content == (tmp_path / "second.gz").read_bytes()
    assert content[4:8] == bytes(4)  # no time
    assert content[3] == 0  # no file name
    assert gzip.decompress(content) == b"a\nb\n"


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_run(path, {"q 1": {"d": 1.0}}, tag="t"),
        lambda path: write_run(path, {"q1": {"d\n1": 1.0}}, tag="t"),
        lambda path: write_run(path, {"q1": {"d": 1.0}}, tag=""),
        lambda path: write_qrels(path, {"q": {"d 1": 1}}),
        lambda path: write_qrels(path, {"": {"d": 1}}),
        lambda path: write_queries(path, {"q\t1": "text"}),
    ],
)
def test_an_id_that_would_break_the_columns_is_not_written(tmp_path, write):
    with pytest.raises(BadInput, match="one word without white space"):
        write(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read", [read_run, read_qrels])
def test_a_pipe_is_refused_as_its_second_reading_would_begin_in_its_middle(read):
    out, into = os.pipe()
    os.write(into, b"q Q0 d 1 2.5 t\n" if read is read_run else b"q 0 d 1\n")
    os.close(into)
    try:
        with pytest.raises(BadInput, match="is a pipe or a device; write its content into a file"):
            read(Path(f"/dev/fd/{out}"))
    finally:
        os.close(out)


@pytest.mark.parametrize(
    ("begins", "what"),
    [(b"\x04\x22\x4d\x18", "lz4"), (b"ARROW1\0\0", "Feather"), (b"\x80\x05\x95", "a pickle")],
)
def test_a_binary_file_of_another_tool_is_called_what_it_is(tmp_path, begins, what):
    (tmp_path / "x.run").write_bytes(begins + bytes(40))
    with pytest.raises(BadInput, match=f"x.run is .*{what}.*must be text in UTF-8"):
        read_run(tmp_path / "x.run")


def test_a_decimal_comma_is_named(tmp_path):
    (tmp_path / "comma.run").write_text("q Q0 d 1 2.5 t\nq Q0 e 2 1,25 t\n")
    with pytest.raises(BadInput, match=r"comma.run:2: .* found '2 1,25'; write decimals with a p"):
        read_run(tmp_path / "comma.run")
