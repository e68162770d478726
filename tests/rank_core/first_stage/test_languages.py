"""Index terms in other languages than English, and what BM25 then finds."""

import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import snowballstemmer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rank_core.data.folder import load_folder
from rank_core.encoders.shipped import FOLDER
from rank_core.errors import BadInput
from rank_core.evaluate import mean_values, per_query
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3, TextAnalysis
from rank_core.first_stage.analysis import analyser
from rank_core.first_stage.languages import (
    LANGUAGES,
    language_code,
    languages_fitting,
    script_counts,
)
from rank_core.first_stage.subwords import content_hash
from tests.rank_core.data import made_languages


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("de", "Häuser, Häusern; Straße", ["haus", "haus", "strass"]),
        ("fr", "L’homme qu'il aime", ["homm", "il", "aim"]),
        ("it", "dell'arte", ["arte"]),
        ("ca", "l’home home", ["hom", "hom"]),
        ("ru", "книгами книги", ["книг", "книг"]),
        ("tr", "IRMAK İzmir'de", ["ırmak", "izmir"]),
        ("ar", "الكتاب", ["كتاب"]),
        ("hi", "किताबें", ["किताब"]),
        ("zh", "北京大学在中国。", ["北京", "京大", "大学", "学在", "在中", "中国"]),
        ("zh", "用 Python，和the C", ["用", "python", "和", "c"]),  # alone; Lucene's stop words
        ("ja", "ﾃﾞｰﾀをＡＢＣで", ["デー", "ータ", "タを", "abc", "で"]),
        ("zh", "北京。中国", ["北京", "中国"]),  # no pair across a mark
        ("ja", "人々", ["人", "々"]),  # a letter to Lucene
        ("ko", "한국어 글", ["한국", "국어", "글"]),
        ("th", "ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("th", "น้ำดี", ["น้ำดี"]),  # of two characters with their marks
        ("my", "မြန်မာ", ["မြန်", "န်မ", "မာ"]),
        ("de", "中国文字", ["中国", "国文", "文字"]),  # bigrams in every language but English
        ("und", "Houses Οίκοι", ["houses", "οίκοι"]),
        ("en", "houses 中国", ["hous", "中", "国"]),
    ],
)
def test_the_terms_of_a_language(language, text, terms):
    assert analyser(TextAnalysis(language).terms())(text) == terms


def test_every_algorithm_of_snowball_has_a_language():
    older = {"porter", "dutch_porter", "english"}  # English stems are Lucene's
    ours = {own.stems for own in LANGUAGES.values()} - {"", "porter"}
    assert ours == set(snowballstemmer.algorithms()) - older
    for code in LANGUAGES:
        assert analyser(TextAnalysis(code).terms())("word 2026") != []


def test_stems_are_those_of_the_version_that_the_recipe_names(monkeypatch):
    """Snowball's own function would prefer another package's."""
    other = SimpleNamespace(Stemmer=lambda name: pytest.fail("stems of PyStemmer"))
    monkeypatch.setitem(sys.modules, "Stemmer", other)
    monkeypatch.setattr(snowballstemmer, "stemmer", other.Stemmer)
    assert TextAnalysis("de").terms()("Häuser") == ["haus"]
    assert snowballstemmer.__name__ in TextAnalysis("de").recipe()


def test_english_has_no_recipe_of_its_own_and_others_differ():
    assert TextAnalysis().recipe() == TextAnalysis("en").recipe() == ""
    others = [TextAnalysis(code).recipe() for code in LANGUAGES if code != "en"]
    assert "" not in others and len(set(others)) == len(others)


def test_a_long_text_without_spaces_is_not_kept_in_memory():
    known = analyser(TextAnalysis("zh").terms()).__closure__[0].cell_contents
    for piece in ("短文", "长" * 1000):
        assert len(known[piece]) == len(piece) - 1
    assert list(known) == ["短文"]


