"""`ranksweep run chunk_size`: an index for each chunk size, tested, with an answer that others can
follow; killed, resumed and repeated."""

import gzip
import json
import math
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from rank_core.data.load import load_collection
from rank_core.data.trec import read_qrels, read_run
from rank_core.evaluate import per_query
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.ranking.interpolation import mixture
from rank_core.retrieval import vectors
from rank_core.retrieval.index import DenseIndex
from sweeps.__main__ import main
from sweeps.chunk_size import EXPERIMENT
from sweeps.systems.chunk_sizes import USUAL
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.e2e.conftest import Ran

SIZES = ("chunking.window=24,48", "chunking.overlap=0,0.5", "chunking.snap=no")
WORDS = ("--tracking-uri", "none", "--interpolate", "all", *SIZES)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def with_spans(collection_folder):
    """The collection with the second half of a relevant document as the place of the answer."""
    path = collection_folder / "spans.jsonl.gz"
    texts = load_collection(str(collection_folder)).documents
    qrels = read_qrels(collection_folder / "test" / "qrels.trec")
    with gzip.open(path, "wt") as file:
        for query_id, judged in qrels.items():
            doc_id = max(judged, key=judged.__getitem__)
            size = len(texts[doc_id])
            row = {"query_id": query_id, "doc_id": doc_id, "start": size // 2, "end": size}
            file.write(json.dumps(row) + "\n")
    yield collection_folder
    path.unlink()


def runs_of(ran):
    """{label: its test run}."""
    sweep = load_sweep(ran.folder)
    trials = ran.storage / "trials"
    return {
        sweep.label(cell.cell): read_run(trials / f"{cell.cell}-seed1" / "test.run.gz")
        for cell in sweep.cells
    }


@pytest.mark.slow
def test_a_sweep_states_the_chunk_size_its_gains_and_costs(run_local, with_spans, tmp_path):
    words = (*WORDS[:-3], "chunking.window=32,64", *WORDS[-2:])
    ran = run_local(tmp_path / "results", *words, experiment=EXPERIMENT)
    report = ran.folder / "report"
    stated = json.loads((report / "chunking.json").read_text())
    results = json.loads((report / "results.json").read_text())
    assert f"chunks of {stated['chunk_tokens']} tokens" in results["headline"]["sentence"]
    assert results["choice"]["cell"] and stated["measured"]["chosen_on"] == "dev"
    assert bool(stated["with_first_stage"]) == (results["choice"]["mean_alone"] is not None)
    page = (report / "index.html").read_text()
    assert all(f"{window}/" in page for window, _ in USUAL) and "above the model" in page
    assert stated["overlap_tokens"] in (0, stated["chunk_tokens"] // 2)
    assert stated["chunk_characters"] > stated["chunk_tokens"]
    rows = {row["label"]: row for row in results["indexes"]}
    assert len(rows) == 5 and rows["32/50%"]["vectors"] > rows["32/0%"]["vectors"]
    for row in rows.values():
        assert row["bytes"] == 4 * row["vectors"] * row["dimensions"]
        assert set(row["evidence"]) == {"1024", "2048", "4096"}
        assert 0 < row["ms_per_query"] <= row["ms_per_query_p95"]
    # All chunks of 20 documents fit into 4,096 tokens or nearly so; a cut document lacks its end.
    assert rows["64/0%"]["evidence"]["4096"] > rows["cut at 129"]["evidence"]["4096"]
    page = (report / "index.html").read_text()
    assert "What an index costs" in page and "within a reader" in page
    assert "vectors, " in ran.text and "bytes in fp32" in ran.text
    assert "left out    512/0%, 256/50%, in common use" in ran.text
    bundle = str(tmp_path / "sweep.zip")
    assert main(["bundle", str(ran.folder), "--to", bundle, "--qrels", "include"]) == 0
    assert main(["verify", bundle]) == 0


@pytest.mark.slow
def test_a_dry_run_forecasts_what_is_not_stored_yet(run_local, tmp_path):
    words = (*WORDS, "--dry-run")
    before = run_local(tmp_path / "results", *words, experiment=EXPERIMENT).text
    assert re.search(r"embedding   [\d.]+ [KM] encoder tokens to read; each index alone: ", before)
    assert re.search(r"24/50%  +1  +\d+ K  +\d:\d\d \(\d:\d\d-\d:\d\d\)", before)
    assert "measured    3 of 3 kinds of trial" in before
    assert not list(tmp_path.glob("cache/vectors/*"))  # nothing is kept of measuring
    run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT)
    after = run_local(tmp_path / "other", *words, experiment=EXPERIMENT).text
    assert "embedding   0 K encoder tokens to read" in after
    confirmed = run_local(tmp_path / "results", "--confirm", experiment=EXPERIMENT, code=2).text
    assert "every system of chunk_size is deterministic" in " ".join(confirmed.split())


@pytest.mark.slow
def test_a_choice_that_cuts_no_chunks_states_none(run_local, tmp_path):
    ran = run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT)
    results = json.loads((ran.folder / "report" / "results.json").read_text())
    assert results["choice"]["label"].startswith("cut at")
    assert not (ran.folder / "report" / "chunking.json").exists()
    assert "there is no chunking.json" in ran.text


