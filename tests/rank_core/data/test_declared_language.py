"""Where a collection says its language, and what depends on it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rank_core.data.folder import load_folder
from rank_core.data.ir_collections import IrSource
from rank_core.data.load import load_collection
from rank_core.data.transforms.expression import with_absolute_tokenizers
from rank_core.data.transforms.far_relevant import FarRelevant
from rank_core.data.transforms.first_stage import FirstStage
from rank_core.encoders.shipped import FOLDER
from rank_core.errors import BadInput
from tests.rank_core.data import made_languages

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def folder(tmp_path):
    """Twenty German texts; the language is not declared."""
    made_languages.write_folder(
        tmp_path / "made", "de", np.random.default_rng(1), 20, 9, declared=False
    )
    return tmp_path / "made"


def declared(folder, language):
    (folder / "ranksweep.json").write_text(json.dumps({"language": language}))
    return load_folder(folder)


def candidates(collection):
    return {q: dict(own) for q, own in collection.splits["test"].candidates.items()}


def test_a_declared_language_ranks_and_english_changes_nothing(folder):
    undeclared = load_folder(folder)
    english, german = declared(folder, "en"), declared(folder, "de-AT")
    assert undeclared.language == "" and english.language == "en" and german.language == "de"
    assert english.content_hash == undeclared.content_hash != german.content_hash
    assert candidates(english) == candidates(undeclared) != candidates(german)
    assert german.documents.folder == undeclared.documents.folder, "texts are stored once"
    assert replace(load_folder(folder, language="fr")).language == "de", "the file's own holds"


def test_a_run_of_the_folder_is_kept_and_the_hash_says_the_language(folder):
    (folder / "test" / "mine.run").write_text("q0 Q0 d003 1 2.5 mine\n")
    undeclared, german = load_folder(folder), declared(folder, "de")
    assert candidates(german) == candidates(undeclared)
    assert german.content_hash != undeclared.content_hash, "a model may read texts in German"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "ranksweep.json must be JSON"),
        ("[]", "ranksweep.json must be an object such as {"),
        ('{"lang": "de"}', "unknown field 'lang'"),
        ('{"language": "de", "language": "en"}', "must be JSON: it has a duplicate"),
        ('{"language": 3}', 'must be a code such as "de", got 3'),
        ('{"language": "germn"}', "ranksweep.json: unknown language 'germn'; "),
    ],
)
def test_anything_else_in_the_file_is_refused(folder, content, words):
    (folder / "ranksweep.json").write_text(content)
    with pytest.raises(BadInput) as caught:
        load_folder(folder)
    assert words in str(caught.value)


def test_the_transform_ranks_in_its_own_language_or_in_the_collection_s(folder):
    undeclared = load_folder(folder)
    named = FirstStage(language="de")(undeclared)
    german = declared(folder, "de")
    assert candidates(named) == candidates(german) == candidates(FirstStage()(german))
    assert named.language == "de" and named.name == "made|first-stage(language=de)"
    back = FirstStage(language="en")(german)
    assert candidates(back) == candidates(undeclared) and back.language == "en"
    hashes = [made.content_hash for made in (undeclared, german, named, back, FirstStage()(german))]
    assert len(set(hashes)) == 5
    same = FirstStage(language="en")(undeclared), FirstStage()(undeclared)
    assert same[0].content_hash == same[1].content_hash, "as before there were languages"


def test_a_tokenizer_counts_by_its_content_and_not_by_its_place(folder, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    undeclared = load_folder(folder)
    here, there = (
        FirstStage(tokenizer=str(own))(undeclared) for own in (FOLDER, tmp_path / "copy")
    )
    assert here.content_hash == there.content_hash != FirstStage()(undeclared).content_hash
    assert candidates(here) == candidates(there) != candidates(undeclared)
    assert here.first_stage == "BM25 of subwords"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"language": "klingon"}, "language of first-stage: unknown language 'klingon'"),
        ({"by": "given", "language": "de"}, "language=de of first-stage has no effect with by=gi"),
        ({"by": "given", "tokenizer": str(FOLDER)}, "has no effect with by=given"),
        ({"by": "lucene", "language": "de"}, "by=lucene, which analyses texts as English"),
        ({"by": "lucene", "tokenizer": str(FOLDER)}, "by=lucene, which has an analysis of its own"),
        ({"tokenizer": str(FOLDER), "language": "de"}, "which knows no languages"),
        ({"tokenizer": "/none"}, "tokenizer '/none' does not exist"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, words):
    with pytest.raises(BadInput) as caught:
        FirstStage(**settings)
    assert words in str(caught.value)


def test_lucene_ranks_another_language_only_if_english_is_meant(folder):
    german = declared(folder, "de")
    with pytest.raises(BadInput, match=r"the language of made is de; language=en says that this"):
        FirstStage(by="lucene").analysis(german)
    assert FirstStage(by="lucene", language="en").analysis(german).is_english


def test_a_relative_tokenizer_becomes_absolute(tmp_path):
    (tmp_path / "tok").mkdir()
    text = "made|first-stage(by=bm25, tokenizer=tok)|debias(seed=2)"
    expected = f"made|first-stage(by=bm25, tokenizer={tmp_path}/tok)|debias(seed=2)"
    assert with_absolute_tokenizers(text, str(tmp_path)) == expected
    for other in ("made|first-stage(tokenizer=a/b)", "mytokenizer=tok", "made"):
        assert with_absolute_tokenizers(other, str(tmp_path)) == other


@pytest.mark.parametrize(
    ("dataset_id", "language"),
    [("mmarco/zh", "zh"), ("beir/nfcorpus/test", "en"), ("mr-tydi/sw", "und"), ("miracl/th", "th")],
)
def test_ir_datasets_says_a_language(dataset_id, language):
    assert IrSource(dataset_id).language == language


def test_an_id_of_ir_datasets_is_ranked_in_its_language(written, monkeypatch):
    written("beir", "nfcorpus", ("train", "dev", "test"))
    english = load_collection("beir-nfcorpus")
    monkeypatch.setattr(IrSource, "language", "de")
    german = load_collection("beir-nfcorpus")
    assert english.language == "en" and german.language == "de"
    assert english.content_hash != german.content_hash


@pytest.mark.parametrize("stated", ["de", "de-DE"])
def test_a_function_s_collection_has_a_language(folder, stated, monkeypatch):
    from rank_core.data import load

    undeclared = load_folder(folder)
    splits = {
        name: replace(
            undeclared.splits["test"],
            queries={f"{name}{q}": t for q, t in undeclared.splits["test"].queries.items()},
            qrels={f"{name}{q}": dict(own) for q, own in undeclared.splits["test"].qrels.items()},
            candidates={},
        )
        for name in ("train", "dev", "test")
    }
    made = replace(undeclared, documents=dict(undeclared.documents), splits=splits, content_hash="")
    monkeypatch.setattr(load, "load", lambda *_: lambda: made)
    load.load_own.cache_clear()
    plain = load.load_own("x:y")
    made = replace(made, language=stated)
    load.load_own.cache_clear()
    german = load.load_own("x:y")
    load.load_own.cache_clear()
    assert german.language == "de" and german.content_hash != plain.content_hash
    expected = candidates(declared(folder, "de"))
    assert candidates(german) == {f"test{q}": own for q, own in expected.items()}


def test_documents_made_of_passages_are_ranked_in_their_language(folder):
    german, undeclared = declared(folder, "de"), FirstStage(language="en")(declared(folder, "de"))
    longer = FarRelevant(first_position=0, max_length=60)
    ours, english = longer(german), longer(undeclared)
    assert ours.language == "de" and dict(ours.documents) == dict(english.documents)
    assert candidates(ours) != candidates(english)
