"""The law of an exported folder: it ranks as the trial did, whatever the model and the encoder."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.backbone_types import TYPES
from rank_core.errors import BadInput
from rank_core.export.folder import FREQUENCIES, read_model, write_model
from rank_core.export.reranker import Reranker
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.key_blocks import BLOCK_SCORES
from rank_core.models.ranker import Ranker
from rank_core.ranking.final_runs import final_runs
from rank_core.ranking.interpolation import NORMALISATIONS, FirstStageMix, mixture
from rank_core.ranking.scorer import Scorer
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import suited
from tests.contracts.small_backbones import make_backbone
from tests.rank_core.encoders import test_decoder_rerankers as decoders
from tests.rank_core.encoders.test_module_chain import CHAIN, write_chain

MODELS = sorted(name for name in SYSTEMS if issubclass(model_class(name), Ranker))
CASES = [
    *((name, (), "") for name in MODELS),
    ("parade-transformer-pretrained", ("model.aggregator",), ""),
    ("parade-late-interaction", ("model.aggregator", "model.interaction"), ""),
    ("keyb", ("model.selector_backbone",), "learned-separate"),
    *(("keyb", (), selector) for selector in ("bm25-then-learned", "tfidf", "random")),
]
"""(model, its further encoders, how it selects blocks)"""
EMBEDS = {"chain": CHAIN[:2], "more": {"model_type": "SentenceTransformer"}}
SAVED = {
    "reranker": ("bert", write_chain),
    "reranker over a folder": ("bert", partial(write_chain, transformer="0_Transformer")),
    "embedding model": ("bert", partial(write_chain, **EMBEDS)),
    "decoder": ("qwen3", decoders.publish),  # which reads no vectors
}


def config_of(name, backbone, collection, **more):
    config = TrialConfig().override(
        {
            "model.name": name,
            "model.backbone": str(backbone.folder),
            "collection": str(collection),
            "evaluation.measures": ("nDCG@10",),
            "evaluation.max_dev_queries": 2,
            "evaluation.max_test_queries": 3,
            **more,
        }
    )
    config = config.override(suited(config, backbone))
    check_model(config, backbone)
    return config


def exported(config, tmp_path, first_stage=None):
    """(the run of the trial's own path on test, the folder of the same weights)."""
    inputs = load_inputs(config.collection, config.model.backbone)
    model = build_model(config, inputs.backbone, init_seed=1)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # no weight is as it was read, or drawn
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(noise * 0.05)
    # Copies, as a trial keeps: T5 has its word table under two names.
    save_weights(tmp_path, {name: w.clone() for name, w in model.state_dict().items()})
    scorer = Scorer(config, inputs, model.eval(), None)
    final = final_runs(scorer, scorer.run("dev"))
    interpolation = final.notes.get("interpolation.json")
    notes = {"interpolation": interpolation, "first_stage": first_stage}
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS, **notes)
    return final.runs["test"], tmp_path / "m"


def reranked(config, folder, query_ids):
    collection = load_inputs(config.collection, config.model.backbone).collection
    split = collection.splits["test"]
    run = {query_id: split.candidates[query_id] for query_id in query_ids}
    return Reranker.load(folder).rerank(run, split.queries, collection.documents)


def assert_reproduced(config, tmp_path):
    expected, folder = exported(config, tmp_path)
    found = reranked(config, folder, expected)
    assert list(found) == list(expected)
    for query_id, scores in expected.items():
        assert found[query_id].keys() == scores.keys()
        assert found[query_id] == pytest.approx(scores, abs=1e-5)
    spread = np.std([score for scores in expected.values() for score in scores.values()])
    assert spread > 1e-3 and math.isfinite(spread)
    return folder