@pytest.mark.slow
def test_rows_with_the_first_stage_are_the_fusions_of_both_runs(run_local, tmp_path):
    ran = run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT)
    sweep = with_interpolated(load_sweep(ran.folder))
    dense = runs_of(ran)["48/0%"]
    first = read_run(ran.folder / "first_stage" / "test.run.gz")
    qrels = read_qrels(ran.folder / "qrels" / "test.qrels")
    [weighted] = [s for s in sweep.interpolated if s.label == "48/0% +BM25"]
    [by_rank] = [s for s in sweep.interpolated if s.label == "48/0% +RRF BM25"]
    [alpha] = weighted.alphas[1]
    for system, run in (
        (weighted, mixture(dense, first, union=True).at(alpha)),
        (by_rank, reciprocal_ranks(dense, first)),
    ):
        expected = per_query(qrels, run, sweep.measures).set_index(["query_id", "measure"])
        found = system.scores.set_index(["query_id", "measure"])["value"]
        assert (expected["value"] - found).abs().max() < 1e-9


def reciprocal_ranks(*runs):
    """Cormack et al. 2009, by their formula."""
    fused = {}
    for query_id in runs[0]:
        scores = Counter()
        for run in runs:
            for rank, doc_id in enumerate(run[query_id], start=1):
                scores[doc_id] += 1 / (60 + rank)
        fused[query_id] = dict(sorted(scores.items(), key=lambda own: (-own[1], own[0])))
    return fused


@pytest.mark.slow
def test_scores_are_the_products_of_the_texts_of_chunks(run_local, collection_folder, tmp_path):
    """The texts are cut here, as any other program would."""
    ran = run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT)
    cell = load_sweep(ran.folder).cells[1]
    model = EmbeddingModel.load(cell.config.get("model.backbone") or backbone_of(ran))
    collection = load_collection(str(collection_folder))
    split = collection.splits["test"]
    query_QD = model.encode_queries([*split.queries.values()])
    largest = 0.0
    runs = runs_of(ran)
    for label, window in (("24/0%", 24), ("48/0%", 48)):
        for doc_id, text in collection.documents.items():
            places = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            places = places["offset_mapping"]
            chunks = [places[start : start + window] for start in range(0, len(places), window)]
            texts = [text[own[0][0] : own[-1][1]] for own in chunks]
            best_Q = model.scores(query_QD, model.encode_documents(texts)).max(axis=1)
            for query_id, score in zip(split.queries, best_Q, strict=True):
                largest = max(largest, abs(runs[label][query_id][doc_id] - score))
    assert largest < 1e-5


def backbone_of(ran):
    config = next((ran.storage / "trials").glob("*/config.json"))
    return json.loads(config.read_text())["model.backbone"]


def count_texts(monkeypatch, read):
    """Adds every text that is embedded to `read`."""
    encode = EmbeddingModel.encode_whole

    def counted(self, texts, titles=None):
        read.extend(texts)
        return encode(self, texts, titles)

    monkeypatch.setattr(EmbeddingModel, "encode_whole", counted)


@pytest.mark.slow
def test_dimensions_and_precisions_are_cells_over_one_embedding(
    run_local, with_spans, tmp_path, monkeypatch
):
    read = []
    count_texts(monkeypatch, read)
    one = ("--tracking-uri", "none", "chunking.window=32", "chunking.overlap=0", "chunking.snap=no")
    plain = run_local(tmp_path / "plain", *one, experiment=EXPERIMENT)
    assert len(read) == len({*read}) > 0
    read.clear()
    forms = ("model.truncate_dim=0,8", "model.stored=fp32,int8,binary")
    ran = run_local(tmp_path / "results", *one, *forms, experiment=EXPERIMENT)
    assert read == []
    before, after = ({c.cell for c in load_sweep(own.folder).cells} for own in (plain, ran))
    assert before < after, "a cell in full is the trial that it was"
    results = json.loads((ran.folder / "report" / "results.json").read_text())
    rows = {row["label"]: row for row in results["indexes"]}
    full = rows["32/0%, dims all, as fp32"]
    for (dims, size), stored, each in (
        (own, *precision)
        for own in (("all", full["dimensions"]), ("8", 8))
        for precision in (("fp32", 4), ("int8", 1), ("binary", 1 / 8))
    ):
        row = rows[f"32/0%, dims {dims}, as {stored}"]
        assert (row["dimensions"], row["stored"]) == (size, stored)
        assert (
            row["bytes"] == math.ceil(each * size) * row["vectors"] == each * size * row["vectors"]
        )
    assert {row["full"] for row in results["stored"]} == {full["cell"]}
    assert len(results["stored"]) == 5 and all(0 <= row["p"] <= 1 for row in results["stored"])
    assert "What vectors in fewer bytes lose" in (ran.folder / "report" / "index.html").read_text()
    assert "bytes in fp32" in ran.text and "bytes in binary" in ran.text
    chosen = next(c for c in results["indexes"] if c["cell"] == results["choice"]["cell"])
    stated = json.loads((ran.folder / "report" / "chunking.json").read_text())
    assert [stated[key] for key in ("dimensions", "stored")] == [
        chosen[key] for key in ("dimensions", "stored")
    ]
    assert stated["measured"]["bytes"] == chosen["bytes"]


