"""Settings that a model does not read, or that do not fit its backbone, are refused by name; and
those without effect on a trial."""

import re

import pytest

from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.models import MODELS
from rank_core.models.checks import check_model
from rank_core.models.reading import ignored_settings
from rank_core.settings.config import TrialConfig

CHUNKS = {"chunking.window": 20, "chunking.stride": 10, "chunking.max_document_tokens": 60}
APART = CHUNKS | {"chunking.stride": 20}
WHOLE = {f"chunking.{name}": 80 for name in ("window", "stride", "max_document_tokens")}
STEPS = {"chunking.window": 2, "chunking.stride": 1, "chunking.max_chunks": 509}
REFUSED = [
    ("longp", WHOLE, {"chunking.max_document_tokens": 1431}, "chunking.max_document_tokens"),
    ("longp", WHOLE, {name: 1431 for name in WHOLE}, "chunking.window <= 96"),
    ("longp", WHOLE, {"training.unit": "passage"}, "training.unit"),
    ("longp", WHOLE, {"model.pool": "max"}, "model.pool 'max'"),
    ("longp", WHOLE, {"model.quirks": ("padded-rows",)}, "model.quirks"),
    ("firstp", APART, {"chunking.stride": 10}, "chunking.stride"),
    ("firstp", APART, {"chunking.max_chunks": 2}, "chunking.max_chunks"),
    ("maxp", CHUNKS, {"chunking.window": 97}, "chunking.window <= 96"),
    ("maxp", CHUNKS, {"model.name": "maxP"}, "did you mean maxp?"),
    ("maxp", CHUNKS, {"model.head": "old"}, "model.head"),
    ("bm25", CHUNKS, {"model.head": "new"}, "model.head"),
    ("maxp", CHUNKS, {"chat.model": "another"}, "chat.model"),
    ("parade-transformer", STEPS, {"chunking.max_chunks": 510}, "at most 509 chunks"),
    ("tk", WHOLE, {"chunking.window": 60, "chunking.stride": 60}, "chunking.window"),
    ("tk", WHOLE, {"chunking.stride": 60}, "chunking.stride"),
    ("cedr-knrm", APART, {"chunking.stride": 10}, "chunking.stride"),
    ("cedr-pacrr", APART, {"chunking.max_query_tokens": 33}, "max_query_tokens <= 32"),
    ("co-pacrr", WHOLE, {"chunking.max_query_tokens": 33}, "max_query_tokens <= 32"),
    ("avg-cls", APART, {"chunking.stride": 10}, "chunking.stride"),
    ("birch", APART, {"chunking.stride": 10}, "chunking.stride"),
    ("firstp", APART, {"model.quirks": ("unmasked-chunks",)}, "model firstp 'unmasked-chunks'"),
    ("maxp", CHUNKS, {"model.quirks": ("unmasked-chunk",)}, "unmasked-chunks"),
    ("maxp", CHUNKS, {"model.chunk_scores": "probability"}, "model.chunk_scores"),
    ("avgp", CHUNKS, {"model.chunk_scores": "probability"}, "training.unit=passage"),
    ("avgp", CHUNKS, {"model.chunk_scores": "logits"}, "model.chunk_scores"),
    ("avgp", CHUNKS, {"model.quirks": ("unmasked-chunks",)}, "model.quirks"),
    ("kmax-avgp", CHUNKS, {"model.k": -1}, "model.k"),
    ("parade-avg", CHUNKS, {"model.quirks": ("elementwise-attention",)}, "parade-avg"),
    ("parade-attn", CHUNKS, {"model.quirks": ("batch",)}, "parade-attn 'batch'"),
    (
        "parade-attn",
        CHUNKS,
        {"training.interaction_learning_rate": 1e-4},
        "interaction_learning_rate",
    ),
    ("parade-late-interaction", CHUNKS, {"model.quirks": ("own-special",)}, "own-special"),
    ("idcm", CHUNKS, {"model.stage": "students"}, "student"),
    ("idcm", CHUNKS, {"model.k": 4}, "model.k"),
    ("idcm", CHUNKS, {"model.stage": "student", "model.k": -1}, "model.k"),
    (
        "idcm",
        CHUNKS,
        {"chunking.max_chunks": 3, "chunking.overflow": "first-last-sampled"},
        "chunking.overflow",
    ),
    ("randp", CHUNKS, {"evaluation.keep_chunk_scores": True}, "keep_chunk_scores"),
    ("keyb-parade", CHUNKS, {"model.selector": "tfidff"}, "tfidf"),
    ("keyb-parade", CHUNKS, {"model.selector_backbone": "tiny-docs"}, "selector_backbone"),
    ("keyb-parade", CHUNKS, {"model.k": -1}, "1 to"),
    ("keyb-parade", CHUNKS, {"model.quirks": ("other",)}, "quirk"),
    ("keyb-parade", CHUNKS, {"chunking.max_chunks": 3}, "max_chunks"),
    ("keyb", WHOLE | {"chunking.window": 96, "chunking.stride": 96}, APART, "= 96"),
    ("qds", WHOLE, {"model.selector": "qsd"}, "qds"),
]