@pytest.mark.parametrize(
    ("code", "meant"),
    [("de", "de"), ("DE", "de"), ("zh-CN", "zh"), ("pt_BR ", "pt"), ("und", "und")],
)
def test_a_code_may_have_a_region(code, meant):
    assert language_code(code, "here") == meant


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("german", "here: unknown language 'german'; did you mean de? Known: ar, "),
        ("frr", "did you mean fr?"),
        ("", "unknown language ''; known: ar, "),
        ("xx", "und is for any other"),
    ],
)
def test_an_unknown_language_is_refused_with_the_known_ones(code, words):
    with pytest.raises(BadInput) as caught:
        language_code(code, "here")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "scripts", "codes"),
    [
        ("北京大学", {"CJK": 4}, ["zh"]),
        ("北京のデータ", {"CJK": 2, "HIRAGANA": 1, "KATAKANA": 3}, ["ja"]),
        ("한국어 글 abc", {"HANGUL": 4, "LATIN": 3}, ["ko"]),
        ("книга", {"CYRILLIC": 5}, ["ru", "sr"]),
        ("ქართული", {"GEORGIAN": 7}, []),
        ("12 %", {}, []),
    ],
)
def test_scripts_and_the_languages_that_they_may_be(text, scripts, codes):
    counts = script_counts([text])
    assert counts == Counter(scripts)
    assert languages_fitting(counts) == codes


def recall(collection, depth=10):
    split, measure = collection.splits["test"], f"R@{depth}"
    return mean_values(per_query(split.qrels, split.candidates, [measure]))[measure]


@pytest.mark.parametrize("language", ["de", "zh"])
def test_bm25_finds_more_in_the_language_of_the_texts(language, tmp_path, own_cache):
    made_languages.write_folder(tmp_path / "made", language, np.random.default_rng(1))
    declared = load_folder(tmp_path / "made")
    assert declared.language == language
    (tmp_path / "made" / "ranksweep.json").unlink()
    undeclared = load_folder(tmp_path / "made")
    assert recall(declared) > 0.9 and recall(undeclared) < 0.6
    assert declared.content_hash != undeclared.content_hash


def test_a_query_is_expanded_by_terms_that_are_not_ascii():
    texts = {f"d{n}": f"слово{n} море" for n in range(30)} | {"a": "книга роман", "b": "роман"}
    for analysis, found in ((TextAnalysis("ru"), ["a", "b"]), (TextAnalysis(), ["a"])):
        run = Bm25Index(texts, analysis).run({"q": "книги книга"}, Bm25Settings(rm3=Rm3()))
        assert list(run["q"]) == found


def test_subwords_of_a_tokenizer_are_terms():
    analysis = TextAnalysis(tokenizer=str(FOLDER))
    terms = analyser(analysis.terms())("Sorting\nlists unhashably")
    assert terms == lowered(FOLDER, "sorting lists unhashably") and len(terms) > 3
    run = Bm25Index({"a": "unhashably", "b": "sortedlist"}, analysis).run({"q": "keylist"})
    assert list(run["q"]) == ["b"]
    assert content_hash(str(FOLDER)) in analysis.recipe()


def test_a_tokenizer_of_lower_case_reads_capitals(tmp_path):
    model = WordLevel({"sort": 0, "?": 1}, unk_token="?")
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    assert TextAnalysis(tokenizer=str(tmp_path)).terms()("SORT") == ["sort"]


def lowered(folder, text):
    """The pieces of a text, of each word alone, as the tokenizer itself has them."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoded = (tokenizer.encode(word, add_special_tokens=False) for word in text.split())
    return [token for own in encoded for token in own.tokens]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}/none", "tokenizer '{}/none' does not exist; name a folder with tokenizer.json"),
        ("{}", "the folder has no tokenizer.json"),
        ("{}/bad.json", "bad.json is not a tokenizer: "),
        ("nobody/nothing", "neither a folder with tokenizer.json nor one that could be downloaded"),
    ],
)
def test_a_tokenizer_that_is_not_there_is_refused(name, words, tmp_path, monkeypatch):
    def download(*names):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(BadInput) as caught:
        TextAnalysis(tokenizer=name.format(tmp_path)).terms()
    assert words.format(tmp_path) in str(caught.value)
