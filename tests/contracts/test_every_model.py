"""Laws that hold for every entry of `MODELS`, so also for one that is added tomorrow."""

import copy
from itertools import permutations

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModel, BertConfig

from rank_core.chunking.batches import Chunk, tokenize_queries
from rank_core.encoders.backbones import load_tokenizer
from rank_core.errors import BadInput
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import list_rankers, model_class
from rank_core.models.build import build_model
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranker import Ranker
from rank_core.ranking.rerank import rerank
from rank_core.settings.config import Chunking, Model, Training, TrialConfig
from rank_core.training.optimizer import build_optimizer
from sweeps.plan.profiles import PROFILES
from tests.contracts.laws import (
    QUERY,
    assert_each_document_is_scored_alone,
    assert_the_fast_path_is_the_definition,
    batch_of,
    scores,
    tokens,
    without_gradient,
)

MODELS = {name: kind for name in SYSTEMS if issubclass(kind := model_class(name), Ranker)}
CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60)
SHORT, LONG = 13, 55  # tokens: one chunk, and five of which the last is shorter
# Those that read the windows of CHUNKING as they are; the others have laws of their own.
WINDOWED = sorted(name for name, model in MODELS.items() if model.reads_windows())
MULTI_CHUNK = [name for name in WINDOWED if not MODELS[name].first_chunk_only]
SAME_ON_ONE_CHUNK = sorted(name for name, model in MODELS.items() if model.one_chunk_is_firstp)
ORDER_FREE = ["maxp", "sump", "avgp", "avg-cls", "kmax-avgp", "birch"]
ORDER_FREE += ["parade-avg", "parade-max", "parade-attn"]
JUDGES = {"bi-encoder": "bi-encoder"}  # whose chunk scores say which chunk is best; else MaxP's
# Standard deviation of the scores of DOCUMENTS with weights as drawn, where it is below 0.05.
SPREADS = {"cedr-pacrr": 0.005, "co-pacrr": 0.004, "deeprank": 0.02}
NOT_ROUNDED = ("co-pacrr", "deeprank")  # all of it is computed in fp32
# Kernels feed on small differences; a count is another one where rounding crosses a bin's edge.
# Large random weights over chunk vectors enlarge their rounding, a bi-encoder's scale its own.
ROUGH = {
    "bi-encoder": 0.5,
    "cedr-knrm": 0.05,
    "tkl": 0.05,
    "cedr-drmm": 1.0,
    "mores": 0.03,
    "parade-transformer-pretrained": 0.03,
}
NOTHING_DRAWN = ("bi-encoder",)  # every seed starts from the same weights

every_model = pytest.mark.parametrize("name", sorted(MODELS))


DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 1, SHORT, 20, 21, 34, LONG, 60, 90)}


@pytest.fixture(scope="module")
def models(backbone):
    """Every model over the same encoder and head, in evaluation mode."""
    built = {
        name: build_model(config_of(name, backbone), backbone, init_seed=1).eval()
        for name in MODELS
    }
    for name in SAME_ON_ONE_CHUNK:
        built[name].head.load_state_dict(built["maxp"].head.state_dict())
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # of a trained size: at its initial 0.02 it hardly looks around
        for model in built.values():
            for parameter in getattr(model, "aggregator", torch.nn.Module()).parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return built


def config_of(name, backbone, chunking=CHUNKING):
    """A trial of a model; its single-window forms get a stride that says so."""
    return TrialConfig(model=Model(name, backbone=str(backbone.folder)), chunking=chunking)


@pytest.fixture
def pairs_for(backbone):
    """The pair encoder of a model, over DOCUMENTS."""

    def build(name, chunking=CHUNKING, documents=DOCUMENTS):
        return MODELS[name].reader(config_of(name, backbone, chunking), backbone, documents)

    return build


def chunks_of(*texts):
    return [Chunk(QUERY, text) for text in texts]


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_every_system_has_a_paper_a_family_and_a_label_of_its_own(name):
    kind = model_class(name)
    for text in (kind.label, kind.paper, kind.family):
        assert isinstance(text, str) and text.strip()
    assert [other for other in SYSTEMS if model_class(other).label == kind.label] == [name]


@pytest.mark.parametrize("value", [None, "", " ", 3])
@pytest.mark.parametrize("field", ["label", "paper", "family"])
@pytest.mark.parametrize("base", [Ranker, ListRanker])
def test_a_system_without_one_of_these_texts_is_refused_by_name(base, field, value, monkeypatch):
    texts = {"label": "Nameless", "paper": "nobody", "family": "baselines", field: value}
    if value is None and not hasattr(base, field):
        del texts[field]
    monkeypatch.setattr(list_rankers, "Nameless", type("Nameless", (base,), texts), raising=False)
    monkeypatch.setitem(SYSTEMS, "nameless", "rank_core.models.list_rankers:Nameless")
    with pytest.raises(BadInput, match=rf"model nameless: Nameless\.{field} must be a text"):
        model_class("nameless")