@pytest.mark.parametrize(("name", "good", "fault", "field"), REFUSED)
def test_a_setting_without_effect_or_beyond_the_backbone_is_refused(
    name, good, fault, field, backbone
):
    config = TrialConfig().override({"model.backbone": str(backbone.folder), "model.name": name})
    if name.startswith("keyb"):
        config = config.override({"model.selector": "bm25"})
    config = config.override({"chunking.max_query_tokens": 32} | good)
    check_model(config, backbone)
    with pytest.raises(BadInput, match=re.escape(field)):
        check_model(config.override(fault), backbone)


OWN = "docs.examples.own_model:SmoothMaxP"
UNTRAINED = {
    "maxp": "its head would be drawn. Train it",
    "parade-avg": "its head would be drawn",
    "cedr-knrm": "drawn",
    OWN: "its head would be drawn",
    "mine": "its head would be drawn",
    "late-interaction": "drawn",
    "bi-encoder": "",
    "bm25": "",
}
"""{model: what is said where nothing is trained over an encoder without a head; "": it ranks}."""


@pytest.mark.parametrize("name", UNTRAINED)
def test_where_nothing_is_trained_no_weight_is_drawn(name, backbone, reranker_folder, monkeypatch):
    monkeypatch.setitem(MODELS, "mine", OWN)
    sizes = {"chunking.window": 48, "chunking.stride": 48, "chunking.max_query_tokens": 32}
    settings = {"model.name": name, "training.num_epochs": 0, **sizes}
    config = TrialConfig().override({"model.backbone": str(backbone.folder), **settings})
    if not UNTRAINED[name]:
        check_model(config, backbone)
        return
    with pytest.raises(BadInput, match=f"would rank at random: nothing .*{UNTRAINED[name]}"):
        check_model(config, backbone)
    check_model(config.override({"training.num_epochs": 1}), backbone)
    if "head would" in UNTRAINED[name]:  # all that it needs is a head
        trained = resolve_backbone(str(reranker_folder))
        check_model(config.override({"model.backbone": str(reranker_folder)}), trained)
        with pytest.raises(BadInput, match=r"drawn \(model\.head=new\)"):
            new = {"model.backbone": str(reranker_folder), "model.head": "new"}
            check_model(config.override(new), trained)


def test_a_ranking_head_as_it_is_reads_its_own_vectors(reranker_folder):
    """Trained, it may learn to read others, as trials of a pooling do."""
    backbone = resolve_backbone(str(reranker_folder))
    sizes = {"chunking.window": 48, "chunking.stride": 48, "chunking.max_query_tokens": 32}
    mean = {"model.name": "maxp", "model.backbone": backbone.name, "model.pool": "mean", **sizes}
    config = TrialConfig().override(mean)
    check_model(config, backbone)
    with pytest.raises(BadInput, match=r"model\.pool must be cls"):
        check_model(config.override({"training.num_epochs": 0}), backbone)


STRIDE, MOST, OVERFLOW = "chunking.stride", "chunking.max_chunks", "chunking.overflow"
BATCH, MARGIN = "training.batch_size", "training.margin"


def ignored(model, **settings):
    return set(ignored_settings(TrialConfig().override({"model.name": model, **settings})))


@pytest.mark.parametrize("model", MODELS)
def test_what_every_model_reads(model):
    read = {"collection", "seed", "model.name", "evaluation.measures", "evaluation.depth"}
    assert not read & ignored(model)


@pytest.mark.parametrize(
    ("model", "settings", "without", "with_"),
    [
        ("bm25", {}, {STRIDE, MOST, BATCH, "model.backbone", "chat.model"}, set()),
        ("rankgpt", {}, {BATCH}, {"chat.model"}),
        ("firstp", {}, {STRIDE, MOST}, {BATCH}),
        ("firstp", {"training.unit": "passage"}, {"training.chunk_dropout"}, {STRIDE, MOST}),
        ("birch", {}, {STRIDE}, {MOST}),
        ("maxp", {}, {OVERFLOW, "model.k"}, {"chunking.window", STRIDE, MOST, MARGIN, BATCH}),
        ("maxp", {MOST: 4}, {"training.teacher"}, {OVERFLOW}),
        ("maxp", {"training.loss": "ranknet"}, {MARGIN, "training.passage_keep"}, {BATCH}),
        ("kmax-avgp", {}, {"model.stage"}, {"model.k"}),
        ("parade-late-interaction", {}, set(), {"training.interaction_learning_rate"}),
        ("bi-encoder", {"training.num_epochs": 0}, {BATCH}, {"training.precision"}),
    ],
)
def test_settings_have_an_effect_where_something_reads_them(model, settings, without, with_):
    names = ignored(model, **settings)
    assert without <= names and not names & with_