@pytest.mark.parametrize(("name", "others", "selector"), CASES)
def test_the_folder_of_every_model_ranks_as_the_trial_did(
    name, others, selector, backbone, collection_folder, tmp_path
):
    """Its further encoders go along, and the collection's words where they choose blocks."""
    more = dict.fromkeys(others, str(backbone.folder))
    more |= {"model.selector": selector} if selector else {}
    config = config_of(name, backbone, collection_folder, **more)
    folder = assert_reproduced(config, tmp_path)
    read = read_model(folder)
    assert read.config.chunking == config.chunking and read.config.model.name == name
    for setting in others:
        assert (folder / setting.removeprefix("model.") / "config.json").exists()
    if selector:
        by_words = any(selector.startswith(name) for name in BLOCK_SCORES)
        assert (folder / FREQUENCIES).exists() == by_words


@pytest.mark.parametrize(
    ("name", "others", "selector", "saved"),
    [(*case, one) for case in CASES for one in SAVED if case[1] and (case[2] or one != "decoder")],
)
def test_a_further_encoder_goes_along_with_its_modules(
    name, others, selector, saved, collection_folder, tmp_path
):
    """Of a reranker, whose head may select blocks, and of an embedding model."""
    kind, write = SAVED[saved]
    (tmp_path / "backbone").mkdir()
    backbone = make_backbone(kind, tmp_path / "backbone")
    more = dict.fromkeys(others, write(kind, tmp_path / "further"))
    more |= {"model.selector": selector} if selector else {}
    assert_reproduced(config_of(name, backbone, collection_folder, **more), tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "maxp") for kind in sorted(TYPES)), ("big_bird", "longp"), ("longformer", "longp")],
)
def test_the_folder_of_every_encoder_ranks_as_the_trial_did(
    kind, name, collection_folder, tmp_path
):
    (tmp_path / "backbone").mkdir()
    backbone = make_backbone(kind, tmp_path / "backbone")
    config = config_of(name, backbone, collection_folder)
    assert_reproduced(config, tmp_path)


@pytest.mark.parametrize(
    ("name", "alpha", "normalise"),
    [
        *(("maxp", 0.3, normalise) for normalise in NORMALISATIONS),
        *(("firstp", 0.0, "min-max"), ("sump", 1.0, "z-score")),
    ],
)
def test_a_system_interpolated_with_the_first_stage_ranks_as_it_was_derived(
    name, alpha, normalise, backbone, collection_folder, tmp_path
):
    """From the run that is given: with other scores of the first stage it is another system."""
    mix = FirstStageMix(alpha, normalise, "BM25")
    config = config_of(name, backbone, collection_folder)
    of_model, folder = exported(config, tmp_path, mix)
    split = load_inputs(config.collection, config.model.backbone).collection.splits["test"]
    expected = mixture(of_model, split.candidates, normalise).at(alpha)
    found = reranked(config, folder, of_model)
    for query_id, scores in expected.items():
        assert found[query_id] == pytest.approx(scores, abs=1e-5)
    assert (found == of_model) == (alpha == 1)
    assert (folder / "modules.json").exists(), "a CrossEncoder ranks by the model alone"


def test_rank_takes_scores_of_the_first_stage_or_says_that_it_needs_them(
    backbone, collection_folder, tmp_path
):
    config = config_of("maxp", backbone, collection_folder)
    _, folder = exported(config, tmp_path, FirstStageMix(0.3, "min-max", "BM25"))
    reranker = Reranker.load(folder)
    texts, scores = {"a": "one text", "b": "another", "c": "third words"}, [1.0, 3.0, 2.0]
    by_id = dict(zip(texts, scores, strict=True))
    assert reranker.mixes_first_stage and not reranker.needs_first_stage
    [expected] = reranker.rerank({"q": dict(sorted(by_id.items(), key=lambda one: -one[1]))},
                                 {"q": "a query"}, texts).values()  # fmt: skip
    assert reranker.rank("a query", texts, first_stage=by_id) == list(expected.items())
    by_place = reranker.rank("a query", [*texts.values()], first_stage=scores)
    assert [("abc"[place], score) for place, score in by_place] == list(expected.items())
    of_model = Reranker.load(exported(config, tmp_path / "alone")[1]).rank("a query", texts)
    assert reranker.rank("a query", texts) == of_model != list(expected.items()), "its model alone"
    with pytest.raises(BadInput, match=r"first_stage.*3 documents"):
        reranker.rank("a query", texts, first_stage={"a": 1.0, "b": 2.0})
