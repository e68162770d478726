"""`run chunk_size` over every embedding model that sentence-transformers reads, with its scores; a
model that gives no vector of a text is refused by what it is."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.embedder import KINDS, read_embedder
from rank_core.encoders.published_heads import unread_head
from rank_core.errors import BadInput
from rank_core.models.build import require_weights
from rank_core.models.checks import check_model
from rank_core.models.dense import DenseDocument
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import TrialConfig
from sweeps.__main__ import main
from tests.contracts.small_backbones import write_backbone
from tests.rank_core.encoders.test_published_heads import forget
from tests.rank_core.models.embedding_folders import CHAINS, PROMPTS, encoder, saved

LITTLE = ["--engine", "local", "--tracking-uri", "none", "evaluation.max_test_queries=4"]
LITTLE += ["evaluation.max_dev_queries=4", "chunking.window=6", "chunking.overlap=0"]


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers", minversion="6.2")


def static(library, folder):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    torch.manual_seed(5)
    first = StaticEmbedding(Transformer(encoder(folder / "e")).tokenizer, embedding_dim=16)
    library.SentenceTransformer(modules=[first], device="cpu").save(
        str(folder / "m"), create_model_card=False
    )
    return str(folder / "m")


def adapters(library, folder):
    from peft import LoraConfig, TaskType

    model = library.SentenceTransformer(saved(library, folder / "s"), device="cpu")
    model.add_adapter(
        LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, r=2, target_modules=["query"])
    )
    model.save(str(folder / "m"), create_model_card=False)
    return str(folder / "m")


def of_modules(library, folder, *modules, **facts):
    model = library.SentenceTransformer(modules=[*modules], device="cpu", **facts)
    model.save(str(folder / "m"), create_model_card=False)
    forget()
    return str(folder / "m")


def another_kind(library, folder, kind="gpt_neox", dense=(), **settings):
    """An encoder of transformers that is not computed here as sentence-transformers computes it."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    place = Path(encoder(folder / "e"))
    for path in place.glob("*.safetensors"):
        path.unlink()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 96}
    vocabulary = json.loads((place / "config.json").read_text())["vocab_size"]
    if kind.startswith("gemma"):
        sizes |= {"num_key_value_heads": 1, "head_dim": 8, "use_bidirectional_attention": True}
    config = AutoConfig.for_model(kind, vocab_size=vocabulary, **sizes)
    torch.manual_seed(5)
    AutoModel.from_config(config).save_pretrained(place)
    same, widths = {"bias": False, "activation_function": torch.nn.Identity()}, (16, *dense)
    behind = [Dense(*sizes, **same) for sizes in itertools.pairwise(widths)]
    chain = [Transformer(str(place)), Pooling(16), *behind, Normalize()]
    return of_modules(library, folder, *chain, **settings)


def embedding_gemma(library, folder):
    kind = "gemma3_text"
    return another_kind(library, folder, kind, dense=(24, 12), prompts=PROMPTS)


def router(library, folder):
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

    torch.manual_seed(5)
    first = Transformer(encoder(folder / "e"))
    query = StaticEmbedding(first.tokenizer, embedding_dim=16)
    return of_modules(library, folder, Router.for_query_document([query], [first, Pooling(16)]))


def layers(library, folder):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    torch.manual_seed(5)
    first = Transformer(
        encoder(folder / "e", "roberta"), config_kwargs={"output_hidden_states": True}
    )
    weighted = WeightedLayerPooling(16, num_hidden_layers=2, layer_start=1)
    return of_modules(library, folder, first, weighted, Pooling(16))


def words(library, folder):
    from sentence_transformers.sentence_transformer.modules import BoW

    return of_modules(library, folder, BoW(["w1", "w2", "w3"]))


