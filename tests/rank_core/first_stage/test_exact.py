"""BM25 exactly as Lucene: one-byte lengths, words, stems, arithmetic, and the real rankings."""

import os
from pathlib import Path

import numpy as np
import pytest

from rank_core.data import load_collection
from rank_core.data.trec import read_lines
from rank_core.errors import BadInput
from rank_core.evaluate import mean_values, per_query
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3, bm25_run, recipe
from rank_core.first_stage.analysis import lucene_analyser
from rank_core.first_stage.index import byte_to_length, length_to_byte, without_ties
from rank_core.first_stage.porter import stem

SHARED = Path(
    os.environ.get("RANKSWEEP_SHARED_DATA") or Path(__file__).parents[4] / "shared" / "data"
)


def test_three_documents_by_hand():
    # 3 documents, 6 terms, mean length 2; k1 = 0.9, b = 0.4.
    # Norms k1 (1 - b + b length / 2): a (3 terms) 1.08, b (2) 0.9, c (1) 0.72.
    # `apple` is in 2: idf = ln(1 + 1.5 / 2.5) = 0.470004.
    #   a: twice,  0.470004 * 2 / 3.08 = 0.305197;  b: once, 0.470004 * 1 / 1.9 = 0.247370
    # `plum` is in 2: b: 0.247370;  c: 0.470004 * 1 / 1.72 = 0.273258
    # `pear` is in 1: idf = ln(1 + 2.5 / 1.5) = 0.980829;  a: 0.980829 * 1 / 2.08 = 0.471553
    documents = {"a": "apple apple pear", "b": "apple plum", "c": "plum"}
    queries = {"apple": "apple", "plum pear": "plum pear", "plum twice": "plum plum"}
    run = bm25_run(documents, queries, exact_lucene=True)
    assert [list(ranked) for ranked in run.values()] == [["a", "b"], ["a", "c", "b"], ["c", "b"]]
    assert run["apple"] == pytest.approx({"a": 0.305197, "b": 0.247370}, abs=1e-6)
    assert run["plum pear"] == pytest.approx(
        {"a": 0.471553, "c": 0.273258, "b": 0.247370}, abs=1e-6
    )
    assert run["plum twice"] == pytest.approx({"c": 0.546516, "b": 0.494740}, abs=1e-6)


def test_lengths_up_to_39_are_kept_and_longer_ones_rounded_down():
    assert [length_to_byte(length) for length in range(40)] == list(range(40))
    assert [byte_to_length(code) for code in range(40)] == list(range(40))
    # From 40 on in steps of 2, from 56 of 4, from 88 of 8, from 152 of 16.
    seen = {length: byte_to_length(length_to_byte(length)) for length in range(40, 170)}
    assert sorted(set(seen.values())) == [
        *range(40, 56, 2),
        *range(56, 88, 4),
        *range(88, 152, 8),
        *(152, 168),
    ]
    assert [seen[length] for length in (41, 55, 59, 87, 95, 151, 167)] == [
        *(40, 54, 56, 84, 88, 144, 152)
    ]


def test_every_length_code_goes_round_and_the_largest_integer_has_the_last():
    lengths = [byte_to_length(code) for code in range(256)]
    assert [length_to_byte(length) for length in lengths] == list(range(256))
    assert lengths == sorted(lengths)
    assert length_to_byte(2**31 - 1) == 255
    assert lengths[255] == 24 + (0b1111 << 27)


def test_documents_whose_lengths_share_a_byte_tie_and_keep_their_order_in_the_scores():
    documents = {"y": "hit" + " pad" * 39, "x": "hit" + " pad" * 40, "z": "hit" + " pad" * 41}
    ranked = bm25_run(documents, {"q": "hit"}, exact_lucene=True)["q"]  # 40, 41 and 42 terms
    assert list(ranked) == ["x", "y", "z"]
    assert ranked["x"] - ranked["y"] == pytest.approx(np.spacing(np.float32(ranked["y"])))
    assert ranked["y"] - ranked["z"] > 1e-4
    plain = bm25_run(documents, {"q": "hit"})["q"]
    assert list(plain) == ["y", "x", "z"]


def test_scores_without_ties_fall_strictly_and_by_no_more_than_is_needed():
    scores = without_ties([2.0, 2.0, 2.0, 1.5, 1.0])
    step = 2.0**-23  # of a float32 between 1 and 2
    assert scores == [2.0, 2.0 - step, 2.0 - 2 * step, 1.5, 1.0]
    assert without_ties([]) == []