@every_model
def test_a_score_does_not_depend_on_the_neighbours_in_the_batch(name, models, pairs_for):
    spread = SPREADS.get(name, 0.05)
    assert_each_document_is_scored_alone(
        models[name], pairs_for(name), list(DOCUMENTS), spread=spread
    )


@every_model
def test_limits_beyond_the_end_of_a_document_change_nothing(name, models, pairs_for):
    # FirstP refuses max_chunks, so only the token limit moves there.
    many = 0 if MODELS[name].first_chunk_only else 50
    wide = Chunking(window=20, stride=10, max_document_tokens=5000, max_chunks=many)
    short_ids = [doc_id for doc_id, text in DOCUMENTS.items() if len(text) <= 60]
    assert torch.equal(
        scores(models[name], pairs_for(name), short_ids),
        scores(models[name], pairs_for(name, wide), short_ids),
    )


@pytest.mark.parametrize("name", SAME_ON_ONE_CHUNK)
def test_models_agree_on_documents_of_one_chunk(name, models, pairs_for):
    doc_ids = ["d1", f"d{SHORT}", "d20"]
    expected = scores(models["firstp"], pairs_for("firstp"), doc_ids)
    assert_close(scores(models[name], pairs_for(name), doc_ids), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["firstp", *ORDER_FREE])
def test_n_identical_chunks_score_like_one_and_sum_to_n_times_one(name, models, pairs_for):
    pairs, text = pairs_for(name), tokens(5, 20)
    one = scores(models[name], pairs, [chunks_of(text)])
    many = scores(models[name], pairs, [chunks_of(*[text] * 4)])
    assert one.abs() > 0.05
    assert_close(many, one * 4 if name == "sump" else one, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ORDER_FREE)
def test_the_order_of_the_chunks_does_not_matter(name, models, pairs_for):
    texts = [tokens(i, 20) for i in range(4)]
    shuffled = [chunks_of(*order) for order in permutations(texts)]
    score_B = scores(models[name], pairs_for(name), shuffled)
    assert_close(score_B, score_B[:1].expand_as(score_B), atol=1e-5, rtol=0)


def test_parade_transformer_reads_the_order_of_the_chunks(models, pairs_for):
    texts = [tokens(i, 20) for i in range(3)]
    shuffled = [chunks_of(*order) for order in permutations(texts)]
    score_B = scores(models["parade-transformer"], pairs_for("maxp"), shuffled)
    gap_BB = (score_B[:, None] - score_B).abs() + torch.eye(len(score_B))
    assert gap_BB.min() > 1e-3


@pytest.mark.parametrize("name", MULTI_CHUNK)
def test_changing_any_one_chunk_changes_the_score(name, models, pairs_for):
    model, pairs = models[name], pairs_for(name)
    candidates = [tokens(100 + i, 20) for i in range(60)]
    judge = models[JUDGES.get(name, "maxp")]
    by_score = scores(judge, pairs, [chunks_of(text) for text in candidates]).argsort()
    # The newcomer is the best chunk, so that MaxP must notice it wherever it is.
    *texts, best = (candidates[i] for i in [*by_score[:5].tolist(), int(by_score[-1])])
    documents = [texts, *([*texts[:j], best, *texts[j + 1 :]] for j in range(len(texts)))]
    before, *after = scores(model, pairs, [chunks_of(*texts) for texts in documents])
    assert len(after) == 5
    for j, score in enumerate(after):
        assert (score - before).abs() > 1e-4, f"chunk {j} is not read"


def test_firstp_reads_the_first_chunk_only(models, pairs_for):
    changed = DOCUMENTS[f"d{LONG}"].copy()
    changed[20:] = 5
    pairs = pairs_for("firstp", documents=DOCUMENTS | {"changed": changed})
    before, after = scores(models["firstp"], pairs, [f"d{LONG}", "changed"])
    assert_close(before, after, atol=1e-6, rtol=0)
    changed[19] += 1
    assert (scores(models["firstp"], pairs, ["changed"]) - after).abs() > 1e-3


