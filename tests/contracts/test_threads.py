"""The law of threads: calls of one `Reranker` from several threads give the bits of single calls,
whatever the model, the encoder and the form in which it reads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import pytest

from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.cls_only import SAME_LAYERS
from rank_core.encoders.copies import copies_of, kept
from rank_core.encoders.cpu_layers import PackedLayers
from rank_core.encoders.packed import OWN_ATTENTION
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.ranker import Ranker
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import suited
from tests.contracts.small_backbones import make_backbone

THREADS, CALLS = 8, 32
QUERIES = ("w1 w5 w9", "w2", "w3 w30 w7 w8")
TEXTS = [" ".join(f"w{i * j % 46}" for j in range(1, 4 + 17 * i)) for i in range(1, 9)]
KEPT = {"packed": PackedLayers, "flat": list}  # by the form
SIZES = {"chunking.window": 20, "chunking.stride": 10, "chunking.max_document_tokens": 60}

FORMS = (  # encoder, model, form
    ("bert", "maxp", "packed"),
    ("bert", "maxp", "packed, bf16"),
    ("bert", "maxp", "flat"),
    ("bert", "cedr-knrm", "flat"),  # all layers
    ("bert", "cedr-knrm", "padded"),
    ("roberta", "keyb", "packed"),  # chooses blocks by words
    ("modernbert", "maxp", "padded"),
    ("qwen3", "maxp", "padded"),  # a decoder
    ("qwen3", "maxp", "flat"),
    ("big_bird", "longp", "padded"),  # draws its blocks at the first row of a length
    ("longformer", "longp", "padded"),
)
USUAL = {(kind, name) for kind, name, form in FORMS if form in ("packed", "padded")}
"""Whose usual form, without 16 bits, is among these already."""
MODELS = sorted(name for name in SYSTEMS if issubclass(model_class(name), Ranker))
KINDS = sorted(set(TYPES) - {"bert"})
OTHERS = (
    *(("bert", name, "") for name in MODELS if ("bert", name) not in USUAL),
    *((kind, "maxp", "") for kind in KINDS if (kind, "maxp") not in USUAL),
    *(
        (k, "maxp", "flat")
        for k in KINDS
        if k not in OWN_ATTENTION and (k, "maxp", "flat") not in FORMS
    ),
)


@pytest.fixture(scope="module")
def backbones(tmp_path_factory):
    return cache(lambda kind: make_backbone(kind, tmp_path_factory.mktemp(kind)))


def reranker(backbone, name, form):
    config = TrialConfig().override(
        {"model.name": name, "model.backbone": str(backbone.folder), **SIZES}
    )
    config = config.override(suited(config, backbone))
    check_model(config, backbone)
    model = build_model(config, backbone, init_seed=1).eval()
    if form == "flat":
        for part in model.children():
            part.reads_flat_rows = True
    made = Reranker(ExportedModel(model, config, backbone), "cpu", "bf16" * form.endswith("bf16"))
    if backbone.kind in SAME_LAYERS and (kept_as := KEPT.get(form.split(",")[0])):
        assert kept_as in map(type, made._copies.values())
    return made


def ranked(reranker, query):
    first_stage = [float(i) for i in range(len(TEXTS))] if reranker.needs_first_stage else None
    return reranker.rank(query, TEXTS, first_stage=first_stage)


def assert_threads_change_nothing(backbone, name, form):
    alone = reranker(backbone, name, form)
    expected = [ranked(alone, query) for query in QUERIES]
    assert len({str(scores) for scores in expected}) == len(QUERIES)
    # Another one, whose first calls are at once.
    shared, start = reranker(backbone, name, form), Barrier(THREADS)

    def call(i):
        if i < THREADS:
            start.wait()
        return ranked(shared, QUERIES[i % len(QUERIES)])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns within a call
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            found = list(threads.map(call, range(CALLS)))
    finally:
        sys.setswitchinterval(before)
    assert found == [expected[i % len(QUERIES)] for i in range(CALLS)]


@pytest.mark.parametrize(("kind", "name", "form"), FORMS)
def test_calls_from_threads_give_the_bits_of_single_calls(kind, name, form, backbones):
    assert_threads_change_nothing(backbones(kind), name, form)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "form"), OTHERS)
def test_every_model_and_every_encoder_may_be_called_from_threads(kind, name, form, backbones):
    assert_threads_change_nothing(backbones(kind), name, form)


def test_copies_of_weights_belong_to_the_thread_that_keeps_them(backbones):
    model = reranker(backbones("bert"), "maxp", "packed")._model
    with ThreadPoolExecutor(1) as threads, kept({model: "outer"}), kept({model.encoder: "inner"}):
        assert (copies_of(model), copies_of(model.encoder)) == ("outer", "inner")
        assert threads.submit(copies_of, model).result() is None
    assert copies_of(model) is None