@pytest.mark.slow
def test_a_second_sweep_embeds_nothing_and_a_larger_one_what_is_new(
    run_local, tmp_path, monkeypatch
):
    read = []
    count_texts(monkeypatch, read)
    whole = run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT)
    assert len(read) == len({*read}) > 0  # no chunk twice, though cells share some
    rows = json.loads((whole.folder / "report" / "results.json").read_text())["indexes"]
    together = sum(row["tokens"] for row in rows)
    assert sum(row["embedded_tokens"] for row in rows) < together
    read.clear()
    again = run_local(tmp_path / "again", *WORDS, experiment=EXPERIMENT)
    assert read == [] and runs_of(again) == runs_of(whole)
    more = (*WORDS[:-3], "chunking.window=24,48,60", *WORDS[-2:])
    run_local(tmp_path / "larger", *more, experiment=EXPERIMENT)
    assert read


@pytest.mark.slow
def test_killed_three_times_it_gives_the_same_runs(run_local, tmp_path, monkeypatch):
    whole = runs_of(run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT))
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "another-cache"))
    monkeypatch.setattr(vectors, "SHARD", 16)
    encode, read = EmbeddingModel.encode_whole, []

    def dies(self, texts, titles=None):
        read.extend(texts)
        if len(read) in (20, 90, 170):
            raise KeyboardInterrupt
        return encode(self, texts, titles)

    monkeypatch.setattr(EmbeddingModel, "encode_whole", dies)
    for _ in range(3):
        run_local(tmp_path / "killed", *WORDS, experiment=EXPERIMENT, code=130)
    resumed = run_local(tmp_path / "killed", *WORDS, experiment=EXPERIMENT)
    assert len(read) > 170 and runs_of(resumed) == whole


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores")
def test_two_workers_on_ray_share_the_documents(run_local, run_sweep, tmp_path):
    alone = runs_of(run_local(tmp_path / "results", *WORDS, experiment=EXPERIMENT))
    program = [str(Path(__file__).parents[2] / "sweeps" / "chunk_size.py")]
    words = (*WORDS, "--num-workers", "2")
    storage = tmp_path / "ray"
    run_sweep(storage, *words, program=program)
    together = runs_of(Ran(storage, storage / "chunk_size" / "woods", ""))
    assert alone.keys() == together.keys()
    for label, run in alone.items():
        for query_id, scores in run.items():
            # Matrix products of other sizes round in another way.
            assert together[label][query_id] == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chunking.window=400"], "chunking.window <= 129 must hold"),
        (["evaluation.evidence=yes"], "spans.jsonl.gz"),
        (["chunking.title=yes"], "documents have titles"),
        (["chunking.stride=20"], "nothing in these cells reads chunking.stride"),
        (["training.num_epochs=1"], "training.num_epochs=0 must hold"),
        (["--model", "maxp"], "model.name=dense must hold"),
        (["model.truncate_dim=500"], "truncate_dim must be from 1 to"),
        (["model.stored=int4"], "did you mean int8? Known: binary, fp32, int8"),
        (["model.query_prompt=@ask"], "has no prompt of the name 'ask' (@ask)"),
        (["chunking.overlap=1"], "0 <= chunking.overlap < 1 must hold"),
    ],
)
def test_bad_input_is_refused_before_anything_is_embedded(
    words, said, run_local, tmp_path, monkeypatch
):
    monkeypatch.setattr(DenseIndex, "search", lambda *_: pytest.fail("searched"))
    ran = run_local(tmp_path / "results", *WORDS[:2], *words, experiment=EXPERIMENT, code=2)
    assert said in " ".join(ran.text.split()) and "Traceback" not in ran.text


def test_the_grid_has_titles_where_documents_have_them(tmp_path, backbone_folder):
    from rank_core.encoders.backbones import resolve_backbone
    from rank_core.settings.config import TrialConfig

    def points(title):
        folder = tmp_path / (title or "none")
        for split in ("train", "dev", "test"):
            (folder / split).mkdir(parents=True)
            (folder / split / "queries.tsv").write_text(f"{split}\toak river\n")
            (folder / split / "qrels.trec").write_text(f"{split} 0 d1 1\n")
        rows = [{"doc_id": f"d{i}", "text": "oak river stone", "title": title} for i in range(3)]
        text = "\n".join(json.dumps({k: v for k, v in row.items() if v}) for row in rows)
        (folder / "docs.jsonl").write_text(text)
        base = TrialConfig(str(folder)).override(
            {**EXPERIMENT.settings, "model.backbone": str(backbone_folder)}
        )
        grid = EXPERIMENT.grid(base, resolve_backbone(str(backbone_folder)))
        return {point["chunking.title"] for point in grid.points}

    assert points("birds") == {False, True} and points("") == {False}
