"""What a saved reranker says of its rows: each setting is applied, or refused by its name; a chat
template is a fixed frame around query and document, or refused by the reason."""

import json

import pytest
import torch

from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.models.checks import check_model
from tests.rank_core.encoders import test_decoder_rerankers as decoders
from tests.rank_core.encoders import test_module_chain as chains
from tests.rank_core.encoders.test_published_heads import (
    DOCUMENTS,
    WINDOW,
    config_of,
    forget,
    publish,
    scores,
)

FILE = "sentence_bert_config.json"
QUERY, DOCUMENT = (decoders.ROLE.format(role) for role in ("query", "document"))
ASKS = f"{decoders.CHAT}{{% if add_generation_prompt %}} w6 w7{{% endif %}}"
THINKS = f"{decoders.CHAT}{{% if not thinks %}} w8{{% endif %}}"
CHATS = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
CHATS |= {
    "modality_config": {
        name: {"method": "forward", "method_output_name": "last_hidden_state"}
        for name in ("text", "message")
    }
}


def saved(kind, folder, settings, chat=decoders.CHAT):
    """A small reranker of a kind of saved form, with settings of its Transformer."""
    if kind == "logit score":
        decoders.publish("qwen3", folder, chat=chat)
    elif kind == "decoder's classifier":
        decoders.classify("qwen3", folder, 1)
        (folder / "chat_template.jinja").write_text(chat)
    elif kind == "classifier":
        publish("bert", folder)
    elif kind == "chain":
        chains.write_chain("bert", folder)
    else:
        chains.write_chain("qwen3", folder, (("Pooling", chains.MEAN), ("Dense", chains.SCORE)))
        (folder / "chat_template.jinja").write_text(chat)
        settings = CHATS | settings
    (folder / FILE).write_text(json.dumps(settings))
    forget()
    return str(folder)


CHATTING = ("logit score", "decoder's classifier", "chain that chats")
KINDS = ("classifier", "chain", *CHATTING)


@pytest.mark.parametrize(
    ("chat", "values", "behind"),
    [
        (ASKS, {"add_generation_prompt": True}, " w4 w5 w6 w7"),
        (THINKS, {"thinks": True, "padding": True}, " w4 w5"),
    ],
)
@pytest.mark.parametrize("kind", CHATTING)
def test_a_chat_template_gets_what_the_folder_says(kind, chat, values, behind, tmp_path):
    settings = {"processing_kwargs": {"chat_template": values}}
    folder = saved(kind, tmp_path / "b", settings, chat)
    backbone = resolve_backbone(folder)
    plain = resolve_backbone(saved(kind, tmp_path / "plain", {}, chat.replace("thinks", "not x")))
    number = len(behind.split())
    assert len(backbone.layout.suffix) == number
    if kind == "logit score":
        spans = [tokens[:WINDOW] for tokens in DOCUMENTS.values()]
        expected = decoders.their_scores(folder, spans, ("w0 w1 ", " w2 w3 ", behind))
        found = scores(decoders.config_of(folder, "firstp"))
        assert found.tolist() == pytest.approx(expected, abs=1e-5)
    if backbone.layout != plain.layout:
        assert backbone.content_hash != plain.content_hash


UNREAD = {
    "processing_kwargs.text.add_special_tokens": {"text": {"add_special_tokens": False}},
    "processing_kwargs.common.max_length": {"common": {"max_length": 9}},
    "processing_kwargs.chat_template.continue_final_message": {
        "chat_template": {"continue_final_message": True}
    },
    "processing_kwargs.chat_template.chat_template": {"chat_template": {"chat_template": "w1"}},
    "processing_kwargs.other": {"other": 0},
}
SETTINGS = {name: {"processing_kwargs": value} for name, value in UNREAD.items()}
SETTINGS |= {
    "query_length": {"query_length": 8},
    "model_kwargs.num_labels": {"model_kwargs": {"num_labels": 2}},
    "processor_kwargs.use_fast": {"processor_kwargs": {"use_fast": False}},
    "something_new": {"something_new": True},
    "processing_kwargs": {"processing_kwargs": ["text"]},
}