FORMS = {
    "static": static,
    "adapters": adapters,
    "another kind": another_kind,
    "EmbeddingGemma": embedding_gemma,
    "Router": router,
    "WeightedLayerPooling": layers,
    "prompts left out": lambda library, folder: saved(
        library, folder, **CHAINS["prompts left out"]
    ),
}
RUN = ("static", "adapters", "another kind")
SAVED = dict(FORMS)
SAVED |= {
    name: lambda library, folder, chain=chain: saved(library, folder, **chain)
    for name, chain in CHAINS.items()
    if name not in FORMS
}
SAVED |= {
    f"{kind} alone": lambda library, folder, kind=kind: encoder(folder / "m", kind)
    for kind in ("bert", "longformer", "qwen3")
}
OF_KINDS = [kind for kind in KINDS if kind not in ("jina-bert", "mosaic-bert", "bert")]
SAVED |= {
    kind: lambda library, folder, kind=kind: saved(
        library, folder, kind, prompts=PROMPTS, dense=True, normalize=True
    )
    for kind in (*OF_KINDS, "longformer", "big_bird")
}


def texts_of(folder):
    """A collection of short documents in the words of the small models."""
    numbers = np.random.default_rng(1).integers(0, 46, (7, 9))
    texts = [" ".join(f"w{n}" for n in row[: 3 + place]) for place, row in enumerate(numbers)]
    folder.mkdir()
    records = [{"doc_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    (folder / "docs.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    for split in ("dev", "test"):
        (folder / split).mkdir()
        (folder / split / "queries.tsv").write_text(f"{split}1\tw1 w2\n{split}2\tw9 w7\n")
        (folder / split / "qrels.trec").write_text(f"{split}1 0 d1 1\n{split}2 0 d3 1\n")
    return texts


@pytest.mark.parametrize("form", SAVED)
def test_the_scores_of_a_cell_are_those_of_the_library(form, library, tmp_path):
    texts, queries = texts_of(tmp_path / "c"), ["w1 w2", "w9 w7 w3"]
    path = SAVED[form](library, tmp_path / "f")
    forget()
    own = {"collection": str(tmp_path / "c"), "model.backbone": path, "model.name": "dense-cut"}
    config = TrialConfig().override(own)
    inputs = load_inputs(config.collection, path)
    check_model(config, inputs.backbone)
    index = DenseDocument.index(config, inputs, "cpu")
    vectors = index.model.encode_queries(queries)
    found = [index.scores_of(vector, range(len(texts))) for vector in vectors]
    theirs = library.SentenceTransformer(path, device="cpu", local_files_only=True)
    expected = theirs.similarity(theirs.encode_query(queries), theirs.encode_document(texts))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    assert np.std(found) > 1e-4


def test_a_module_with_a_tokenizer_of_its_own_is_refused_by_its_name(library, tmp_path, capsys):
    path = words(library, tmp_path)
    texts_of(tmp_path / "c")
    names = ["--collection", str(tmp_path / "c"), "--backbone", path, "--dry-run"]
    assert main(["run", "chunk_size", *names, "--engine", "local"]) == 2
    assert "its module BoW (0_BoW) " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("form", RUN)
def test_chunk_size_runs_over_what_the_library_reads(
    form, library, collection_folder, tmp_path, capsys
):
    path = FORMS[form](library, tmp_path)
    forget()
    words = ["--collection", str(collection_folder), "--backbone", path]
    words += ["--storage", str(tmp_path / "results"), *LITTLE]
    assert main(["run", "chunk_size", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "sentence-transformers computes its vectors" in out
    code = main(["run", "window_stride", *words[:4], "--dry-run", "--engine", "local"])
    err = capsys.readouterr().err
    assert (code, err) == (0, "") if form == "another kind" else code == 2 and "backbone" in err


@pytest.mark.slow
def test_the_encoder_of_adapters_is_part_of_the_hash(library, tmp_path):
    path = adapters(library, tmp_path)
    forget()
    before = read_embedder(path).content_hash()
    base = json.loads(Path(path, "adapter_config.json").read_text())["base_model_name_or_path"]
    [weights] = Path(base).rglob("model.safetensors")
    save_file({n: w + 0.5 for n, w in load_file(weights).items()}, weights)
    forget()
    assert read_embedder(path).content_hash() != before


@pytest.mark.parametrize("form", FORMS)
def test_all_weights_are_part_of_the_hash(form, library, tmp_path):
    path = FORMS[form](library, tmp_path)
    forget()
    hashes = [read_embedder(path).content_hash()]
    for weights in (files := sorted(Path(path).rglob("*.safetensors"))):
        save_file({name: w + 0.5 for name, w in load_file(weights).items()}, weights)
        forget()
        hashes.append(read_embedder(path).content_hash())
    assert len({*hashes}) == 1 + len(files) > 1
    assert not any("Weights that" in note for note in read_embedder(path).notes)


def changed(path, name, **more):
    file = Path(path, name)
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | more))
    forget()


@pytest.mark.parametrize("name", ["HF_ColBERT", "JinaForRanking"])
def test_a_class_that_transformers_does_not_have_is_refused_by_its_name(
    name, collection_folder, tmp_path, capsys
):
    path = encoder(tmp_path / "m")
    changed(path, "config.json", architectures=[name])
    words = ["--collection", str(collection_folder), "--backbone", path, "--engine", "local"]
    for sweep in ("chunk_size", "serving"):
        assert main(["run", sweep, *words, "--dry-run"]) == 2
        err = capsys.readouterr().err
        assert f"is a {name}" in err and "which transformers does not have" in err
    untrained = {"model.name": "bi-encoder", "model.backbone": path, "training.num_epochs": 0}
    with pytest.raises(BadInput, match=f"is a {name}, which transformers does not have"):
        check_model(TrialConfig().override(untrained), resolve_backbone(path))


def test_a_listwise_reranker_by_code_of_its_own_is_refused_by_its_name(tmp_path):
    """A folder as that of jina-reranker-v3: many documents in one pass, and two layers over the
    vectors of tokens that stand for them. Trained, its encoder is one of the kind."""
    write_backbone("qwen3", tmp_path)
    changed(
        tmp_path,
        "config.json",
        architectures=["JinaForRanking"],
        auto_map={"AutoModel": "modeling.JinaForRanking"},
    )
    weights = load_file(tmp_path / "model.safetensors")
    layers = {"projector.0.weight": torch.ones(8, 16), "projector.2.weight": torch.ones(8, 8)}
    save_file({**weights, **layers}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "modeling.py").write_text("raise SystemExit('it was run')\n")
    forget()
    backbone = resolve_backbone(str(tmp_path))
    said = "it is a JinaForRanking, which transformers does not have: its encoder alone is read"
    assert unread_head(backbone) == f"; {said}"
    for model, head in (("maxp", ""), ("longp", ""), ("maxp", "checkpoint"), ("parade-max", "")):
        settings = {"model.name": model, "model.backbone": str(tmp_path), "training.num_epochs": 0}
        settings |= {"model.head": head} if head else {}
        config = TrialConfig().override(settings)
        with pytest.raises(BadInput, match=said):
            require_weights(config, backbone)


def test_adapters_of_a_reranker_are_no_embedding_model(tmp_path):
    path = encoder(tmp_path / "m")
    changed(path, "adapter_config.json", task_type="SEQ_CLS", base_model_name_or_path="x")
    with pytest.raises(BadInput, match="has adapters of the task 'SEQ_CLS'"):
        EmbeddingModel.load(path)


def test_weights_that_nobody_reads_are_named(tmp_path):
    path = encoder(tmp_path / "m")
    (tmp_path / "m" / "2_Dense").mkdir()
    save_file({"linear.weight": torch.zeros(2)}, tmp_path / "m" / "2_Dense" / "model.safetensors")
    forget()
    assert "Weights that no module reads: 2_Dense." in EmbeddingModel.load(path).notes
    AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(path)).save_pretrained(path)
    forget()
    assert "Weights beside the encoder are not read: cls." in EmbeddingModel.load(path).notes
    weights = Path(path, "model.safetensors")
    save_file(load_file(weights) | {"projector.weight": torch.zeros(2)}, weights, {"format": "pt"})
    forget()
    notes = EmbeddingModel.load(path).notes
    assert "Weights beside the encoder are not read: cls, projector." in notes
