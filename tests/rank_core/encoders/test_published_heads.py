"""Published rerankers keep their head: scores equal those of transformers' own classes."""

import json
from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from rank_core.encoders.backbones import load_config, load_tokenizer, resolve_backbone
from rank_core.encoders.published_heads import KINDS, PublishedHead, head_problem
from rank_core.errors import BadInput
from rank_core.export.folder import read_model, write_model
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import TrialConfig
from tests.contracts.small_backbones import random_weights, write_again, write_backbone

TWICE = ("camembert", "mpnet", "roberta", "xlm-roberta")  # separators between query and text
SEGMENTS = ("albert", "bert", "electra")  # kinds whose tokenizers number the texts of a pair
WINDOW, STRIDE = 8, 5
QUERY = np.array([7, 9, 11], dtype=np.int32)
DOCUMENTS = {
    "one chunk": np.array([12, 13, 14], dtype=np.int32),
    "a full chunk": np.arange(20, 28, dtype=np.int32),
    "one token more": np.arange(20, 29, dtype=np.int32),
    "many": np.arange(4, 34, dtype=np.int32),
}


def publish(kind, folder, **facts):
    """Writes a small reranker as transformers and its tokenizer would publish it."""
    key = ("published head", kind, repr(sorted(facts.items())))
    write_again(key, lambda made: make_published(kind, made, facts), folder)
    forget()
    return str(folder)


def make_published(kind, folder, facts):
    write_backbone(kind, folder)
    config = AutoConfig.from_pretrained(folder, **({"num_labels": 1} | facts))
    model = AutoModelForSequenceClassification.from_config(config)
    random_weights(model)
    model.save_pretrained(folder)
    names = ["input_ids", *["token_type_ids"] * (kind in SEGMENTS), "attention_mask"]
    tokenizer = AutoTokenizer.from_pretrained(folder, model_input_names=names)
    middle = "</s> </s>" if kind in TWICE else "</s>"
    text = 1 if (getattr(config, "type_vocab_size", 0) or 0) > 1 else 0
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair=f"<s> $A {middle} $B:{text} </s>:{text}",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    tokenizer.save_pretrained(folder)


def config_of(folder, name, **settings):
    return TrialConfig().override(
        {
            "model.name": name,
            "model.backbone": folder,
            "chunking.window": WINDOW,
            "chunking.stride": WINDOW if name == "firstp" else STRIDE,
            "chunking.max_query_tokens": 3,
            **settings,
        }
    )


def scores(config, model=None):
    """Our score of every document."""
    backbone = resolve_backbone(config.model.backbone)
    check_model(config, backbone)
    model = (model or build_model(config, backbone, init_seed=1)).eval()
    reader = model_class(config.model.name).reader(config, backbone, DOCUMENTS)
    with torch.inference_mode():
        return model(reader.collate([reader.chunks(QUERY, doc_id) for doc_id in DOCUMENTS]))