def test_parade_transformer_reads_its_score_where_it_wrote_c(models, pairs_for):
    model, pairs = copy.deepcopy(models["parade-transformer"]), pairs_for("maxp")
    before = scores(model, pairs, list(DOCUMENTS))
    noise = torch.randn(32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.special_2H[0] += noise  # at random: LayerNorm hides a constant shift
        assert (scores(model, pairs, list(DOCUMENTS)) - before).abs().min() > 1e-2
        # Where nothing is passed between places, the score is C's own and no chunk is in it.
        for layer in model.aggregator.encoder.layer:
            layer.attention.output.dense.weight.zero_()
        own = scores(model, pairs, list(DOCUMENTS))
        assert_close(own, own[:1].expand_as(own), atol=1e-6, rtol=0)
        model.special_2H[0] -= noise
        assert (scores(model, pairs, ["d1"]) - own[1]).abs() > 1e-2


def test_the_gradient_of_maxp_reaches_the_best_chunk_only(models):
    mask_BP = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    cls_BPH = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(2))
    cls_BPH = (cls_BPH * mask_BP[:, :, None]).requires_grad_()
    models["maxp"].aggregate(cls_BPH, mask_BP).sum().backward()
    chunk_score_BP = models["maxp"].head(cls_BPH).squeeze(-1).masked_fill(~mask_BP, -torch.inf)
    best_BP = torch.zeros_like(mask_BP).scatter_(1, chunk_score_BP.argmax(1, keepdim=True), True)
    assert torch.equal(cls_BPH.grad.abs().sum(-1) > 0, best_BP)


@every_model
def test_a_gradient_reaches_every_parameter(name, models, pairs_for):
    model = copy.deepcopy(models[name]).train()
    batch = batch_of(pairs_for(name), ("d34", f"d{LONG}"))
    assert without_gradient(model, model(batch)) == set()


@every_model
def test_every_parameter_has_exactly_one_learning_rate(name, models):
    training = Training(
        backbone_learning_rate=1e-5,
        head_learning_rate=2e-4,
        aggregator_learning_rate=3e-3,
        interaction_learning_rate=4e-2,
    )
    own = {"encoder": 1e-5, "head": 2e-4, "interaction": 4e-2}
    optimizer = build_optimizer(models[name], training)
    rates = [(id(p), group["lr"]) for group in optimizer.param_groups for p in group["params"]]
    expected = {
        id(parameter): own.get(part.partition(".")[0], 3e-3)
        for part, parameter in models[name].named_parameters()
    }
    assert len(rates) == len(expected)
    assert dict(rates) == expected


@every_model
def test_inputs_at_the_edge_get_a_finite_score(name, models, pairs_for, backbone):
    tokenizer = load_tokenizer(backbone.folder)
    [query] = tokenize_queries(tokenizer, ["amber birch " * 100], CHUNKING.max_query_tokens)
    assert len(query) == CHUNKING.max_query_tokens
    for some in (query, QUERY[:1], QUERY[:0]):
        doc_ids = ("d0", "d1", f"d{LONG}", "d90")
        assert scores(models[name], pairs_for(name), doc_ids, some).isfinite().all()


@every_model
def test_saved_weights_give_the_same_scores(name, models, pairs_for, backbone, tmp_path):
    torch.save(models[name].state_dict(), tmp_path / "weights.pt")
    other = build_model(config_of(name, backbone), backbone, init_seed=2).eval()
    expected = scores(models[name], pairs_for(name), list(DOCUMENTS))
    as_saved = torch.equal(scores(other, pairs_for(name), list(DOCUMENTS)), expected)
    assert as_saved == (name in NOTHING_DRAWN)
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(scores(other, pairs_for(name), list(DOCUMENTS)), expected)


@every_model
def test_the_fast_path_gives_the_scores_and_gradients_of_the_definition(name, models, pairs_for):
    twins = [copy.deepcopy(models[name]).train() for _ in range(2)]
    for module in (module for model in twins for module in model.modules()):
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert_the_fast_path_is_the_definition(*twins, pairs_for(name), DOCUMENTS, batch_tokens=90)


QUIRKS = {(name, quirks) for some in PROFILES.values() for name, quirks in some.quirks.items()}


@pytest.mark.parametrize(("name", "quirks"), sorted(QUIRKS))
def test_with_the_quirks_of_a_profile_these_laws_hold_as_well(name, quirks, backbone):
    settings = {"model.quirks": quirks, "model.dropout": 0.0}
    config = config_of(name, backbone).override(settings)
    pairs = MODELS[name].reader(config, backbone, DOCUMENTS)
    plain, fast, third = (build_model(config, backbone, init_seed=1) for _ in range(3))
    assert_the_fast_path_is_the_definition(plain, fast, pairs, ("d0", "d13", "d90"), 90)
    score_B = third(batch_of(pairs, ("d34", f"d{LONG}")))
    assert without_gradient(third, score_B) == set()


