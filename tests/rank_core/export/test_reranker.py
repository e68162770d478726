"""An exported model that ranks: what it takes, what it gives, what it refuses."""

import copy
import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.data.load import load_collection
from rank_core.data.trec import read_run, write_run
from rank_core.encoders.backbones import EXPORT_FILE as FILE
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.export import reranker as module
from rank_core.export.folder import REST, _digest, read_model, read_settings, write_model
from rank_core.export.reranker import Ranked, Reranker
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def trial(small_trial, tmp_path_factory):
    """(configuration, folder) of a finished MaxP trial."""
    folder = tmp_path_factory.mktemp("trial")
    config = small_trial.override({"evaluation.max_test_queries": 5})
    list(run_trial(config, folder))
    return config, folder


@pytest.fixture(scope="module")
def folder(trial, tmp_path_factory):
    config, of_trial = trial
    folder = tmp_path_factory.mktemp("export") / "model"
    write_model(folder, config, of_trial / WEIGHTS, about={"seed": 1}, card="# A card\n")
    return folder


@pytest.fixture(scope="module")
def reranker(folder):
    return Reranker.load(folder)


@pytest.fixture(scope="module")
def texts(trial):
    """(queries, documents, candidates) of test."""
    collection = load_collection(trial[0].collection)
    split = collection.splits["test"]
    return split.queries, collection.documents, split.candidates


def test_layers_are_compiled_after_so_many_tokens(folder, monkeypatch):
    monkeypatch.setattr("rank_core.models.ranker.COMPILE_TOKENS", 10)
    reranker = Reranker.load(folder)
    for compiles in (False, True):
        reranker.rank("w1 w2", ["w3 " * 20])
        assert reranker._model.encoder.compiles is compiles


def test_a_folder_reproduces_the_run_of_its_trial(trial, reranker, texts):
    expected = read_run(trial[1] / "test.run.gz")
    queries, documents, candidates = texts
    found = reranker.rerank({q: candidates[q] for q in expected}, queries, documents)
    for query_id, scores in expected.items():
        assert list(found[query_id]) == list(scores)
        assert found[query_id] == pytest.approx(scores, abs=1e-5)


def test_other_users_may_read_each_file(folder):
    assert len({path.stat().st_mode for path in folder.rglob("*") if path.is_file()}) == 1


def test_a_query_ranks_texts_by_their_places_or_their_ids(reranker, texts):
    queries, documents, _ = texts
    query_id, query = next(iter(queries.items()))
    some = dict(list(documents.items())[:7])
    by_id = reranker.rank(query, some)
    assert all(isinstance(one, Ranked) for one in by_id)
    assert [one.score for one in by_id] == sorted((one.score for one in by_id), reverse=True)
    places = reranker.rank(query, list(some.values()))
    assert [list(some)[place] for place, _ in places] == [doc_id for doc_id, _ in by_id]
    assert reranker.rank(query, some, top=2) == by_id[:2]
    assert reranker.rank(query, []) == reranker.rank(query, {}) == []
    run = reranker.rerank({query_id: dict.fromkeys(some, 0.0)}, queries, documents, depth=99)
    assert run[query_id] == pytest.approx(dict(by_id), abs=1e-6)


def test_documents_are_read_in_blocks_and_the_depth_is_the_trial_s(
    trial, reranker, texts, monkeypatch
):
    queries, documents, candidates = texts
    whole = reranker.rerank(candidates, queries, documents)
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 3)
    in_blocks = reranker.rerank(candidates, queries, documents)
    depth = trial[0].evaluation.depth
    for query_id, scores in whole.items():
        assert in_blocks[query_id] == pytest.approx(scores, abs=1e-6)
        assert set(list(scores)[:depth]) == set(list(candidates[query_id])[:depth])


@pytest.mark.parametrize("depth", [1, 2, 5, 6, 99])
def test_candidates_behind_the_depth_follow_in_the_order_of_the_run(
    reranker, texts, depth, tmp_path
):
    """Through a file too, which a reader of single precision orders by its scores."""
    queries, documents, candidates = texts
    read = reranker.rerank(candidates, queries, documents, depth=depth, depth_only=True)
    found = reranker.rerank(candidates, queries, documents, depth=depth)
    write_run(tmp_path / "out.run", found, tag="x")
    assert read_run(tmp_path / "out.run") == found and list(found) == list(candidates)
    for query_id, given in candidates.items():
        assert dict(list(found[query_id].items())[:depth]) == read[query_id]
        assert list(found[query_id])[depth:] == list(given)[depth:]
        scores = np.array(list(found[query_id].values()), np.float32)
        assert (np.diff(scores[depth - 1 :]) < 0).all()
    nothing = next(iter(queries))
    assert reranker.rerank({nothing: {}}, queries, documents, depth=depth) == {nothing: {}}


