"""Contract tests of a model: each of `MODELS`, or a user's with `--model module:Class`."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from rank_core.chunking.batches import PairEncoder, tokenize_queries
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models import model_class, trains
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.rerank import rerank
from rank_core.settings.config import Chunking, Training
from rank_core.testing.author import num_parameters, over_bert_base
from rank_core.testing.laws import (
    CHUNKING,
    DOCUMENTS,
    QUERY,
    SHORT,
    Tokens,
    assert_each_document_is_scored_alone,
    assert_the_fast_path_is_the_definition,
    batch_of,
    chunks_of,
    config_of,
    scores,
    tokens,
    without_gradient,
)
from rank_core.training.optimizer import build_optimizer


@dataclass(frozen=True)
class KnownExceptions:
    """Expectations that differ between models."""

    spread: float = 0.05  # minimum standard deviation of the scores of DOCUMENTS
    rounding: float = 2e-2  # maximum error of a score in bf16
    rounds: bool | None = True  # False: computed entirely in fp32; None: not known
    draws: bool | None = True  # False: initial weights do not depend on the seed; None: not known
    judge: str = "maxp"  # the model whose chunk scores decide which chunk is best


@dataclass(frozen=True)
class Subject:
    """A model under test in evaluation mode."""

    name: str
    kind: type[Ranker]
    model: Ranker
    backbone: Backbone
    chunking: Chunking
    documents: dict[str, Tokens]

    def pairs(self, chunking: Chunking | None = None) -> PairEncoder:
        """The model's pair encoder over random documents."""
        config = config_of(self.name, self.backbone, chunking or self.chunking)
        return self.kind.reader(config, self.backbone, self.documents)  # type: ignore[arg-type]

    def scores(self, query: Tokens = QUERY) -> Tensor:
        """score_B of all documents."""
        return scores(self.model, self.pairs(), list(self.documents), query)


def made(
    name: str,
    backbone: Backbone,
    chunking: Chunking = CHUNKING,
    documents: dict[str, Tokens] = DOCUMENTS,
) -> Subject:
    """The model under test; with MaxP's head if it equals FirstP on one chunk."""
    config = config_of(name, backbone, chunking)
    kind = model_class(config.model.name)
    assert trains(kind)
    model = build_model(config, backbone, init_seed=1).eval()
    if kind.one_chunk_is_firstp:
        head = build_model(config_of("maxp", backbone), backbone, init_seed=1).head
        model.head.load_state_dict(head.state_dict())
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # with the initial 0.02 it hardly attends to other chunks
        for parameter in getattr(model, "aggregator", torch.nn.Module()).parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return Subject(name, kind, model, backbone, chunking, documents)


@pytest.fixture(scope="module")
def subject(name: str, backbone: Backbone) -> Subject:
    """The model given by `--model`."""
    return made(name, backbone)


@pytest.fixture(scope="module")
def judge_of(backbone: Backbone) -> Callable[[str], Subject]:
    """Another model over the same backbone."""
    return lambda name: made(name, backbone)


@pytest.fixture
def known() -> KnownExceptions:
    """Tolerances for a user's model, whose scores may be close and whose weights may be large."""
    return KnownExceptions(spread=1e-3, rounding=0.1, rounds=None, draws=None)


def test_a_score_does_not_depend_on_the_neighbours_in_the_batch(
    subject: Subject, known: KnownExceptions
) -> None:
    """Neither padding nor the order of the documents affects a score: the masks of a batch say what
    is padding."""
    assert_each_document_is_scored_alone(
        subject.model, subject.pairs(), list(subject.documents), spread=known.spread
    )


def test_limits_beyond_the_end_of_a_document_change_nothing(subject: Subject) -> None:
    """A limit has an effect only where it cuts."""
    # FirstP rejects max_chunks, so only the token limit moves there.
    many = 0 if subject.kind.first_chunk_only else 50
    cut = subject.chunking
    wide = replace(cut, max_document_tokens=5000, max_chunks=many)
    documents = subject.documents.items()
    short_ids = [doc_id for doc_id, text in documents if len(text) <= cut.max_document_tokens]
    assert torch.equal(
        scores(subject.model, subject.pairs(), short_ids),
        scores(subject.model, subject.pairs(wide), short_ids),
    )


def test_it_is_firstp_on_documents_of_one_chunk(
    subject: Subject, judge_of: Callable[[str], Subject]
) -> None:
    """Holds unless the class sets `one_chunk_is_firstp = False`."""
    if not subject.kind.one_chunk_is_firstp:
        pytest.skip("one_chunk_is_firstp is False")
    doc_ids, firstp = ["d1", f"d{SHORT}", "d20"], judge_of("firstp")
    expected = scores(firstp.model, firstp.pairs(), doc_ids)
    assert_close(scores(subject.model, subject.pairs(), doc_ids), expected, atol=1e-5, rtol=0)


