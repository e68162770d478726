"""BM25 and RM3 as Lucene computes them: formula, words, stems, one-byte lengths; their tuning."""

import math

import numpy as np
import pytest

from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3
from rank_core.first_stage.analysis import analyser, stem, terms_of
from rank_core.first_stage.bm25 import byte_to_length, expanded, length_to_byte, may_expand
from rank_core.first_stage.tuning import tune_bm25
from rank_core.models import list_rankers
from rank_core.trial.trial import run_trial


def written_out_bm25(documents, query, k1, b):
    """Lucene's BM25 (since version 8, without the constant factor k1 + 1), term by term."""
    words = {doc_id: text.split() for doc_id, text in documents.items()}
    mean_length = sum(map(len, words.values())) / len(words)
    scores = {}
    for doc_id, of_document in words.items():
        norm = k1 * (1 - b + b * len(of_document) / mean_length)
        total = 0.0
        for term in query.split():
            frequency = of_document.count(term)
            num_with = sum(term in other for other in words.values())
            idf = math.log(1 + (len(words) - num_with + 0.5) / (num_with + 0.5))
            total += idf * frequency / (frequency + norm)
        if total > 0:
            scores[doc_id] = total
    return scores


def random_collection(rng, num_documents):
    # Words that neither the stop list nor the stemmer touches.
    words = [f"{first}{second}x" for first in "bcdfg" for second in "klmnp"]
    return {
        f"d{number:03d}": " ".join(rng.choice(words, int(rng.integers(1, 30))))
        for number in range(num_documents)
    }


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (2.0, 0.0)])
def test_scores_are_those_of_the_formula(k1, b):
    rng = np.random.default_rng(3)
    documents = random_collection(rng, 40)
    queries = {
        f"q{number}": " ".join(rng.choice(["bkx", "clx", "dmx", "zzx"], 3)) for number in range(9)
    }
    run = Bm25Index(documents).run(queries, Bm25Settings(k1, b))
    for query_id, text in queries.items():
        assert run[query_id] == pytest.approx(written_out_bm25(documents, text, k1, b), rel=1e-5)


def test_equal_scores_are_ordered_by_doc_id_even_at_the_depth_limit():
    documents = {doc_id: "same words here" for doc_id in ("e", "b", "d", "a", "c")}
    documents["z"] = "same same words"
    run = Bm25Index(documents).run({"q": "same"}, depth=4)
    assert list(run["q"]) == ["z", "a", "b", "c"]


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


def test_documents_whose_lengths_share_a_byte_tie_and_keep_their_order_in_the_scores():
    documents = {"y": "hit" + " pad" * 39, "x": "hit" + " pad" * 40, "z": "hit" + " pad" * 41}
    ranked = Bm25Index(documents).run({"q": "hit"})["q"]  # 40, 41 and 42 terms
    assert list(ranked) == ["x", "y", "z"]
    assert ranked["x"] - ranked["y"] == pytest.approx(np.spacing(np.float32(ranked["y"])))
    assert ranked["y"] - ranked["z"] > 1e-4


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
    assert analyser(terms_of)(text) == terms


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


def test_invalid_settings_are_refused():
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


def test_two_documents_by_hand():
    # Shares: apple 1/2, pear 1/2 of the first; plum 3/4, apple 1/4 of the second (fig is its third
    # term, of which two count). Times scores 3 and 1: apple 1.75, pear 1.5, plum 0.75, of which the
    # two largest, over 3.25, are apple 7/13 and pear 6/13. Mixed with the query, one quarter of it:
    # apple 1/4 + 3/4 * 7/13 = 34/52, pear 3/4 * 6/13 = 18/52.
    documents = [{"apple": 2, "pear": 2}, {"plum": 3, "apple": 1, "fig": 1}]
    weights = expanded({"apple": 1}, documents, [3.0, 1.0], Rm3(fb_terms=2, original_weight=0.25))
    assert weights == pytest.approx({"apple": 34 / 52, "pear": 18 / 52})


@pytest.mark.parametrize(("weight", "kept"), [(0.5, 0.5), (1.0, 1.0), (0.0, 1.0)])
def test_a_query_without_expansion_keeps_its_terms_at_its_own_weight(weight, kept):
    for documents, scores in (([], []), ([{}], [2.0])):
        settings = Rm3(original_weight=weight)
        weights = expanded({"apple": 3, "fig": 1}, documents, scores, settings)
        assert weights == {"apple": 0.75 * kept, "fig": 0.25 * kept}


@pytest.mark.parametrize(
    ("term", "num_with", "allowed"),
    [
        ("pear", 2, True),
        ("pear", 3, False),  # more than a tenth of 20
        ("p", 1, False),
        ("a" * 20, 1, True),
        ("a" * 21, 1, False),
        ("p\u00e9ar", 1, False),
    ],
)
def test_terms_that_may_expand_a_query_are_plain_and_rare(term, num_with, allowed):
    assert may_expand(term, num_with, 20) is allowed


def test_as_a_system_it_reorders_the_candidates(small_trial, tmp_path):
    for name in ("bm25", "bm25-rm3"):
        *_, result = run_trial(small_trial.override({"model.name": name}), tmp_path / name)
        assert result.encoder_tokens == 0
    plain, rm3 = (read_run(tmp_path / name / "test.run.gz") for name in ("bm25", "bm25-rm3"))
    assert {q: set(docs) for q, docs in plain.items()} == {q: set(docs) for q, docs in rm3.items()}
    assert plain != rm3


def test_as_a_system_it_reads_the_language_of_the_collection(small_trial, tmp_path, monkeypatch):
    asked = []

    def index(documents, analysis):
        asked.append(analysis.language)
        return Bm25Index(documents, analysis)

    monkeypatch.setattr(list_rankers, "Bm25Index", index)
    for language in ("", "de"):
        collection = f"{small_trial.collection}|first-stage(language={language or 'en'})"
        config = small_trial.override({"model.name": "bm25-rm3", "collection": collection})
        [*_] = run_trial(config, tmp_path / f"in {language}")
    assert asked == ["en", "en", "de", "de"], "once for dev, once for test"


PLAIN = Bm25Settings(k1=0.9, b=0.0)
NORMALISED = Bm25Settings(k1=0.9, b=1.0)

# One query word, once in a short and once in a long document: only b = 1 prefers the short one,
# with b = 0 they tie and the doc_id decides.
DOCUMENTS = {"a_long": "apple " + "filler " * 30, "b_short": "apple", "c": "pear"}
QUERIES = {"q": "apple", "not judged": "pear"}
QRELS = {"q": {"b_short": 1}}


def test_of_equally_good_points_the_earliest_wins():
    index = Bm25Index(DOCUMENTS)
    for grid in ((PLAIN, NORMALISED), (NORMALISED, PLAIN)):
        assert tune_bm25(index, QUERIES, QRELS, "R@100", grid).best == grid[0]


def test_what_cannot_be_tuned_is_refused():
    index = Bm25Index(DOCUMENTS)
    with pytest.raises(BadInput, match="points"):
        tune_bm25(index, QUERIES, QRELS, "RR", ())
    with pytest.raises(BadInput, match="judged queries"):
        tune_bm25(index, {"other": "apple"}, QRELS)
    with pytest.raises(BadInput, match="nDCG@ten"):
        tune_bm25(index, QUERIES, QRELS, "nDCG@ten")