# Recorded from Anserini 1.7.1 (Lucene 9.9.1), DefaultEnglishAnalyzer.newDefaultInstance().
@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("It's the PARSER'S X's", ["parser", "x"]),  # the possessive goes before stop words
        ("A_B_c _x __", ["a_b_c", "_x"]),
        ("3.5 1,000 1.2.3a 5'2 ca. 3.", ["3.5", "1,000", "1.2.3a", "5'2", "ca", "3"]),
        ("e.g. U.S.A. foo:bar wi-fi C++", ["e.g", "u.s.a", "foo:bar", "wi", "fi", "c"]),
        ("O'Neil's rock'n'roll doesn’t", ["o'neil", "rock'n'rol", "doesn’t"]),
        ("us is 1990s biology", ["us", "1990", "biologi"]),
        ("ΣΟΦΟΣ İstanbul Größe naïve", ["σοφοσ", "istanbul", "größe", "naïv"]),
        ("sa🏽e 👍🏽", ["sa🏽", "👍🏽"]),
        ("中文字 カタカナ 100% ½", ["中", "文", "字", "カタカナ", "100"]),
        ("x" * 300, ["x" * 255, "x" * 45]),
        (" \n ", []),
    ],
)
def test_the_index_terms_are_lucenes(text, terms):
    assert lucene_analyser()(text) == terms


# The paper's own examples, then the departures of Lucene's version from it.
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *{"caresses": "caress", "ponies": "poni", "cats": "cat", "feed": "feed"}.items(),
        *{"agreed": "agre", "plastered": "plaster", "bled": "bled", "sing": "sing"}.items(),
        *{"conflated": "conflat", "hopping": "hop", "falling": "fall", "filing": "file"}.items(),
        *{"happy": "happi", "sky": "sky", "relational": "relat", "rational": "ration"}.items(),
        *{"triplicate": "triplic", "hopefulness": "hope", "adoption": "adopt"}.items(),
        *{
            "replacement": "replac",
            "probate": "probat",
            "rate": "rate",
            "controll": "control",
        }.items(),
        *{
            "us": "us",
            "possibly": "possibl",
            "psychology": "psycholog",
            "neurological": "neurolog",
        }.items(),
    ],
)
def test_stems_are_lucenes(word, expected):
    assert stem(word) == expected


def test_an_index_searched_with_other_settings_equals_one_made_for_them():
    documents = {"a": "apple " * 9 + "pear", "b": "apple plum " * 3, "c": "plum pear"}
    queries = {"q": "apple pear"}
    index = Bm25Index(documents)
    first = index.run(queries)
    other = index.run(queries, Bm25Settings(k1=2.0, b=0.9))
    assert other == bm25_run(documents, queries, k1=2.0, b=0.9, exact_lucene=True)
    assert other != first == index.run(queries)
    assert list(index.run(queries, depth=1)["q"]) == list(first["q"])[:1]


@pytest.mark.parametrize("documents", [{}, {"a": ""}, {"a": "the", "b": "?!"}])
def test_documents_without_any_term_give_empty_rankings(documents):
    assert bm25_run(documents, {"q": "the cat"}, exact_lucene=True) == {"q": {}}


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="k1 >= 0 and 0 <= b <= 1 must hold, got k1=-1"):
        Bm25Settings(k1=-1)
    with pytest.raises(BadInput, match=r"b=1\.5"):
        Bm25Settings(b=1.5)
    with pytest.raises(BadInput, match="fb_docs=0"):
        Rm3(fb_docs=0)
    with pytest.raises(BadInput, match="original_weight=2"):
        Rm3(original_weight=2)
    with pytest.raises(BadInput, match="depth >= 1 must hold, got depth=0"):
        Bm25Index({"a": "text"}).run({"q": "text"}, depth=0)


def test_the_two_ways_of_scoring_have_two_recipes():
    assert recipe() != recipe(exact_lucene=True)


def supplied_run(path):
    """The run in the order of its ranks: its scores have four decimals, so they tie."""
    run = {}
    for _, line in read_lines(path):
        query_id, _, doc_id, rank, _, _ = line.split()
        run.setdefault(query_id, {})[doc_id] = 1.0 / int(rank)
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "split", "published"),
    [
        pytest.param("medquad-far", "dev", {}, marks=pytest.mark.slow),
        ("medquad-far", "test", {"nDCG@10": 0.340, "RR": 0.233, "R@100": 0.925}),
        pytest.param("medquad", "dev", {"nDCG@10": 0.878}, marks=pytest.mark.slow),
        pytest.param("medquad", "test", {"nDCG@10": 0.920}, marks=pytest.mark.slow),
    ],
)
def test_all_rankings_are_those_of_a_real_lucene_index_to_the_last_rank(name, split, published):
    if not (SHARED / name).is_dir():
        pytest.skip(f"no collection {name} in {SHARED}; RANKSWEEP_SHARED_DATA may name its folder")
    collection = load_collection(str(SHARED / name))
    judged = collection.splits[split]
    lucene = supplied_run(SHARED / name / split / "bm25.top100.run.gz")
    ours = bm25_run(collection.documents, judged.queries, exact_lucene=True)
    overlaps = [len({*list(ours[q])[:10]} & {*list(lucene[q])[:10]}) / 10 for q in lucene]
    assert len(overlaps) == len(judged.queries) and min(overlaps) == 1.0
    assert {q: list(ranked) for q, ranked in ours.items()} == {
        q: list(ranked) for q, ranked in lucene.items()
    }
    measures = ["nDCG@10", "RR", "R@100"]
    values, theirs = (mean_values(per_query(judged.qrels, run, measures)) for run in (ours, lucene))
    assert values == pytest.approx(theirs, abs=1e-9)
    assert {measure: round(values[measure], 3) for measure in published} == published
