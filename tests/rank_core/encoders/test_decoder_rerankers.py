"""Decoders that answer yes or no: scores equal the logits of the whole template text."""

import json
import re
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from rank_core.chunking.token_store import open_token_store, tokenize
from rank_core.encoders import backbones
from rank_core.encoders.backbone_types import ABSENT
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.encoders.decoder_rerankers import TEMPLATES, known_by_name, logit_score
from rank_core.encoders.module_chain import pair_layout
from rank_core.encoders.st_folder import read_saved
from rank_core.errors import BadInput
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model, is_deterministic
from rank_core.models.checks import check_model
from tests.contracts.small_backbones import random_weights, write_again, write_backbone
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
    key = ("logit score", kind, false, tied)
    write_again(key, lambda made: make_published(kind, made, false, tied), folder)
    (folder / "chat_template.jinja").write_text(chat)
    forget()
    return str(folder)


def make_published(kind, folder, false, tied):
    write_backbone(kind, folder)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder, tie_word_embeddings=tied)
    )
    random_weights(model)
    model.save_pretrained(folder)
    module = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    modules = [{"idx": 1, "name": "1", "path": "1_LogitScore", "type": module}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir(exist_ok=True)
    ids = {"true_token_id": YES, "false_token_id": false}
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(ids))


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
    parts = [chunks(d) for d in DOCUMENTS.values()]
    score = iter(their_scores(folder, [part for own in parts for part in own]))
    most = [max(islice(score, len(own))) for own in parts]
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


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Qwen/Qwen3-Reranker-0.6B", True),
        ("/models/qwen3-reranker-4b/", True),
        ("/hub/models--Qwen--Qwen3-Reranker-0.6B/snapshots/1f9e", True),
        ("/qwen3-reranker-lab/Qwen3-0.6B", False),
        ("qwen3-reranker-lab/Qwen3-0.6B", False),
        ("/qwen3-reranker/models--qwen3-reranker-lab--Qwen3-0.6B/snapshots/1f9e", False),
    ],
)
def test_the_last_part_of_a_name_says_what_a_checkpoint_is(name, known):
    assert (known_by_name(TEMPLATES, name) is TEMPLATES["qwen3-reranker"]) is known


WORDS_OF_TEMPLATES = [
    "What is a yes? A no. Query, document: relevant or not",
    "amber birch and cedar",
]


