"""`sweeps export` and `sweeps rerank` on a finished smoke test: files and refusals."""

import json
import os
import shutil

import pytest

import ranksweep
from rank_core.data.load import load_collection
from rank_core.data.trec import read_qrels, read_run, write_run
from rank_core.evaluate import mean_values, per_query
from rank_core.export.reranker import Reranker
from rank_core.ranking.interpolation import mixture
from sweeps.__main__ import main
from sweeps.commands import export as command
from sweeps.commands import rerank as shards
from sweeps.commands.export import _spelled
from sweeps.systems.choice import choose
from sweeps.systems.load import load_sweep
from tests.e2e.conftest import run_local

__all__ = ["run_local"]

pytestmark = pytest.mark.slow
WORDS = (*("--smoke-test", "--tracking-uri", "none"), "chunking.window=48", "chunking.stride=32")


@pytest.fixture(scope="module")
def finished(run_local, tmp_path_factory):
    """A finished sweep of two seeds with its models."""
    return run_local(tmp_path_factory.mktemp("export") / "results", *WORDS)


@pytest.fixture(scope="module")
def exported(finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    assert main(["export", str(finished.folder), "--to", str(folder)]) == 0
    return folder


@pytest.fixture
def refused(capsys):
    """Checks that a command is refused by one message with this in it."""

    def refused(named, *words):
        assert main([*map(str, words)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error: ") and "Traceback" not in err
        assert named in err
        return err

    return refused


def of_trial(finished, folder):
    """The folder of the trial that a model comes from."""
    about = json.loads((folder / "ranker.json").read_text())["about"]
    return finished.folder.parents[1] / "trials" / about["trial"]


def test_the_winner_on_dev_is_exported_with_its_card(finished, exported):
    about = json.loads((exported / "ranker.json").read_text())["about"]
    means = {}
    for path in finished.folder.parents[1].glob("trials/*/result.json"):
        result = json.loads(path.read_text())
        means.setdefault(result["cell"], []).append(result["dev"]["nDCG@10"])
    choice, own = ranksweep.load(finished.folder).choice, max(means[about["cell"]])
    assert (about["cell"], about["label"]) == (choice.cell, choice.label)
    assert about["dev"] >= own if choice.is_mixed else about["dev"] == own, (about, means)
    card = (exported / "README.md").read_text()
    for words in (about["collection"]["content_hash"], about["trial"], about["sweep"], "nDCG@10"):
        assert words in card
    assert "32 query tokens" in card and "tokens of a document" in card
    assert ("Not for use" in card) == ("--smoke-test" in about["command"])
    assert "| FirstP" in card and "ranksweep export" in card and "Reranker.load" in card
    assert sorted(path.name for path in exported.parent.iterdir()) == ["model"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_value_of_another_precision_is_not_the_folder_s(
    precision, finished, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        "sweeps.commands.export._precision",
        lambda config, result: config.training.precision.replace("auto", "fp32"),
    )
    words = ["export", str(finished.folder), "--precision", precision]
    assert main([*words, "--to", str(tmp_path / "m")]) == 0
    out, card = capsys.readouterr().out, (tmp_path / "m" / "README.md").read_text()
    about = _strict(tmp_path / "m" / "ranker.json")["about"]
    serving = tmp_path / "m" / "serving.json"
    measured = _strict(serving).get("measured") if serving.exists() else None
    if precision == "fp32":  # as its trial
        assert "model-index" in card and "not_measured" not in about
        assert measured is None or "mean" in measured
        return
    how = "in bf16 by torch; the trial was measured in fp32 by torch"
    assert f"not measured as the folder computes it, {how}" in " ".join(out.split())
    assert how in card and "model-index" not in card and "it has nDCG" not in card
    assert about["not_measured"] == how and how in about["description"] and measured is None


def _strict(path):
    def refused(name):
        raise AssertionError(f"{path} has {name}, which is no JSON")

    return json.loads(path.read_text(), parse_constant=refused)


def test_an_export_of_one_seed_is_strict_json(exported):
    """Its intervals are not known."""
    for path in exported.rglob("*.json"):
        _strict(path)


def test_a_cell_and_a_seed_can_be_named(finished, refused, tmp_path, capsys):
    cells = json.loads((finished.folder / "sweep.json").read_text())["cells"]
    labels = [cell["label"] for cell in cells]
    words = ["export", str(finished.folder), "--to", str(tmp_path / "b"), "--cell"]
    assert main([*words, labels[0]]) == 0
    about = json.loads((tmp_path / "b" / "ranker.json").read_text())["about"]
    assert f"{labels[0]}, seed {about['seed']}" in capsys.readouterr().out
    assert about["label"] == labels[0]
    words[3] = str(tmp_path / "c")
    refused("training.keep_weights=all", *words, labels[0], "--seed", 3 - about["seed"])
    text = refused("'MaxP 1/1'", *words, "MaxP 1/1")
    assert all(label in text for label in labels)
    refused("BM25", *words, "BM25")
    name = json.loads((finished.folder / "sweep.json").read_text())["collection"]["first_stage"]
    assert f"winner +{name}" in refused("unknown cell", *words, "MaxP 1/1 +other run")


def test_a_row_with_the_first_stage_is_exported_as_it_was_derived(
    finished, collection_folder, refused, tmp_path, capsys
):
    name = json.loads((finished.folder / "sweep.json").read_text())["collection"]["first_stage"]
    folder = tmp_path / "m"
    words = ("export", str(finished.folder), "--cell", f"winner +{name}")
    assert main([*words, "--to", str(folder)]) == 0
    mixed = f"{choose(load_sweep(finished.folder)).label.removesuffix(f' +{name}')} +{name}"
    assert _spelled(load_sweep(finished.folder), "winner +BM25") == mixed
    run = read_run(of_trial(finished, folder) / "test.run.gz")
    first = read_run(finished.folder / "first_stage" / "test.run.gz")
    content = json.loads((folder / "ranker.json").read_text())
    mix, about = content["first_stage"], content["about"]
    expected = mixture(run, first, mix["normalise"]).at(mix["alpha"])
    collection = load_collection(str(collection_folder))
    queries = collection.splits["test"].queries
    found = Reranker.load(folder).rerank(first, queries, collection.documents)
    for query_id, scores in expected.items():
        assert found[query_id] == pytest.approx(scores, abs=1e-5)
    card = (folder / "README.md").read_text()
    assert about["label"].endswith(f" +{name}") and f"| {about['label']} |" in card
    qrels = read_qrels(finished.folder / "qrels" / "test.qrels")
    means = mean_values(per_query(qrels, expected, list(about["test"])))
    assert about["test"] == pytest.approx(means)


@pytest.fixture(scope="module")
def all_kept(run_local, tmp_path_factory):
    """A finished sweep of two seeds that all have weights."""
    storage = tmp_path_factory.mktemp("all") / "results"
    return run_local(storage, *WORDS, "training.keep_weights=all")


@pytest.fixture
def with_alphas(monkeypatch):
    """Lets dev choose these alphas and mean values of each seed."""

    def choose(chosen: dict[int, tuple[float, float]]) -> None:
        whole = command.trial_table

        def table(name, inputs):
            alpha, dev = chosen[int(name.rpartition("-seed")[2])]
            own = whole(name, inputs).assign(alpha=alpha)
            own.loc[own["split"] == "dev", "value"] = dev
            return own

        monkeypatch.setattr(command, "trial_table", table)

    return choose


@pytest.mark.parametrize("best", [1, 2])
def test_the_seed_of_an_interpolated_model_is_the_best_when_interpolated(
    all_kept, with_alphas, best, tmp_path
):
    with_alphas({best: (0.3, 0.9), 3 - best: (0.0, 0.8)})
    words = ("export", str(all_kept.folder), "--cell", "winner +BM25", "--to", str(tmp_path / "m"))
    assert main(words) == 0
    content = json.loads((tmp_path / "m" / "ranker.json").read_text())
    assert content["about"]["seed"] == best and content["first_stage"]["alpha"] == 0.3


def test_a_model_without_weight_is_refused_unless_it_is_asked_for(
    all_kept, with_alphas, refused, tmp_path, capsys
):
    with_alphas({1: (0.0, 0.9), 2: (0.3, 0.8)})
    words = ("export", str(all_kept.folder), "--cell", "winner +BM25", "--to", str(tmp_path / "m"))
    text = refused("alpha 0", *words)
    assert "seed 2 (alpha 0.3)" in " ".join(text.split()) and not (tmp_path / "m").exists()
    refused("--force", *words, "--seed", "2", "--force")  # without effect
    assert main([*words, "--force"]) == 0
    assert "alpha is 0" in capsys.readouterr().out


def test_what_cannot_be_exported_is_refused_before_anything_is_written(
    finished, exported, refused, tmp_path
):
    own = finished.folder.relative_to(finished.storage)
    bare = shutil.copytree(finished.storage, tmp_path / "bare") / own
    for path in bare.parents[1].glob("trials/*/weights.safetensors"):
        path.unlink()
    text = refused("training.keep_weights=best", "export", bare, "--to", tmp_path / "m")
    assert "window_stride --" in text
    refused(str(exported), "export", bare, "--to", exported)
    refused("--register", "export", bare)
    refused("sweep.json", "export", tmp_path, "--to", tmp_path / "m")
    weights = next(finished.folder.parents[1].glob("trials/*/weights.safetensors"))
    storage = shutil.copytree(finished.storage, tmp_path / "torn")
    os.truncate(storage / weights.relative_to(finished.storage), 100)
    refused("weights.safetensors", "export", storage / own, "--to", tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.fixture
def job(exported, collection_folder, tmp_path):
    """(words of a `rerank` command, the run that it reads, the one that it writes)."""
    split = load_collection(str(collection_folder)).splits["test"]
    run, out = tmp_path / "first.run", tmp_path / "out.run"
    write_run(run, split.candidates, tag="bm25")
    words = ("rerank", exported, "--collection", collection_folder, "--run", run, "--out", out)
    return [*map(str, words), "--shard-queries", "3"], run, out


def test_trust_without_code_to_trust_is_refused(job, capsys):
    words, _, out = job
    assert main([*words, "--trust-code"]) == 2 and not out.exists()
    error = capsys.readouterr().err
    assert "--trust-code has no effect: " in error and "a model of ranksweep" in error


def test_a_run_is_reranked_in_shards_as_at_once(job, exported, collection_folder, capsys):
    words, run, out = job
    assert main(words) == 0
    depth = json.loads((exported / "ranker.json").read_text())["settings"]["evaluation.depth"]
    longer = sum(len(ranked) > depth for ranked in read_run(run).values())
    assert (f"the first {depth} candidates of {longer}" in capsys.readouterr().out) == (longer > 0)
    collection = load_collection(str(collection_folder))
    queries = collection.splits["test"].queries
    expected = Reranker.load(exported).rerank(read_run(run), queries, collection.documents)
    found = read_run(out)
    for query_id, scores in expected.items():
        assert found[query_id] == pytest.approx(scores, abs=1e-6)
        assert found[query_id].keys() == read_run(run)[query_id].keys()
    assert sorted(path.name for path in out.parent.iterdir()) == ["first.run", "out.run"]
    cut = out.with_name("cut.run")
    shallow = [str(cut) if word == str(out) else word for word in words]
    shallow += ["--depth", "2", "--depth-only"]
    assert main(shallow) == 0 and "candidates of" in capsys.readouterr().out
    assert {len(ranked) for ranked in read_run(cut).values()} == {2}
    cut.unlink()
    # The same queries from a file with names of its own.
    rows = ({"qid": query_id, "question": text} for query_id, text in queries.items())
    texts, before = run.with_name("new.jsonl"), out.rename(run.with_name("before.run"))
    texts.write_text("\n".join(map(json.dumps, rows)))
    fields = ["--fields", "text=text,question=text", "--queries", str(texts)]
    assert main([*words, *fields]) == 0
    assert out.read_bytes() == before.read_bytes()


def test_finished_shards_are_kept_and_the_same_command_goes_on(job, monkeypatch, capsys, refused):
    words, _, out = job
    whole, calls = shards.rerank_shard, []

    def dies_at_the_second(job, shard):
        calls.append(shard)
        if len(calls) == 2:
            raise KeyboardInterrupt
        whole(job, shard)

    monkeypatch.setattr(shards, "rerank_shard", dies_at_the_second)
    assert main(words) == 130
    assert not out.exists() and len(list(out.parent.glob("out.run.parts/shard-*"))) == 1
    capsys.readouterr()
    refused("depth", *words, "--depth", "2")
    note = out.parent / "out.run.parts" / "job.json"
    kept = note.read_text()
    for content in ("", "[1]", "{}"):  # absent is not equal
        note.write_text(content)
        refused("out.run.parts", *words)
    note.unlink()
    refused("out.run.parts", *words)
    note.write_text(kept)
    calls[:] = [-1, -1]
    assert main(words) == 0
    assert calls == [-1, -1, 1, 2] and "1 of 3 shards" in capsys.readouterr().out
    refused("--out", *words)


def test_what_cannot_be_reranked_is_refused(job, exported, refused, tmp_path):
    words, run, out = job
    with run.open("a") as file:
        file.write("q? Q0 d00 1 1.0 x\n")
    refused("'q?'", *words)
    write_run(run, {"test-0": {"d?": 1.0}}, tag="x")
    refused("'d?'", *words)
    run.write_text("")
    refused("first.run", *words)
    words[1] = str(tmp_path)
    refused("ranker.json", *words)
    damaged = shutil.copytree(exported, tmp_path / "damaged")
    os.truncate(damaged / "encoder" / "model.safetensors", 100)
    words[1] = str(damaged)
    refused(f"{damaged}/encoder/model.safetensors", *words)
    assert not out.exists()
    for flag in ("--run", "--out"):
        other = words.copy()
        other[words.index(flag) + 1] = "s3://bucket/x.run"
        refused(flag, *other)
    words[1] = str(exported)
    refused("nowhere does not exist", *words, "--queries", str(tmp_path / "nowhere"))
