"""Queries, qrels and runs: round trips, ordering, and one error per malformed line."""

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rank_core.data.readers import queries_of
from rank_core.data.trec import (
    is_run,
    read_qrels,
    read_run,
    write_lines,
    write_qrels,
    write_queries,
    write_run,
)
from rank_core.errors import BadInput
from ranksweep import compare
from sweeps.systems.sources import ranking_of, training_runs


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
    with pytest.raises(BadInput, match=r"comma.run:2: .* found '1,25'; write decimals with a p"):
        read_run(tmp_path / "comma.run")


COMMENTED = """# made by hand
#no space, 7 words: no line of a run
  # indented
q1 Q0 a 1.0 3 t
q1 Q0 b - 2 a tag of words
#q1 Q0 c 3 1 t
q2 0 a NaN 1 t
"""


@pytest.mark.parametrize("name", ["x.run", "x.txt"])
def test_a_run_is_read_as_trec_eval_reads_it(name, tmp_path):
    """Comments as version 10 has them, but what is a line of a run is none; ranks and further words
    of the tag are not read."""
    (tmp_path / name).write_text(COMMENTED)
    expected = {"q1": {"a": 3.0, "b": 2.0}, "#q1": {"c": 1.0}, "q2": {"a": 1.0}}
    assert read_run(tmp_path / name) == ranking_of(tmp_path / name).run == expected
    assert is_run(tmp_path / name)


def test_comments_of_judgments_are_left_out(tmp_path):
    text = "# made by hand\n# again\nq1 0 a 1\n#q2 0 a 2\n"
    (tmp_path / "x.qrels").write_text(text)
    assert read_qrels(tmp_path / "x.qrels") == {"q1": {"a": 1}, "#q2": {"a": 2}}
    (tmp_path / "beir.tsv").write_text("# made by hand\nquery-id\tcorpus-id\tscore\nq1\ta\t1\n")
    assert read_qrels(tmp_path / "beir.tsv") == {"q1": {"a": 1}}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("star wars Q0 d1 1 2.0 tag", "a line must be"),  # not query star, document Q0
        ("q Q0 d one 2.0 tag", "rank must be a finite number, found 'one'"),
        ("q Q0 d 1 two tag", "score must be a finite number, found 'two'"),
    ],
)
def test_a_line_of_other_columns_is_no_line_of_a_run(line, named, tmp_path):
    (tmp_path / "x.run").write_text(f"q Q0 a 1 3 t\n{line}\n")
    with pytest.raises(BadInput, match=named):
        read_run(tmp_path / "x.run")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("4 qid:1 1:0.3 # d1\n", "found one of LETOR"),
        ("4 qid:1 # d1\n", "found one of LETOR"),
        ("q1 d1 1 0 0.5\n", "five columns are prels"),
        ("q1 1 d1 1\nq1 2 d1 0\n", "second column 2: query 'q1' judges document 'd1' twice; of"),
    ],
)
def test_judgments_of_another_format_are_named(text, named, tmp_path):
    (tmp_path / "x.qrels").write_text(text)
    with pytest.raises(BadInput, match=named):
        read_qrels(tmp_path / "x.qrels")


@pytest.mark.parametrize("query_id", ["{q1", "[q1", "query_id", "topic", "{}"])
def test_a_run_is_one_whatever_its_first_query_is_called(query_id, tmp_path):
    for mark in (" ", "\t"):
        (tmp_path / "x.run").write_text(f"{query_id} Q0 d 1 1 t\n".replace(" ", mark))
        assert ranking_of(tmp_path / "x.run").run == {query_id: {"d": 1.0}}


HALF = "\\ud800"  # as JSON has it


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.jsonl", f'{{"query_id": "{HALF}", "doc_id": "d", "score": 1}}\n'),
        ("document.jsonl", f'{{"query_id": "q", "doc_id": "{HALF}", "score": 1}}\n'),
        ("value.jsonl", f'{{"query_id": "{HALF}", "measure": "RR", "value": 1}}\n' * 2),
        ("system.json", f'[{{"query_id": "q", "system": "{HALF}", "RR": 1}}]'),
        ("object.json", f'{{"query_id": "{HALF}", "RR": 1}}'),
        ("table.json", f'{{"columns": ["query_id", "RR"], "data": [["{HALF}", 1]]}}'),
    ],
)
def test_half_of_a_surrogate_pair_is_a_sentence_at_every_door(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=name):
        training_runs(tmp_path / name)


def test_a_name_with_half_of_a_surrogate_pair_and_a_long_one_are_sentences():
    values = pd.DataFrame({"query_id": ["q1", "q2"], "RR": [1.0, 0.5]})
    with pytest.raises(BadInput, match="a name must be valid Unicode"):
        compare({"\ud800": values, "b": values})
    with pytest.raises(BadInput, match="clusters of queries must be a file"):
        compare({"a": values, "b": values.assign(RR=0.3)}, clusters="x" * 100_000)