def tokenizer_of_bytes(folder):
    """As those of Qwen: a word and the space before it are one token."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [part for t in TEMPLATES.values() for part in (t.prefix, t.middle, t.suffix)]
    marks = ["<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=marks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator([*texts, *WORDS_OF_TEMPLATES, "yes no 1 0 Yes"] * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize(
    "name", ["Qwen3-Reranker-0.6B", "mxbai-rerank-base-v2", "bge-reranker-v2-gemma"]
)
def test_rows_of_a_known_model_have_the_tokens_of_the_whole_text(name, tmp_path):
    """A word and the space before it are one token, in the first window and in later ones."""
    tokenizer = tokenizer_of_bytes(tmp_path)
    layout = logit_score(name, read_saved(tmp_path), tokenizer).layout
    known = next(t for part, t in TEMPLATES.items() if re.search(part, name, re.IGNORECASE))
    query, text = "What is amber", "birch and cedar and amber"
    [query_ids] = tokenize(tokenizer, [query], layout.before_query)
    [text_ids] = tokenize(tokenizer, [text], layout.before_text)
    whole = known.prefix + query + known.middle + text + known.suffix
    expected = tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert [*layout.prefix, *query_ids, *layout.middle, *text_ids, *layout.suffix] == expected
    for start in range(len(text_ids)):  # a window that begins with a word, as its text
        window = tokenizer.decode(text_ids[start:])
        if window.startswith(" "):
            row = tokenizer(known.middle.rstrip(" ") + window, add_special_tokens=False)
            assert row["input_ids"] == [*layout.middle, *text_ids[start:]]


def test_queries_and_documents_are_tokenised_as_the_layout_says(tmp_path):
    """By the token store and by a loaded model alike."""
    folder = tmp_path / "b"
    publish("qwen2", folder)
    backbone = resolve_backbone(str(folder))
    assert (backbone.layout.before_query, backbone.layout.before_text) == (" ", " ")
    documents = {"d": "w3 w4"}
    options = {"content_hash": str(tmp_path), "tokenizer": load_tokenizer(folder)}
    plain = open_token_store(documents, **options)["d"].tolist()
    spaced = open_token_store(documents, before=" ", **options)["d"].tolist()
    assert len(spaced) == len(plain) + 1 and spaced[1:] == plain
    config = config_of(str(folder), "maxp", **{"training.num_epochs": 0})
    model = build_model(config, backbone, init_seed=1).eval()
    [ranked] = Reranker(ExportedModel(model, config, backbone), "cpu", "fp32").rank("w1", ["w3 w4"])
    query = np.array(tokenize(load_tokenizer(folder), ["w1"], " ")[0][:3])
    reader = type(model).reader(config, backbone, {"d": np.array(spaced)})
    with torch.inference_mode():
        expected = float(model(reader.collate([reader.chunks(query, "d")])))
    assert ranked.score == pytest.approx(expected, abs=1e-6)


def classify(kind, folder, labels, names=None):
    """Writes a small decoder whose classifier ranks, with a chat template."""
    key = ("decoder's classifier", kind, labels, names)
    write_again(key, lambda made: make_classifier(kind, made, labels, names), folder)
    forget()
    return str(folder)


def make_classifier(kind, folder, labels, names):
    write_backbone(kind, folder)
    config = AutoConfig.from_pretrained(folder, num_labels=labels, pad_token_id=1)
    if names:
        config.id2label = dict(enumerate(names))
    model = AutoModelForSequenceClassification.from_config(config)
    random_weights(model)
    model.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(CHAT)


@pytest.mark.parametrize("place", ["published", "Qwen3-Reranker-0.6B-seq-cls"])
@pytest.mark.parametrize(
    ("labels", "names", "sign"),
    [
        (1, None, 1),
        (2, None, 1),
        (2, ("relevant", "irrelevant"), -1),
        (2, ("no", "yes"), 1),
        (2, ("1", "0"), -1),
    ],
)
def test_a_decoder_s_classifier_ranks_by_its_labels(labels, names, sign, place, tmp_path):
    """By its chat template, and where its name is known too."""
    made = classify("qwen3", tmp_path / "made", labels, names)
    folder = str(Path(made).rename(tmp_path / place))
    forget()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known = TEMPLATES["qwen3-reranker"]
    parts = (known.prefix, known.middle, known.suffix)
    before, between, behind = parts if place != "published" else ("w0 w1 ", " w2 w3 ", " w4 w5")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    expected = []
    for span in [d[:WINDOW] for d in DOCUMENTS.values()]:
        text = before + tokenizer.decode(QUERY) + between + tokenizer.decode(span) + behind
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[0]
        expected.append(float(logits[0] if labels == 1 else sign * (logits[1] - logits[0])))
    assert scores(config_of(folder, "firstp")).tolist() == pytest.approx(expected, abs=1e-5)


def test_three_labels_of_a_decoder_are_refused(tmp_path):
    folder = classify("qwen3", tmp_path / "published", 3)
    with pytest.raises(BadInput, match="its head has 3 labels"):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))


def test_the_name_of_an_exported_folder_is_no_name_of_a_model(tmp_path):
    """Its head lies beside it, and its encoder has no output matrix."""
    folder = publish("llama", tmp_path / "published")
    config = config_of(folder, "maxp", **{"training.num_epochs": 0})
    model = build_model(config, resolve_backbone(folder), init_seed=1).eval()
    (tmp_path / "Qwen3-Reranker-0.6B").mkdir()
    exported = export(model, config, tmp_path / "Qwen3-Reranker-0.6B")
    torch.testing.assert_close(scores(exported.config, exported.model), scores(config))


def test_a_system_prompt_is_part_of_the_text(tmp_path):
    chat = "{{ " + ROLE.format("system") + " }} " + CHAT
    folder = publish("qwen3", tmp_path / "published", chat=chat)
    settings = {"model_type": "CrossEncoder", "prompts": {"a": "w7 w8"}, "default_prompt_name": "a"}
    place = tmp_path / "published" / "config_sentence_transformers.json"
    place.write_text(json.dumps(settings))
    forget()
    first = their_scores(
        folder, [d[:WINDOW] for d in DOCUMENTS.values()], ("w7 w8 w0 w1 ", " w2 w3 ", " w4 w5")
    )
    assert scores(config_of(folder, "firstp")).tolist() == pytest.approx(first, abs=1e-5)


@pytest.mark.parametrize("classifies", [False, True])
@pytest.mark.parametrize(
    ("stated", "chats"),
    [
        ({}, False),  # of older versions
        ({"modality_config": {"text": {}}}, False),
        ({"modality_config": {"text": {}, "message": {"format": "flat"}}}, True),
    ],
)
def test_a_template_is_read_where_the_modules_have_messages(
    stated, chats, classifies, tmp_path, monkeypatch
):
    """As in sentence-transformers, which writes pairs elsewhere. Their hash is another one: the
    rows were written by the template once."""
    folder = tmp_path / "published"
    publish("qwen3", folder)
    chat_tokens = resolve_backbone(str(folder)).layout
    modules = json.loads((folder / "modules.json").read_text())
    if classifies:
        folder, modules = tmp_path / "classifier", []
        classify("qwen3", folder, 1)
    kind = "sentence_transformers.base.modules.transformer.Transformer"
    modules.insert(0, {"idx": 0, "name": "0", "path": "", "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    task = "sequence-classification" if classifies else "text-generation"
    settings = {"transformer_task": task} | stated
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    forget()
    found = resolve_backbone(str(folder)).layout
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = chat_tokens if chats else pair_layout(tokenizer, 0)
    assert found == expected != (pair_layout(tokenizer, 0) if chats else chat_tokens)
    pair = ["w7 w8", "w9 w10 w11"]
    texts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in pair]
    row = [*found.prefix, *texts[0], *found.middle, *texts[1], *found.suffix]
    if not chats:
        assert [one for one in row if one != ABSENT] == tokenizer(*pair)["input_ids"]
    own = resolve_backbone(str(folder)).content_hash
    monkeypatch.setattr(backbones, "writes_pairs", lambda saved: False)
    forget()
    assert (resolve_backbone(str(folder)).content_hash == own) == chats


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


def test_the_tokens_of_the_score_are_part_of_a_checkpoint_s_hash(tmp_path):
    folder = tmp_path / "b"
    publish("qwen3", folder)
    before = resolve_backbone(str(folder)).content_hash
    path = folder / "1_LogitScore" / "config.json"
    path.write_text(json.dumps({"true_token_id": NO, "false_token_id": YES}))
    forget()
    assert resolve_backbone(str(folder)).content_hash != before


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"module_input_name": "logits"},
            "module_input_name='logits'; only causal_logits are read",
        ),
        ({"temperature": 2}, "unknown key 'temperature' of a LogitScore"),
    ],
)
def test_a_setting_of_a_score_that_is_not_read_is_refused_by_its_name(more, reason, tmp_path):
    folder = publish("qwen3", tmp_path / "published")
    path = tmp_path / "published" / "1_LogitScore" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    forget()
    with pytest.raises(BadInput, match=reason):
        resolve_backbone(folder)
