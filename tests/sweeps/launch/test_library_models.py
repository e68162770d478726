"""`run chunk_size` over every embedding model that sentence-transformers reads; a model that gives
no vector of a text is refused by what it is."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM

from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.embedder import read_embedder
from rank_core.encoders.published_heads import unread_head
from rank_core.errors import BadInput
from rank_core.models.build import require_weights
from rank_core.models.checks import check_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import TrialConfig
from sweeps.__main__ import main
from tests.contracts.small_backbones import make_backbone
from tests.rank_core.encoders.test_published_heads import forget
from tests.rank_core.models.embedding_folders import encoder, saved

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


def another_kind(library, folder):
    """GPT-NeoX is an encoder of transformers that is not computed here."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import GPTNeoXConfig, GPTNeoXModel

    place = Path(encoder(folder / "e"))
    for path in place.glob("*.safetensors"):
        path.unlink()
    vocabulary = json.loads((place / "config.json").read_text())["vocab_size"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    GPTNeoXModel(
        GPTNeoXConfig(vocab_size=vocabulary, intermediate_size=24, **sizes)
    ).save_pretrained(place)
    chain = [Transformer(str(place)), Pooling(16)]
    library.SentenceTransformer(modules=chain, device="cpu").save(
        str(folder / "m"), create_model_card=False
    )
    return str(folder / "m")


FORMS = {"static": static, "adapters": adapters, "another kind": another_kind}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
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
    make_backbone("qwen3", tmp_path)
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
    AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(path)).save_pretrained(path)
    forget()
    assert "Weights beside the encoder are not read: cls." in EmbeddingModel.load(path).notes
    weights = Path(path, "model.safetensors")
    save_file(load_file(weights) | {"projector.weight": torch.zeros(2)}, weights, {"format": "pt"})
    forget()
    notes = EmbeddingModel.load(path).notes
    assert "Weights beside the encoder are not read: cls, projector." in notes