def test_changing_any_one_chunk_changes_the_score(
    subject: Subject, known: KnownExceptions, judge_of: Callable[[str], Subject]
) -> None:
    """A model over several windows reads all of them."""
    if subject.kind.first_chunk_only or not subject.kind.reads_windows():
        pytest.skip("the model reads the first window only, or no windows")
    model, pairs, judge = subject.model, subject.pairs(), judge_of(known.judge)
    candidates = [tokens(100 + i, 20) for i in range(60)]
    documents = [chunks_of(text) for text in candidates]
    by_score = scores(judge.model, subject.pairs(), documents).argsort()
    # The replacement is the best chunk, so that it changes even a maximum.
    *texts, best = (candidates[i] for i in [*by_score[:5].tolist(), int(by_score[-1])])
    changed = [texts, *([*texts[:j], best, *texts[j + 1 :]] for j in range(len(texts)))]
    before, *after = scores(model, pairs, [chunks_of(*texts) for texts in changed])
    assert len(after) == 5
    for j, score in enumerate(after):
        assert (score - before).abs() > 1e-4, f"chunk {j} is not read"


def test_a_gradient_reaches_every_parameter(subject: Subject) -> None:
    """A parameter without a gradient is unused."""
    model = copy.deepcopy(subject.model).train()
    longest = sorted(subject.documents, key=lambda doc_id: len(subject.documents[doc_id]))[-2:]
    batch = batch_of(subject.pairs(), longest)
    assert without_gradient(model, model(batch)) == set()


def test_every_parameter_has_exactly_one_learning_rate(subject: Subject) -> None:
    """The rate of the backbone, the head, the second encoder, or the aggregator; `rates` names
    those that the model reads."""
    training = Training(
        backbone_learning_rate=1e-5,
        head_learning_rate=2e-4,
        aggregator_learning_rate=3e-3,
        interaction_learning_rate=4e-2,
    )
    own = {"encoder": 1e-5, "head": 2e-4, "interaction": 4e-2}
    optimizer = build_optimizer(subject.model, training)
    rates = [(id(p), group["lr"]) for group in optimizer.param_groups for p in group["params"]]
    expected = {
        id(parameter): own.get(part.partition(".")[0], 3e-3)
        for part, parameter in subject.model.trainable()
    }
    assert len(rates) == len(expected)
    assert dict(rates) == expected
    parts = {part for part, own in subject.model.learning_rate_groups().items() if own}
    read = subject.kind.rates_read(config_of(subject.name, subject.backbone).model)
    assert parts <= {*read}, "`rates` lacks a part with parameters"


def test_it_has_the_number_of_parameters_that_it_states(subject: Subject) -> None:
    """`num_parameters` is the published number over BERT-base without its pooler."""
    if subject.kind.num_parameters is None:
        pytest.skip("num_parameters is not stated")
    model = over_bert_base(subject.name.partition(" ")[0], subject.backbone)
    assert num_parameters(model) == subject.kind.num_parameters


def test_inputs_at_the_edge_get_a_finite_score(subject: Subject) -> None:
    """Queries and documents without tokens and of one token, and the longest ones."""
    tokenizer = load_tokenizer(subject.backbone.folder)
    [query] = tokenize_queries(tokenizer, ["amber birch " * 100], CHUNKING.max_query_tokens)
    assert len(query) == CHUNKING.max_query_tokens
    for text in (query, QUERY[:1], QUERY[:0]):
        assert subject.scores(text).isfinite().all()


def test_saved_weights_give_the_same_scores(
    subject: Subject, known: KnownExceptions, tmp_path: Path
) -> None:
    """The state dict has all that was learned."""
    torch.save(subject.model.state_dict(), tmp_path / "weights.pt")
    config = config_of(subject.name, subject.backbone, subject.chunking)
    other = replace(subject, model=build_model(config, subject.backbone, init_seed=2).eval())
    expected = subject.scores()
    assert known.draws is None or torch.equal(other.scores(), expected) == (not known.draws)
    other.model.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(other.scores(), expected)


def test_the_fast_path_gives_the_scores_and_gradients_of_the_definition(subject: Subject) -> None:
    """Aggregating chunks that were encoded in other batches equals `forward`."""
    plain, fast = (copy.deepcopy(subject.model).train() for _ in range(2))
    for module in (*plain.modules(), *fast.modules()):
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert_the_fast_path_is_the_definition(
        plain, fast, subject.pairs(), subject.documents, batch_tokens=90
    )


def test_bf16_scores_stay_close_to_fp32(subject: Subject, known: KnownExceptions) -> None:
    """Rounding changes a score only slightly."""
    queries, run = {"q": QUERY}, {"q": dict.fromkeys(subject.documents, 0.0)}
    exact, rounded = (
        rerank(
            subject.model,
            subject.pairs(),
            queries=queries,
            candidates=run,
            depth=100,
            batch_tokens=500,
            autocast=autocast,
        )["q"]
        for autocast in (None, torch.bfloat16)
    )
    assert known.rounds is None or (exact == rounded) == (not known.rounds)
    # bf16 has 8 bits: similarities that are scaled by 100 are rounded by more than small scores.
    most = max(known.rounding, 2**-8 * max(map(abs, exact.values())))
    for doc_id, score in exact.items():
        assert rounded[doc_id] == pytest.approx(score, abs=most)