def their_logits(folder, spans):
    """[logits] of chunks, row by row, tokenised as a pair by the checkpoint's own tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    segments = model.config.model_type in SEGMENTS
    options = {"return_tensors": "pt", "return_token_type_ids": segments}
    query = tokenizer.decode(QUERY)
    with torch.inference_mode():
        rows = [tokenizer(query, tokenizer.decode(span), **options) for span in spans]
        return [model(**row).logits[0] for row in rows]


def export(model, config, folder):
    """The model as it is read from an exported folder."""
    weights = folder / "weights.safetensors"
    save_file({n: p.contiguous() for n, p in model.state_dict().items()}, weights)
    write_model(folder / "exported", config, weights)
    return read_model(folder / "exported")


def forget():
    for cached in (load_config, load_tokenizer, resolve_backbone, head_problem):
        cached.cache_clear()


def chunks(tokens):
    starts = range(0, max(1, len(tokens) - WINDOW + STRIDE), STRIDE)
    return [tokens[start : start + WINDOW] for start in starts]


@pytest.mark.parametrize(("kind", "fast"), [*((kind, "on") for kind in KINDS), ("bert", "off")])
def test_scores_are_those_of_the_checkpoint_s_own_class(kind, fast, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", fast)
    folder = publish(kind, tmp_path / "published")
    first = their_logits(folder, [d[:WINDOW] for d in DOCUMENTS.values()])
    torch.testing.assert_close(
        scores(config_of(folder, "firstp")), torch.cat(first), atol=1e-5, rtol=0
    )
    parts = [chunks(d) for d in DOCUMENTS.values()]
    logit = map(float, their_logits(folder, [part for own in parts for part in own]))
    most = [max(islice(logit, len(own))) for own in parts]
    assert scores(config_of(folder, "maxp")).tolist() == pytest.approx(most, abs=1e-5)


def test_two_labels_are_one_score(tmp_path):
    folder = publish("bert", tmp_path / "published", num_labels=2)
    logits = torch.stack(their_logits(folder, [d[:WINDOW] for d in DOCUMENTS.values()]))
    expected = logits[:, 1] - logits[:, 0]
    torch.testing.assert_close(scores(config_of(folder, "firstp")), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_training_moves_head_and_encoder_and_the_export_is_the_model(kind, tmp_path):
    folder = publish(kind, tmp_path / "published")
    config = config_of(folder, "maxp", **{"model.dropout": 0.0})
    backbone = resolve_backbone(folder)
    model = build_model(config, backbone, init_seed=1)
    groups = model.learning_rate_groups()
    assert {id(p) for p in model.head.parameters()} == {id(p) for p in groups["head"]}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: p.detach().clone() for name, p in model.trainable()}
    reader = type(model).reader(config, backbone, DOCUMENTS)
    batch = reader.collate([reader.chunks(QUERY, doc_id) for doc_id in DOCUMENTS])
    model(batch).square().sum().backward()
    optimizer.step()
    moved = {name for name, p in model.trainable() if not torch.equal(p, before[name])}
    assert {name for name, _ in model.trainable() if name.startswith("head.")} <= moved
    exported = export(model, config, tmp_path)
    assert isinstance(exported.model.head, PublishedHead)
    trained = scores(config, model)
    torch.testing.assert_close(scores(exported.config, exported.model), trained, atol=1e-6, rtol=0)
    # A chunk's score by transformers alone.
    [logit] = their_logits(str(tmp_path / "exported" / "encoder"), [DOCUMENTS["one chunk"]])
    torch.testing.assert_close(logit, trained[:1], atol=1e-5, rtol=0)


REFUSED = {
    "labels": ("bert", {"num_labels": 3}, {}),
    "task": ("bert", {"num_labels": 2, "id2label": {0: "entailment", 1: "not"}}, {}),
    "names": ("bert", {"num_labels": 2, "id2label": {0: "spam", 1: "ham"}}, {}),
    "kind": ("big_bird", {}, {}),
    "vectors": ("bert", {}, {"model.name": "parade-max", "model.head": "checkpoint"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_head_that_cannot_be_used_is_refused_and_a_new_one_is_not(case, tmp_path):
    kind, facts, settings = REFUSED[case]
    folder = publish(kind, tmp_path / "published", **facts)
    config = config_of(folder, "firstp", **settings)
    with pytest.raises(BadInput, match=r"model\.head=new"):
        check_model(config, resolve_backbone(folder))
    check_model(config.override({"model.head": "new"}), resolve_backbone(folder))


PAIRS = {
    "other marks": "<s> $A <s> $B:1 </s>:1",
    "text first": "<s> $B:1 </s> $A </s>",
    "one segment": "<s> $A </s> $B:0 </s>:0",
    "no marks": "$A $B:1",
}


@pytest.mark.parametrize("case", PAIRS)
def test_a_tokenizer_of_other_pairs_is_refused(case, tmp_path):
    """The head was trained with those; a template that the rows here have is accepted."""
    folder = publish("bert", tmp_path / "published")
    check_model(config_of(folder, "firstp"), resolve_backbone(folder))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair=PAIRS[case], special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save_pretrained(folder)
    forget()
    with pytest.raises(BadInput, match=r"its tokenizer .*model\.head=new"):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))


def test_code_of_a_checkpoint_is_never_run(tmp_path):
    folder = publish("bert", tmp_path / "published")
    path = tmp_path / "published" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModel": "m.M"}}))
    forget()
    with pytest.raises(BadInput, match="auto_map"):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))