@every_model
def test_bf16_scores_stay_close_to_fp32(name, models, pairs_for):
    queries, run = {"q": QUERY}, {"q": dict.fromkeys(DOCUMENTS, 0.0)}
    exact, rounded = (
        rerank(
            models[name],
            pairs_for(name),
            queries=queries,
            candidates=run,
            depth=100,
            batch_tokens=500,
            autocast=autocast,
        )["q"]
        for autocast in (None, torch.bfloat16)
    )
    assert (exact == rounded) == (name in NOT_ROUNDED)
    for doc_id, score in exact.items():
        num_added = 5 if name == "sump" else 1  # chunks, each with a rounding error of its own
        assert rounded[doc_id] == pytest.approx(score, abs=ROUGH.get(name, 2e-2 * num_added))


# Published for BERT-base with its pooler, which ranking does not use and we do not build:
# 109,482,240 for BERT and 769 for the head.
POOLER = 768 * 768 + 768
ONE_SCORE = 109_483_009 - POOLER
# The published RAND-L2 aggregator is a whole 2-layer BertModel beside C and SEP (2 x 768); chunk
# vectors enter it as embeddings, so its word table and its pooler are dead weight we do not build.
WORD_TABLE = 30_522 * 768
TK_LAYERS = 2 * (4 * (768 * 768 + 768) + 768 * 300 + 300 + 300 * 768 + 768 + 4 * 768)
# A random aggregator: 512 positions, 2 segments and a norm, then layers of 4 square maps, a
# feed-forward block of 3072 and 2 norms.
EMBEDDED = (512 + 2 + 2) * 768
LAYER = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
SIZES = dict.fromkeys(MODELS, ONE_SCORE) | {
    "parade-attn": ONE_SCORE + 768,  # one vector
    "parade-transformer": 148_088_065 - POOLER - WORD_TABLE - POOLER,
    "parade-transformer-l3": 148_088_065 - POOLER - WORD_TABLE - POOLER + LAYER,
    # Two random layers where no second encoder is named; C and SEP beside each. With the published
    # encoders: tests/rank_core/models/test_parade.py.
    "parade-transformer-pretrained": ONE_SCORE + EMBEDDED + 2 * LAYER + 2 * 768,
    "parade-transformer-query": ONE_SCORE + EMBEDDED + 2 * LAYER + 2 * 768,
    "parade-late-interaction": ONE_SCORE + 2 * (EMBEDDED + 2 * LAYER + 2 * 768),
    "parade-cnn": ONE_SCORE + 2 * 768 * 768 + 768,  # one filter of width 2
    "keyb-parade": 148_088_065 - POOLER - WORD_TABLE - POOLER,
    "idcm": ONE_SCORE + 3,  # the weights of the three best chunks
    "qds": ONE_SCORE + 2 * POOLER,  # two layers between [CLS] and the head
    "bi-encoder": ONE_SCORE - 769 + 1,  # the scale of a cosine instead of a head
    # Two layers with a second attention each.
    "mores": ONE_SCORE + 2 * (LAYER + 4 * (768 * 768 + 768) + 2 * 768),
    "cedr-knrm": 109_483_174 - POOLER,
    "cedr-drmm": 109_486_806 - POOLER,
    "cedr-pacrr": 109_520_001 - POOLER,
    # 32 hidden numbers of three vectors and a bias, and 32 -> 1.
    "neural-model1": ONE_SCORE - 769 + 3 * 768 * 32 + 32 + 33,
    # These have the word table instead of BERT. TK: two layers of four projections, 768 -> 300 ->
    # 768 and two norms, a mixing weight and 11 kernels; TKL also one number of a vector, three
    # saturations of two numbers and the weights of 15 windows.
    "tk": WORD_TABLE + TK_LAYERS + 1 + 11,
    "tkl": WORD_TABLE + TK_LAYERS + 1 + 11 + 768 + 9 + 15,
    # Filters of 2 and 3 tokens, a weight per vector, and 32 tokens x 49 features -> 100 -> 10 -> 1.
    "co-pacrr": WORD_TABLE + 32 * (4 + 9) + 64 + 768 + 32 * 49 * 100 + 100 + 1_010 + 10,
    # Three numbers of a vector, 4 maps of 3 x 3 x 3, a GRU of 3 over 5 numbers, and 3 -> 1.
    "deeprank": WORD_TABLE + 3 * 768 + 4 * 27 + 4 + 3 * (3 * 5 + 3 * 3 + 6) + 4,
}


def test_a_model_over_bert_base_has_the_published_number_of_parameters(backbone):
    assert set(SIZES) == set(MODELS)
    with torch.device("meta"):
        bert = AutoModel.from_config(BertConfig(), add_pooling_layer=False)
        for name, kind in MODELS.items():
            model = kind(copy.deepcopy(bert), backbone, Model(name))
            size = sum(parameter.numel() for parameter in model.parameters())
            assert size == SIZES[name], name
