"""Rerankers that sentence-transformers saved as modules: its scores, or a module is named."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import gelu, layer_norm, normalize
from transformers import AutoModel, AutoTokenizer

from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.models.checks import check_model
from tests.contracts.small_backbones import random_weights, write_again
from tests.rank_core.encoders import test_decoder_rerankers as decoders
from tests.rank_core.encoders.test_published_heads import (
    DOCUMENTS,
    QUERY,
    SEGMENTS,
    WINDOW,
    config_of,
    forget,
    publish,
    scores,
)

KINDS = ("bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta")
DECODERS = ("gemma", "llama", "mistral", "qwen3")
CORE, OWN = (
    "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules",
)
TYPES = {
    "Transformer": f"{CORE}.transformer.Transformer",
    "Pooling": f"{OWN}.pooling.Pooling",
    "Dense": f"{CORE}.dense.Dense",
    "LayerNorm": f"{OWN}.layer_norm.LayerNorm",
    "Dropout": f"{OWN}.dropout.Dropout",
    "Normalize": f"{CORE}.normalize.Normalize",
    "LSTM": f"{OWN}.lstm.LSTM",
}
GELU, IDENTITY = "torch.nn.modules.activation.GELU", "torch.nn.modules.linear.Identity"
DENSE = {"in_features": 16, "out_features": 16, "bias": False, "activation_function": GELU}
SCORE = {
    "in_features": 16,
    "out_features": 1,
    "activation_function": IDENTITY,
    "module_input_name": "sentence_embedding",
    "module_output_name": "scores",
}
MEAN = {"embedding_dimension": 16, "pooling_mode": "mean"}
CHAIN = (
    ("Pooling", MEAN),
    ("Dense", DENSE),
    ("LayerNorm", {"dimension": 16}),
    ("Dropout", {"dropout": 0.5}),
    ("Normalize", {}),
    ("Dense", SCORE),
)


def write_chain(kind, folder, chain=CHAIN, *, transformer="", more=None):
    """Writes a small reranker with the files that sentence-transformers documents."""
    key = ("chain", kind, repr((chain, transformer, more)))
    write_again(key, lambda made: make_chain(kind, made, chain, transformer, more), folder)
    forget()
    return str(folder)


def make_chain(kind, folder, chain, transformer, more):
    place = folder / transformer
    publish(kind, place)
    AutoModel.from_pretrained(place).save_pretrained(place)
    modules = [("Transformer", transformer, {})]
    modules += [(name, f"{i}_{name}", own) for i, (name, own) in enumerate(chain, start=1)]
    generator = torch.Generator().manual_seed(3)
    for name, path, settings in modules[1:]:
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(settings))
        shapes = {}
        if name == "Dense":
            shapes["linear.weight"] = (settings["out_features"], settings["in_features"])
            if settings.get("bias", True):
                shapes["linear.bias"] = (settings["out_features"],)
        if name == "LayerNorm":
            shapes = dict.fromkeys(("norm.weight", "norm.bias"), (settings["dimension"],))
        if shapes:
            weights = {n: torch.randn(s, generator=generator) for n, s in shapes.items()}
            save_file(weights, folder / path / "model.safetensors")
    stated = [
        {"idx": i, "name": str(i), "path": path, "type": TYPES.get(name, name)}
        for i, (name, path, _) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(stated))
    whole = {"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None}
    settings = json.dumps(whole | (more or {}))
    (folder / "config_sentence_transformers.json").write_text(settings)


def mean_vectors(folder, prompt=""):
    """x_NH of the first chunks, one row at a time."""
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    found = []
    for tokens in DOCUMENTS.values():
        texts = prompt + tokenizer.decode(QUERY), tokenizer.decode(tokens[:WINDOW])
        segments = encoder.config.model_type in SEGMENTS
        row = tokenizer(*texts, return_tensors="pt", return_token_type_ids=segments)
        with torch.inference_mode():
            found.append(encoder.eval()(**row).last_hidden_state[0].mean(0))
    return torch.stack(found)


def by_hand(folder, x_NH):
    """The score of `CHAIN` for vectors x_NH, from its files."""
    dense, norm, score = (
        load_file(Path(folder, path, "model.safetensors"))
        for path in ("2_Dense", "3_LayerNorm", "6_Dense")
    )
    x = layer_norm(
        gelu(x_NH @ dense["linear.weight"].T), (16,), norm["norm.weight"], norm["norm.bias"]
    )
    return (normalize(x) @ score["linear.weight"].T + score["linear.bias"])[:, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_of_modules_ranks_as_its_files_say(kind, tmp_path):
    folder = write_chain(kind, tmp_path / "published")
    expected = by_hand(folder, mean_vectors(folder))
    found = scores(config_of(folder, "firstp"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert expected.std() > 1e-3


def test_the_transformer_may_lie_in_a_folder_of_its_own(tmp_path):
    folder = write_chain("bert", tmp_path / "published", transformer="0_Transformer")
    expected = by_hand(folder, mean_vectors(f"{folder}/0_Transformer"))
    for name in (folder, f"{folder}/0_Transformer"):
        torch.testing.assert_close(scores(config_of(name, "firstp")), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bi-encoder", "late-interaction", "parade-max"])
def test_other_models_read_the_encoder_alone(name, tmp_path):
    """Wherever it lies: the vectors of texts are the same."""
    found = {}
    for transformer in ("", "0_Transformer"):
        folder = write_chain("bert", tmp_path / f"of{transformer}", transformer=transformer)
        spare = Path(shutil.copytree(f"{folder}/6_Dense", f"{folder}/7_Dense"))
        forget()
        config = config_of(folder, name, **{"training.num_epochs": 1})
        backbone = resolve_backbone(folder)
        check_model(config, backbone)
        found[transformer] = scores(config)
        notes = model_class(name).notes(config.model, backbone)
        assert f"Weights that no module reads: {spare.name}." in notes
    torch.testing.assert_close(*found.values(), atol=0, rtol=0)


def test_other_weights_of_a_head_are_another_model(tmp_path):
    folder = write_chain("bert", tmp_path / "published")
    before = resolve_backbone(folder).content_hash
    path = tmp_path / "published" / "6_Dense" / "model.safetensors"
    save_file({n: 2 * w for n, w in load_file(path).items()}, path)
    forget()
    assert resolve_backbone(folder).content_hash != before


def test_the_default_prompt_stands_before_every_query(tmp_path):
    prompt = {"prompts": {"ask": "w5 w6 "}, "default_prompt_name": "ask"}
    folder = write_chain("bert", tmp_path / "published", more=prompt)
    backbone = resolve_backbone(folder)
    assert len(backbone.layout.prefix) == 3
    expected = by_hand(folder, mean_vectors(folder, "w5 w6 "))
    torch.testing.assert_close(scores(config_of(folder, "firstp")), expected, atol=1e-5, rtol=0)


def test_two_scores_are_one(tmp_path):
    two = (("Pooling", MEAN), ("Dense", SCORE | {"out_features": 2}))
    folder = write_chain("bert", tmp_path / "published", two)
    weights = load_file(tmp_path / "published" / "2_Dense" / "model.safetensors")
    score_N2 = mean_vectors(folder) @ weights["linear.weight"].T + weights["linear.bias"]
    torch.testing.assert_close(
        scores(config_of(folder, "firstp")), score_N2[:, 1] - score_N2[:, 0], atol=1e-5, rtol=0
    )


UNREAD = {
    "a module": (
        (("Pooling", MEAN), ("LSTM", {}), ("Dense", SCORE)),
        r"its module LSTM \(2_LSTM\)",
    ),
    "a module of the checkpoint": (
        (("Pooling", MEAN), ("custom.Dense2", {}), ("Dense", SCORE)),
        r"Dense2 \(2_custom.Dense2\) is not read",
    ),
    "no pooling": ((("Dense", SCORE),), r"its module Dense \(1_Dense\) follows a Transformer"),
    "no scores": ((("Pooling", MEAN), ("Dense", DENSE)), "none of its modules .* writes scores"),
    "a pooling": ((("Pooling", MEAN | {"pooling_mode": "best"}), ("Dense", SCORE)), "'best'"),
    "an activation": (
        (("Pooling", MEAN), ("Dense", SCORE | {"activation_function": "my.Own"})),
        r"Dense \(2_Dense\) has the activation 'my.Own'",
    ),
    "an input": (
        (("Pooling", MEAN), ("Dense", SCORE | {"module_input_name": "x"})),
        r"reads 'x', which no module writes",
    ),
}


@pytest.mark.parametrize("case", UNREAD)
def test_a_chain_that_scores_and_cannot_be_read_is_refused_by_its_module(case, tmp_path):
    chain, said = UNREAD[case]
    folder = write_chain("bert", tmp_path / "published", chain)
    config = config_of(folder, "firstp", **{"training.num_epochs": 0})
    with pytest.raises(BadInput, match=said):
        check_model(config, resolve_backbone(folder))
    # A new head may be trained, but does not rank untrained.
    check_model(config_of(folder, "firstp", **{"model.head": "new"}), resolve_backbone(folder))
    with pytest.raises(BadInput, match="would rank at random"):
        check_model(config.override({"model.head": "new"}), resolve_backbone(folder))


DAMAGED = {
    "no list": ("modules.json", {}, "must hold a list"),
    "a folder elsewhere": ("modules.json", [{"type": "a.Pooling", "path": "../x"}], "not a folder"),
    "another key": ("2_Dense/config.json", DENSE | {"rank": 2}, "unknown key 'rank'"),
    "another key of a Pooling": ("1_Pooling/config.json", MEAN | {"k": 2}, "key 'k' of a Pooling"),
    "neither true nor false": (
        "1_Pooling/config.json",
        MEAN | {"include_prompt": "no"},
        "include_prompt='no'",
    ),
    "another type": ("2_Dense/config.json", DENSE | {"in_features": "16"}, "no int"),
    "no size": ("3_LayerNorm/config.json", {"dimension": 0}, "must have a size as dimension"),
    "no limit": ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length=0"),
    "another size": ("2_Dense/config.json", DENSE | {"in_features": 8}, "the weights of a Dense"),
    "no prompt": (
        "config_sentence_transformers.json",
        {"model_type": "CrossEncoder", "default_prompt_name": "ask"},
        "default_prompt_name='ask'",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_of_a_module_is_refused_by_its_name(case, tmp_path):
    file, content, said = DAMAGED[case]
    folder = write_chain("bert", tmp_path / "published")
    (tmp_path / "published" / file).write_text(json.dumps(content))
    forget()
    with pytest.raises(BadInput, match=said):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))
    if file != "modules.json":
        check_model(config_of(folder, "parade-max"), resolve_backbone(folder))


def test_lost_weights_of_a_module_are_refused(tmp_path):
    folder = write_chain("bert", tmp_path / "published")
    (tmp_path / "published" / "6_Dense" / "model.safetensors").unlink()
    forget()
    with pytest.raises(BadInput, match=r"6_Dense/model.safetensors is missing"):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))


def test_an_embedder_has_no_head(tmp_path):
    """Its vectors are no scores; whoever trains from it draws a head, as from every encoder."""
    folder = write_chain(
        "bert", tmp_path / "e", (("Pooling", MEAN),), more={"model_type": "SentenceTransformer"}
    )
    assert resolve_backbone(folder).chain is None
    shutil.rmtree(tmp_path / "e" / "1_Pooling")


@pytest.fixture(scope="module")
def library():
    reason = "pip install -e '.[serve]' brings it"
    return pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)


def chains():
    """{name: modules behind the Transformer} of sentence-transformers."""
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

    def score(size=16, labels=1):
        last = nn.Identity()
        return Dense(size, labels, activation_function=last, module_output_name="scores")

    wide = Dense(16, 24, activation_function=nn.SiLU(), use_residual=True)
    return {
        "cls": [Pooling(16, "cls"), score()],
        "two layers": [
            *(Pooling(16, "mean"), Dense(16, 16, bias=False, activation_function=nn.GELU())),
            *(LayerNorm(16), Dropout(0.1), score()),
        ],
        "two labels": [Pooling(16, "lasttoken"), Normalize(), score(labels=2)],
        "residual": [Pooling(16, "mean"), wide, Dense(24, 24, use_residual=True), score(24)],
        "max": [Pooling(16, "max"), score()],
        "weighted": [Pooling(16, "weightedmean"), score()],
        "root": [Pooling(16, "mean_sqrt_len_tokens"), score()],
        "joined": [Pooling(16, ("cls", "max", "mean")), score(48)],
    }


def their_scores(folder, library):
    """score_N or score_N2 of the first chunks by the library itself, as it loads the folder."""
    model = library.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    query = tokenizer.decode(QUERY)
    pairs = [(query, tokenizer.decode(tokens[:WINDOW])) for tokens in DOCUMENTS.values()]
    found = torch.as_tensor(model.predict(pairs, activation_fn=nn.Identity()))
    return found if found.dim() == 1 else found[:, 1] - found[:, 0]


def saved_encoders(kind, library, place):
    """(name, folder) of every layout that the library saves over an encoder."""
    source = publish(kind, place / "published")
    yield "published", source
    library.CrossEncoder(source, device="cpu").save_pretrained(str(place / "classifier"))
    yield "classifier", place / "classifier"
    for name, behind in chains().items():
        for module in behind:
            random_weights(module)
        modules = [library.base.modules.Transformer(source), *behind]
        library.CrossEncoder(modules=modules, device="cpu").save_pretrained(str(place / name))
        yield name, place / name


@pytest.mark.long  # the import alone takes seconds
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_sentence_transformers(kind, library, tmp_path):
    for name, folder in saved_encoders(kind, library, tmp_path):
        forget()
        expected = their_scores(folder, library)
        found = scores(config_of(str(folder), "firstp"))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0, msg=name)
        assert expected.std() > 1e-4, name


SYSTEM = "{{ " + decoders.ROLE.format("system") + " }} "
PROMPTS = {"prompts": {"ask": "w7 w8 "}, "default_prompt_name": "ask"}


def saved_decoders(kind, library, place, more):
    """(task, folder) of the layouts that the library saves over a decoder: two rows of the output
    matrix, and modules behind a chat template."""
    from sentence_transformers.cross_encoder.modules import LogitScore

    chat = (SYSTEM if more else "") + decoders.CHAT
    source = decoders.publish(kind, place / "published", chat=chat)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.pad_token = "<pad>"
    tokenizer.save_pretrained(source)
    for task, behind in {
        "text-generation": [LogitScore(decoders.YES, decoders.NO)],
        "feature-extraction": [*chains()["two labels"]],
    }.items():
        modules = [library.base.modules.Transformer(source, transformer_task=task), *behind]
        model = library.CrossEncoder(modules=modules, device="cpu", **more)
        model.save_pretrained(str(place / task))
        yield task, place / task


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, PROMPTS], ids=["plain", "with a prompt"])
@pytest.mark.parametrize("kind", DECODERS)
def test_decoders_score_as_in_sentence_transformers(kind, more, library, tmp_path):
    for task, folder in saved_decoders(kind, library, tmp_path, more):
        forget()
        expected = their_scores(folder, library)
        found = scores(config_of(str(folder), "firstp"))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0, msg=task)
        assert expected.std() > 1e-4, task


def test_a_rare_pooling_needs_the_library(tmp_path, monkeypatch):
    chain = (("Pooling", MEAN | {"pooling_mode": "max"}), ("Dense", SCORE))
    folder = write_chain("bert", tmp_path / "published", chain)
    monkeypatch.setattr("rank_core.encoders.module_chain.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pooling max,.* install .*\[serve\]"):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))
