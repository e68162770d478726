"""Queries, qrels and runs: round trips, ordering, and one error per malformed line."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from rank_core.data.trec import (
    read_lines,
    read_qrels,
    read_queries,
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


def test_a_run_is_ordered_by_score_whatever_its_ranks_say(tmp_path):
    run = read_text(
        tmp_path, "q1 Q0 b 1 2.5 t\nq1 Q0 c 2 7 t\nq1 Q0 a 3 2.25 t\nq0 Q0 z 1 -1e-3 t\n"
    )
    assert {query_id: list(ranked.items()) for query_id, ranked in run.items()} == {
        "q1": [("c", 7.0), ("b", 2.5), ("a", 2.25)],
        "q0": [("z", -0.001)],
    }
    assert list(run) == ["q1", "q0"]


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


def test_the_order_of_equal_scores_survives_reading_and_writing(tmp_path):
    run = {"q1": {"b": 2.0, "c": 1.0, "a": 1.0, "d": 1.0}}
    write_run(tmp_path / "x.run", run, tag="t")
    back = read_run(tmp_path / "x.run")
    write_run(tmp_path / "y.run", back, tag="t")
    assert list(back["q1"]) == ["b", "c", "a", "d"]
    assert (tmp_path / "x.run").read_bytes() == (tmp_path / "y.run").read_bytes()


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
    assert read_queries(tmp_path / "queries.tsv.gz") == {
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


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.run"
    write_run(path, {"q": {"d": 1.0}}, tag="t")
    before = path.read_bytes()
    with pytest.raises(BadInput, match="a score must be finite, found nan"):
        write_run(path, {"q": {"d": 2.0, "e": float("nan")}}, tag="t")
    assert path.read_bytes() == before
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_lines(tmp_path / "folder", ["a"])
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "x.run"]


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


GOOD_RUN = "q1 Q0 d1 1 2.0 t\n"
GOOD_QRELS = "q1 0 d1 1\n"
BAD_LINES = [
    (read_run, GOOD_RUN + "q1 Q0 d2 2 1.0\n", 2, "6 columns), found 5"),
    (read_run, GOOD_RUN + "\n" + "q1 Q0 d2 2 1.0 t t\n", 3, "6 columns), found 7"),
    (read_run, "q1 Q0 d2 2 high t\n", 1, "a score must be a number, found 'high'"),
    (read_run, "q1 Q0 d2 2 nan t\n", 1, "a score must be finite, found 'nan'"),
    (read_run, "q1 Q0 d2 2 -inf t\n", 1, "a score must be finite, found '-inf'"),
    (read_run, GOOD_RUN + GOOD_RUN, 2, "document 'd1' is ranked twice for query 'q1'"),
    (read_qrels, "q1 d1 1\n", 1, "4 columns), found 3"),
    (read_qrels, GOOD_QRELS + "q1 0 d2 1.5\n", 2, "a whole number, found '1.5'"),
    (read_qrels, GOOD_QRELS + "q1 0 d2 1_0\n", 2, "a whole number, found '1_0'"),
    (
        read_qrels,
        GOOD_QRELS + "q1 0 d1 0\n",
        2,
        "duplicate judgment of document 'd1' for query 'q1'",
    ),
    (read_queries, "q1 what is it\n", 1, "2 columns), found 1: 'q1 what is it'"),
    (read_queries, "q1\twhat\tis\n", 1, "2 columns), found 3"),
    (read_queries, "q1\twhat\nq 2\twhy\n", 2, "without white space, found 'q 2'"),
    (read_queries, "q1\twhat\n\twhy\n", 2, "without white space, found ''"),
    (read_queries, "q1\twhat\nq2\t \n", 2, "query 'q2' is empty"),
    (read_queries, "q1\twhat\nq1\twhy\n", 2, "duplicate query_id 'q1'"),
]


@pytest.mark.parametrize(("read", "text", "line", "message"), BAD_LINES)
def test_a_malformed_line_is_named_with_the_rule_and_what_was_found(
    tmp_path, read, text, line, message
):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(BadInput, match=re.escape(message)) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    path = tmp_path / "queries.tsv"
    path.write_bytes(b"q1\tfine\nq2\tcaf\xe9\n")
    with pytest.raises(BadInput, match=re.escape(f"{path}:2: text must be UTF-8; byte 0xe9")):
        read_queries(path)


@pytest.mark.parametrize("damage", [lambda data: data[:-12], lambda data: b"plain text"])
def test_a_damaged_gzip_file_is_refused(tmp_path, damage):
    path = tmp_path / "x.run.gz"
    write_run(path, {"q": {f"d{number}": 1.0 for number in range(50)}}, tag="t")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadInput, match=r"x\.run\.gz is no complete gzip file"):
        read_run(path)


def test_an_absent_file_and_a_folder_are_refused_by_name(tmp_path):
    with pytest.raises(BadInput, match=r"absent\.run does not exist"):
        read_run(tmp_path / "absent.run")
    with pytest.raises(BadInput, match="is a folder, not a file"):
        read_run(tmp_path)


def test_windows_line_ends_and_byte_order_marks_are_accepted(tmp_path):
    path = Path(tmp_path / "queries.tsv")
    path.write_bytes(b"\xef\xbb\xbfq1\twhat\r\n\r\nq2\twhy\r\n")
    assert read_queries(path) == {"q1": "what", "q2": "why"}
    assert list(read_lines(path)) == [(1, "q1\twhat"), (3, "q2\twhy")]