@pytest.mark.parametrize("name", ["model.name", "chunking.window", "seed"])
def test_a_setting_that_the_folder_lacks_has_no_default(folder, tmp_path, name):
    """A checksum is no signature: whoever takes a setting out writes it anew."""
    shutil.copytree(folder, tmp_path / "m")
    content = json.loads((tmp_path / "m" / FILE).read_text())
    del content["settings"][name], content["sha256"]
    sealed = content | {"sha256": _digest(content)}
    (tmp_path / "m" / FILE).write_text(json.dumps(sealed))
    with pytest.raises(BadInput, match=f"as `ranksweep export` wrote it .no setting {name}"):
        read_model(tmp_path / "m")


def test_what_has_no_text_is_named(reranker, texts):
    queries, documents, candidates = texts
    for run, named in (({"q?": {}}, r"'q\?'"), ({next(iter(queries)): {"d?": 1.0}}, r"'d\?'")):
        with pytest.raises(BadInput, match=named):
            reranker.rerank(run, queries, documents)
    with pytest.raises(BadInput, match="depth >= 1"):
        reranker.rerank(candidates, queries, documents, depth=0)


def test_a_folder_is_written_whole_into_a_new_or_empty_place(trial, folder, tmp_path):
    config, of_trial = trial
    assert (folder / "README.md").read_text() == "# A card\n"
    assert read_model(folder).about == {"seed": 1}
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", config, of_trial / WEIGHTS)
    with pytest.raises(BadInput, match="--to must be a new or an empty folder"):
        write_model(tmp_path / "m", config, of_trial / WEIGHTS)
    other = config.override({"model.name": "parade-attn"})
    with pytest.raises(BadInput, match=r"must hold the weights of this model; .* such as att"):
        write_model(tmp_path / "other", other, of_trial / WEIGHTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_window(path):
    settings = json.loads(path.read_text())["settings"]
    edit(path, settings=settings | {"chunking.window": 39})


DAMAGES = {
    "flipped bit": ("encoder/model.safetensors", flip),
    "absent": ("encoder/model.safetensors", Path.unlink),
    "empty head": (REST, lambda path: os.truncate(path, 0)),
    "other tokenizer": ("encoder/tokenizer_config.json", lambda path: path.write_text("{}")),
    "cut description": (FILE, lambda path: os.truncate(path, 300)),
    "nested": (FILE, lambda path: path.write_text("[" * 100_000)),
    "not UTF-8": (FILE, lambda path: path.write_bytes(b"\xff\xfe{}")),
    "files as a number": (FILE, lambda path: edit(path, files=3)),
    "edited window": (FILE, edit_window),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_changed_file_is_named(folder, tmp_path, damage):
    shutil.copytree(folder, tmp_path / "m")
    name, change = DAMAGES[damage]
    change(tmp_path / "m" / name)
    with pytest.raises(BadInput, match=f"{tmp_path / 'm' / name} must be as .* export the model"):
        Reranker.load(tmp_path / "m")


@pytest.mark.parametrize("written", [2, 99, "3", None])
def test_another_version_s_folder_is_refused(folder, tmp_path, written):
    shutil.copytree(folder, tmp_path / "m")
    edit(tmp_path / "m" / FILE, format=written)
    with pytest.raises(BadInput, match=r"must have format 3, got .* another version"):
        Reranker.load(tmp_path / "m")
    (tmp_path / "m" / FILE).unlink()
    with pytest.raises(BadInput, match="an exported model is a folder with"):
        Reranker.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("query", "documents", "named"),
    [
        ("a\ud800", ["x"], "query"),
        ("a", ["x", "b\udc00"], "document '1'"),
        ("a", {"d": None}, "document 'd'"),
        (None, ["x"], "query"),
        ("a", None, "several documents"),
    ],
)
def test_what_is_no_text_is_named(reranker, query, documents, named):
    with pytest.raises(BadInput, match=named):
        reranker.rank(query, documents)


@pytest.mark.parametrize("score", [None, "z", float("nan"), float("inf")])
def test_a_first_stage_has_finite_numbers(reranker, score):
    with pytest.raises(BadInput, match="first_stage must have a finite score"):
        reranker.rank("a", ["x", "y"], first_stage=[1.0, score])


def test_no_folder_of_this_machine_is_in_the_description(trial, collection_folder, tmp_path):
    config = trial[0].override({"training.negatives_from": ("/srv/first.run",)})
    command = "/srv/bin/python -m sweeps --storage=/srv/s --tracking-uri sqlite:////srv/m.db"
    command += (
        " --collection '/srv/my docs|debias(seed=2)' --backbone org/name --storage s3://b/srv/x"
    )
    about = {"command": command, "backbone": {"name": "/srv/bert"}}
    card = f"MaxP 48/32 over /srv/bert, from `{command}`.\n"
    write_model(tmp_path / "m", config, trial[1] / WEIGHTS, about=about, card=card)
    for name in (FILE, "README.md"):
        text = (tmp_path / "m" / name).read_text()
        assert "/srv" not in text.replace("s3://b/srv/x", "")
        assert "python -m sweeps --storage=s --tracking-uri sqlite:///m.db" in text
        assert "'my docs|debias(seed=2)' --backbone org/name --storage s3://b/srv/x" in text
    text = (tmp_path / "m" / FILE).read_text()
    assert str(collection_folder) not in text and collection_folder.name in text
    assert read_model(tmp_path / "m").config.collection == collection_folder.name


def test_a_model_of_somebody_s_own_needs_its_module(trial, backbone, tmp_path, monkeypatch):
    config = trial[0].override({"model.name": "own_model:SmoothMaxP"})
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    save_weights(tmp_path, build_model(config, backbone, init_seed=1).state_dict())
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    assert len(Reranker.load(tmp_path / "m").rank("amber", ["birch", "amber"])) == 2
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "own_model")
    with pytest.raises(BadInput, match="import own_model before the folder is loaded"):
        Reranker.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("documents", "first_stage", "named"),
    [
        ({"a": "x", "b": "y"}, [1.0, 2.0], r"\{doc_id: score\}"),
        (["x", "y"], {"a": 1.0, "b": 2.0}, "a list of scores"),
    ],
)
def test_scores_in_another_form_than_the_documents_are_refused_as_that(
    reranker, documents, first_stage, named
):
    with pytest.raises(BadInput, match=f"the form of the documents: {named}"):
        reranker.rank("a", documents, first_stage=first_stage)


