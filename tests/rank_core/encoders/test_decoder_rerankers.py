"""Decoders that answer yes or no: scores equal the logits of the whole template text."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.decoder_rerankers import TEMPLATES
from rank_core.errors import BadInput
from rank_core.models import check_model
from rank_core.models.build import build_model, is_deterministic
from tests.contracts.small_backbones import make_backbone, random_weights
from tests.rank_core.encoders.test_published_heads import (
    DOCUMENTS,
    QUERY,
    WINDOW,
    chunks,
    export,
    forget,
    scores,
)
from tests.rank_core.encoders.test_published_heads import config_of as config_of_any

KINDS = ("gemma", "llama", "mistral", "qwen2", "qwen3")
YES, NO = 48, 49
ROLE = "messages | selectattr('role', 'eq', '{}') | map(attribute='content') | first"
CHAT = "w0 w1 {{ " + ROLE.format("query") + " }} w2 w3 {{ " + ROLE.format("document") + " }} w4 w5"


def config_of(folder, name, **settings):
    return config_of_any(folder, name, **{"chunking.max_query_tokens": 3, **settings})


def publish(kind, folder, *, false=NO, tied=False, chat=CHAT):
    """Writes a small decoder in the layout of sentence-transformers."""
    folder.mkdir(parents=True, exist_ok=True)
    make_backbone(kind, folder)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder, tie_word_embeddings=tied)
    )
    random_weights(model)
    model.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(chat)
    module = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    modules = [{"idx": 1, "name": "1", "path": "1_LogitScore", "type": module}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir(exist_ok=True)
    ids = {"true_token_id": YES, "false_token_id": false}
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(ids))
    forget()
    return str(folder)


def their_scores(folder, spans, parts=("w0 w1 ", " w2 w3 ", " w4 w5"), false=NO):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    found = []
    layout = resolve_backbone(folder).layout
    for span in spans:
        prefix, middle, suffix = parts
        if layout.before_query:  # a space is the first token of query and text, which these lack
            prefix, middle = prefix.removesuffix(" "), middle.removesuffix(" ")
        text = prefix + tokenizer.decode(QUERY) + middle + tokenizer.decode(span) + suffix
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[0, -1]
        found.append(float(logits[YES] - (0 if false is None else logits[false])))
    return found


@pytest.mark.parametrize(("kind", "tied"), [*((kind, False) for kind in KINDS), ("llama", True)])
def test_scores_are_the_logits_of_the_whole_text(kind, tied, tmp_path):
    folder = publish(kind, tmp_path / "published", tied=tied)
    first = their_scores(folder, [d[:WINDOW] for d in DOCUMENTS.values()])
    assert scores(config_of(folder, "firstp")).tolist() == pytest.approx(first, abs=1e-5)
    most = [max(their_scores(folder, chunks(d))) for d in DOCUMENTS.values()]
    assert scores(config_of(folder, "maxp")).tolist() == pytest.approx(most, abs=1e-5)


def test_a_known_model_has_its_template_by_name(tmp_path):
    folder = tmp_path / "Qwen3-Reranker-0.6B"
    Path(publish("qwen3", tmp_path / "made")).rename(folder)
    for name in ("modules.json", "chat_template.jinja"):
        (folder / name).unlink()
    shutil.rmtree(folder / "1_LogitScore")
    for path in folder.glob("tokenizer*.json"):
        path.write_text(path.read_text().replace('"w44"', '"yes"').replace('"w45"', '"no"'))
    forget()
    known = TEMPLATES["qwen3-reranker"]
    first = their_scores(
        str(folder),
        [d[:WINDOW] for d in DOCUMENTS.values()],
        (known.prefix, known.middle, known.suffix),
    )
    config = config_of(str(folder), "firstp")
    backbone = resolve_backbone(str(folder))
    if backbone.max_window(3) >= WINDOW:
        assert scores(config).tolist() == pytest.approx(first, abs=1e-5)
    else:  # the whole template counts against the encoder's positions
        with pytest.raises(BadInput, match=r"chunking\.window"):
            check_model(config, backbone)


def test_zero_shot_has_no_seeds_and_the_export_is_the_model(tmp_path):
    folder = publish("qwen3", tmp_path / "published")
    config = config_of(folder, "maxp", **{"training.num_epochs": 0})
    backbone = resolve_backbone(folder)
    assert is_deterministic(config, backbone)
    model = build_model(config, backbone, init_seed=1).eval()
    exported = export(model, config, tmp_path)
    assert exported.backbone.layout == backbone.layout
    torch.testing.assert_close(scores(exported.config, exported.model), scores(config))


def test_a_decoder_without_a_known_template_starts_with_a_new_head(tmp_path):
    """As one whose head is trained here does."""
    folder = tmp_path / "published"
    publish("qwen3", folder)
    (folder / "modules.json").unlink()
    forget()
    backbone = resolve_backbone(str(folder))
    assert not backbone.trained_head and len(backbone.layout.middle) == 1
    check_model(config_of(str(folder), "maxp"), backbone)
    with pytest.raises(BadInput, match=r"model\.head"):
        check_model(config_of(str(folder), "maxp", **{"model.head": "checkpoint"}), backbone)
