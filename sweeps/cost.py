"""What a configuration reads and costs, from the real length histogram of the collection."""

import hashlib
import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rank_core.backbones import load_tokenizer
from rank_core.batches import tokenize_queries
from rank_core.chunks import document_spans
from rank_core.config import TrialConfig
from rank_core.examples import training_queries
from rank_core.inputs import Inputs
from rank_core.machine import trial_device
from rank_core.models import build_model, model_class
from rank_core.optimise import autocast_type
from rank_core.encode import Work
from rank_core.rerank import rerank
from rank_core.scorer import Scorer, evaluated_queries
from rank_core.train import num_training_steps, validation_interval

BACKWARD = 2.0  # a backward pass costs about two forward passes


@dataclass(frozen=True)
class ChunkStatistics:
    """How a configuration cuts the documents of a collection."""

    chunks_per_document: float  # mean
    max_chunks: int
    tokens_per_document: float  # mean encoder tokens of a (query, document) pair
    coverage: float  # share of the collection's tokens that some chunk shows to the encoder
    signature: str  # equal for configurations that read the same chunks of every document


def chunk_statistics(config: TrialConfig, inputs: Inputs) -> ChunkStatistics:
    """Over all documents of the collection."""
    first_only = model_class(config.model.name).first_chunk_only
    query_tokens = mean_query_tokens(inputs, config.chunking.max_query_tokens)
    chunks = tokens = covered = longest = 0
    digest = hashlib.sha256()
    for doc_id, length in zip(inputs.tokens, inputs.tokens.lengths().tolist(), strict=True):
        spans = document_spans(doc_id, length, config.chunking)
        if first_only:
            spans = spans[:1]
        digest.update(np.asarray(spans, dtype=np.int64).tobytes())
        longest = max(longest, len(spans))
        chunks += len(spans)
        end = 0
        for span in spans:
            tokens += span.end - span.start
            covered += span.end - max(span.start, end)
            end = span.end
    num_documents = max(1, len(inputs.tokens))
    return ChunkStatistics(
        chunks_per_document=chunks / num_documents,
        max_chunks=longest,
        tokens_per_document=(tokens + chunks * (query_tokens + 3)) / num_documents,
        coverage=covered / max(1, int(inputs.tokens.lengths().sum())),
        signature=digest.hexdigest(),
    )


@lru_cache(maxsize=8)
def mean_query_tokens(inputs: Inputs, limit: int) -> float:
    """Mean length of a test query after the limit."""
    queries = list(inputs.collection.splits["test"].queries.values())
    tokenizer = load_tokenizer(inputs.backbone.folder)
    return float(np.mean([len(ids) for ids in tokenize_queries(tokenizer, queries, limit)]))


@lru_cache(maxsize=8)
def _num_training_queries(inputs: Inputs, depth: int) -> int:
    """How many training queries have both a relevant document and a negative."""
    split = inputs.collection.splits["train"]
    no_tokens = np.zeros(0, np.int32)
    return len(training_queries(split, dict.fromkeys(split.queries, no_tokens), depth))


def trial_cost(config: TrialConfig, inputs: Inputs, chunks: ChunkStatistics) -> float:
    """Encoder tokens of one trial, training weighted by its backward pass."""
    evaluation = config.evaluation
    num_train = _num_training_queries(inputs, evaluation.depth)
    steps = num_training_steps(config.training, num_train)
    validations = -(-steps // validation_interval(config.training, num_train))
    pairs = steps * config.training.batch_size * 2 * (1 + BACKWARD)
    for name, times in (("dev", validations), ("test", 1)):
        candidates = inputs.collection.splits[name].candidates
        for query_id in evaluated_queries(inputs.collection, name, evaluation):
            pairs += times * min(evaluation.depth, len(candidates.get(query_id, ())))
    return pairs * chunks.tokens_per_document


def measured_speed(config: TrialConfig, inputs: Inputs, *, seconds: float = 1.0) -> float:
    """Encoder tokens per second of this process on real queries: the best of about a second."""
    device = trial_device()
    model = build_model(config, inputs.backbone, init_seed=0).to(device)
    scorer = Scorer(config, inputs, model, autocast_type(config.training.precision, device))
    split = inputs.collection.splits["test"]
    queries = scorer.tokenize(split, sorted(split.queries)[:64])
    speed, start = 0.0, time.perf_counter()
    for number, (query_id, query) in enumerate(queries.items()):
        if number >= 2 and time.perf_counter() - start > seconds:
            break
        work, before = Work(), time.perf_counter()
        rerank(
            model,
            scorer.pairs,
            queries={query_id: query},
            candidates=split.candidates,
            depth=config.evaluation.depth,
            batch_tokens=config.evaluation.batch_tokens,
            autocast=scorer.autocast,
            work=work,
        )
        speed = max(speed, work.tokens / (time.perf_counter() - before))
    return speed