def test_an_exported_model_whose_weights_were_drawn_is_not_loaded(small_trial, tmp_path):
    """Older versions ran and kept it."""
    config = small_trial.override({"model.name": "cedr-knrm", "training.num_epochs": 0})
    backbone = resolve_backbone(config.model.backbone)
    save_weights(tmp_path, build_model(config, backbone, init_seed=1).state_dict())
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    with pytest.raises(BadInput, match="would rank at random: nothing is trained"):
        Reranker.load(tmp_path / "m")
    with pytest.raises(BadInput, match="would rank at random: nothing is trained"):
        write_model(tmp_path / "other", config, None)


def test_a_copy_is_loaded_again_and_ranks_alike(folder, texts, tmp_path):
    """Through pickle (joblib, spawned processes, Spark) and copy; not where the model changed."""
    queries, documents, candidates = texts
    run = {query_id: dict(list(candidates[query_id].items())[:5]) for query_id in [*queries][:2]}
    moved = shutil.copytree(folder, tmp_path / "model")
    loaded = Reranker.load(moved, device="cpu")
    expected = loaded.rerank(run, queries, documents)
    for copied in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded), copy.copy(loaded)):
        assert copied is not loaded and copied.rerank(run, queries, documents) == expected
    assert len(pickle.dumps(loaded)) < 10_000
    content = pickle.dumps(loaded)
    shutil.rmtree(moved)
    other = TrialConfig().override(read_settings(folder).settings() | {"chunking.stride": 7})
    write_model(moved, other, None)
    with pytest.raises(BadInput, match="changed after the reranker was loaded"):
        pickle.loads(content)
    built = Reranker(read_model(folder), None, "")
    with pytest.raises(TypeError, match="only a Reranker of load or serve"):
        pickle.dumps(built)


@pytest.mark.parametrize("long", ["words", "one word", "spaces", "lines", "a long word in words"])
def test_the_time_of_a_document_follows_from_what_is_read_of_it(reranker, texts, long):
    """The tokens that are read are those of the whole text, of which only the beginning is
    tokenised where it has words."""
    words = " ".join(texts[1].values())[:40_000]
    whole = {
        "words": words * 5,
        "one word": 30_000 * "ab",
        "spaces": 50_000 * " " + words,
        "lines": words.replace(" ", "\r\n\t") * 3,
        "a long word in words": "amber " + 30_000 * "ab" + " " + words,
    }[long]
    limit, asked = reranker.config.chunking.max_document_tokens, []

    def tokenizer(given, **more):
        asked.extend(map(len, given))
        return reranker._tokenizer(given, **more)

    stand_in = copy.copy(vars(reranker))
    counted = object.__new__(Reranker)
    vars(counted).update(stand_in | {"_tokenizer": tokenizer})
    [found] = counted._read_tokens([whole], "")
    [expected] = module.tokenize(reranker._tokenizer, [whole])
    assert found[:limit] == expected[:limit]
    if long in ("words", "lines"):
        assert sum(asked) < len(whole) / 2