FIRST = next(iter(SETTINGS))


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "classifier") for name in SETTINGS), *((FIRST, kind) for kind in KINDS[1:])],
)
def test_a_setting_that_is_not_read_is_refused_by_its_name(name, kind, tmp_path):
    folder = saved(kind, tmp_path / "b", SETTINGS[name])
    with pytest.raises(BadInput, match=f"Transformer has the settings {name}"):
        check_model(config_of(folder, "firstp"), resolve_backbone(folder))


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_change_no_row_are_taken(kind, tmp_path):
    settings = {
        "model_kwargs": {"add_pooling_layer": False, "torch_dtype": "float16"},
        "processing_kwargs": {"text": {"padding": True}, "image": {"size": 3}},
        "query_length": None,
        "config_kwargs": {},
    }
    plain = scores(config_of(saved(kind, tmp_path / "plain", {}), "firstp"))
    found = scores(config_of(saved(kind, tmp_path / "b", settings), "firstp"))
    torch.testing.assert_close(found, plain)


def frame(query="{{ " + QUERY + " }}", document="{{ " + DOCUMENT + " }}"):
    return f"w0 {query} w2 {document} w4"


NO_FRAME = {
    "twice": (frame() + " {{ " + QUERY + " }} w5", "writes the query 2 times"),
    "length": (frame() + " {{ (" + DOCUMENT + ") | length }} w5", "their lengths"),
    "cut": (frame(document="{{ (" + DOCUMENT + ")[:40] }}"), "changes or cuts the document"),
    "cut later": (frame(document="{{ (" + DOCUMENT + ")[:9000] }}"), "changes or cuts the docu"),
    "trim": (frame(query="{{ " + QUERY + " | trim }}"), "strips white space around the query"),
    "lower": (frame(document="{{ " + DOCUMENT + " | lower }}"), "does not write the document"),
    "escape": (frame(document="{{ " + DOCUMENT + " | e }}"), "changes or cuts the document"),
    "words": (frame(query="{{ (" + QUERY + ").split() | join(' ') }}"), "the query"),
    "order": ("w0 {{ " + DOCUMENT + " }} w1 {{ " + QUERY + " }} w2", "document before the query"),
    "no end": (frame()[:-3], "text behind the document"),
    "no document": ("w0 {{ " + QUERY + " }} w1", "does not write the document"),
    "if long": (
        frame() + "{% if (" + DOCUMENT + ") | length > 2000 %} w6{% endif %}",
        "other text around other",
    ),
}


EVERYWHERE = [("twice", kind) for kind in CHATTING[1:]]


@pytest.mark.parametrize(("case", "kind"), [*((c, CHATTING[0]) for c in NO_FRAME), *EVERYWHERE])
def test_a_template_that_is_no_fixed_frame_is_refused_by_the_reason(case, kind, tmp_path):
    chat, reason = NO_FRAME[case]
    with pytest.raises(BadInput, match=f"its chat template .*{reason}"):
        resolve_backbone(saved(kind, tmp_path / "b", {}, chat))


LOOP = (
    "{% for m in messages %}w1 {{ m.role }} {{ m.content if m.content is string else "
    "m.content[0].text }} w2{% endfor %}"
)


@pytest.mark.parametrize(
    "chat",
    [LOOP, frame(*(f"{{{{ ({own})[0]['text'] }}}}" for own in (QUERY, DOCUMENT)))],
)
def test_a_fixed_frame_is_taken(chat, tmp_path):
    backbone = resolve_backbone(saved("logit score", tmp_path / "b", {}, chat))
    assert all(backbone.layout.tokens)


@pytest.mark.long  # the import alone takes seconds
@pytest.mark.slow
def test_the_template_s_values_are_those_of_sentence_transformers(tmp_path):
    library = pytest.importorskip("sentence_transformers", minversion="6.2")
    from sentence_transformers.cross_encoder.modules import LogitScore

    from tests.rank_core.encoders.test_module_chain import their_scores

    source = decoders.publish("qwen3", tmp_path / "source", chat=ASKS)
    task = {"transformer_task": "text-generation"}
    for asks in (False, True):
        given = {"chat_template": {"add_generation_prompt": asks}}
        transformer = library.base.modules.Transformer(source, processing_kwargs=given, **task)
        modules = [transformer, LogitScore(decoders.YES, decoders.NO)]
        folder = tmp_path / str(asks)
        library.CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
        forget()
        found = scores(decoders.config_of(str(folder), "firstp"))
        torch.testing.assert_close(found, their_scores(folder, library), atol=1e-5, rtol=0)
