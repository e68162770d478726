"""The documents and tokens that a configuration reads, from the lengths of the collection."""

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.chunking.batches import NUM_SPECIAL
from rank_core.chunking.chunks import span_counts
from rank_core.chunking.inputs import Inputs
from rank_core.data.disk.run_store import num_ranked
from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranker import Ranker
from rank_core.models.readers import pads_in_place
from rank_core.ranking.final_runs import ranks_by_score_alone
from rank_core.ranking.scorer import evaluated_queries
from rank_core.settings.config import Evaluation, TrialConfig
from rank_core.training.examples import training_queries
from rank_core.training.train import num_training_steps, validation_interval
from rank_core.trial.cross_validation import parts_of
from sweeps.plan.terminal import numbered

SAMPLE = 2000  # documents read to measure a model's own chunks
BACKWARD = 2.0  # a backward pass costs about two forward passes
FEW_STEPS = 10
"""Optimizer steps below which a trial hardly changes its model."""
MORE_STEPS = "raise training.num_epochs or lower training.batch_size"


@dataclass(frozen=True)
class ChunkStatistics:
    """The chunks that a configuration makes of a collection's documents."""

    chunks_per_document: float  # mean
    max_chunks: int
    tokens_per_document: float  # mean encoder tokens of a (query, document) pair
    coverage: float  # share of the collection's tokens in some chunk
    signature: str  # equal for configurations with the same chunks of every document


def chunk_statistics(config: TrialConfig, inputs: Inputs) -> ChunkStatistics:
    """The statistics over all documents, or over a sample for a model with its own chunks."""
    kind = model_class(config.model.name)
    if issubclass(kind, ListRanker):
        return ChunkStatistics(0.0, 0, 0.0, 1.0, config.model.name)
    in_place = pads_in_place(config.model)
    windows = kind.reads_windows() and not in_place
    cuts = _windows(kind, config, inputs) if windows else _own_cuts(kind, config, inputs)
    num_documents = max(1, int(cuts.documents.sum()))
    chunks, tokens = int(cuts.documents @ cuts.chunks), int(cuts.documents @ cuts.tokens)
    most = config.chunking.max_query_tokens
    own = NUM_SPECIAL + (most if in_place else mean_query_tokens(inputs, most))
    return ChunkStatistics(
        chunks_per_document=chunks / num_documents,
        max_chunks=int(cuts.chunks.max(initial=0)),
        tokens_per_document=(tokens + chunks * own) / num_documents,
        coverage=float(cuts.documents @ cuts.covered / max(1, cuts.documents @ cuts.lengths)),
        signature=hashlib.sha256(cuts.signature).hexdigest()
        if windows
        else f"{config.model.name} {replace(config.chunking, max_query_tokens=1)}",
    )


class _Cuts(NamedTuple):
    """The chunks of documents, an entry for each group of documents with the same chunks."""

    documents: NDArray[np.int64]  # of the group
    lengths: NDArray[np.int64]  # of one of them
    chunks: NDArray[np.int64]
    tokens: NDArray[np.int64]  # of all its chunks
    covered: NDArray[Any]  # tokens in some chunk
    signature: bytes = b""


def _windows(kind: type[Ranker], config: TrialConfig, inputs: Inputs) -> _Cuts:
    lengths, documents = _length_histogram(inputs)
    chunking = replace(config.chunking, max_chunks=1) if kind.first_chunk_only else config.chunking
    return _Cuts(documents, lengths, *span_counts(lengths, chunking))


@lru_cache(maxsize=8)
def _length_histogram(inputs: Inputs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lengths of documents in tokens, and the number of documents of each."""
    documents = np.bincount(inputs.tokens.lengths())
    lengths = np.flatnonzero(documents)
    return lengths, documents[lengths]


def _own_cuts(kind: type[Ranker], config: TrialConfig, inputs: Inputs) -> _Cuts:
    reader = kind.reader(config, inputs.backbone, inputs.tokens)
    query, cuts = np.arange(8, dtype=np.int32), list[tuple[int, ...]]()
    step = -(-len(inputs.tokens) // SAMPLE)  # the first documents may all be alike
    for doc_id in inputs.tokens.ids_of(np.arange(0, len(inputs.tokens), max(1, step))):
        sizes = [len(chunk.text) for chunk in reader.chunks(query, doc_id)]
        length = len(inputs.tokens[doc_id])
        cuts.append((1, length, len(sizes), sum(sizes), min(sum(sizes), length)))
    return _Cuts(*np.array(cuts, dtype=np.int64).reshape(-1, 5).T)


@lru_cache(maxsize=8)
def mean_query_tokens(inputs: Inputs, limit: int) -> float:
    """The mean length of a test query, truncated at `limit`."""
    return float(np.minimum(inputs.query_tokens("test").lengths(), limit).mean())


@lru_cache(maxsize=64)
def _num_candidates(inputs: Inputs, split: str, evaluation: Evaluation) -> int:
    """The number of candidates of a split's evaluated queries, to the depth of the evaluation."""
    candidates = inputs.collection.splits[split].candidates
    queries = evaluated_queries(inputs.collection, split, evaluation)
    return sum(min(evaluation.depth, num_ranked(candidates, query_id)) for query_id in queries)


@dataclass(frozen=True)
class Reads:
    """The reads of all models of a trial (one, or one for each fold)."""

    groups: int  # of training: a relevant document and its negatives
    documents: int  # scored in validations and for test
    evaluations: int  # runs that are measured
    last_documents: int = 0  # of `documents`, those of test


def trial_reads(config: TrialConfig, inputs: Inputs) -> Reads:
    """The reads counted from the settings and the candidate lists."""
    parts = [_reads_of_model(config, part) for part in parts_of(config, inputs)]
    return Reads(
        sum(part.groups for part in parts),
        sum(part.documents for part in parts),
        sum(part.evaluations for part in parts),
        sum(part.last_documents for part in parts),
    )


def trial_cost(config: TrialConfig, inputs: Inputs, chunks: ChunkStatistics) -> float:
    """The encoder tokens of a trial over all its folds, those of training times 3."""
    reads = trial_reads(config, inputs)
    documents = reads.groups * (1 + config.training.negatives)
    read = config.training.share_read(chunks.chunks_per_document)
    pairs = documents * read * (1 + BACKWARD) + reads.documents
    return pairs * chunks.tokens_per_document


def few_steps(config: TrialConfig, inputs: Inputs) -> str:
    """`1 step per trial (30 queries, batch 16, 1 epoch)` where there are fewer than `FEW_STEPS`;
    "" otherwise, without training, or where `training.max_steps` asks for them."""
    training = config.training
    if issubclass(model_class(config.model.name), ListRanker) or training.max_steps:
        return ""
    queries = min(len(training_queries(part, config)) for part in parts_of(config, inputs))
    steps = num_training_steps(training, queries)
    epochs = numbered(training.num_epochs, "epoch")
    how = f"{queries:,} queries, batch {training.batch_size}, {epochs}"
    return f"{numbered(steps, 'step')} per trial ({how})" if 0 < steps < FEW_STEPS else ""


def _reads_of_model(config: TrialConfig, inputs: Inputs) -> Reads:
    evaluation = config.evaluation
    num_train = len(training_queries(inputs, config))
    steps = num_training_steps(config.training, num_train)
    validations = -(-steps // validation_interval(config.training, num_train))
    last = not ranks_by_score_alone(model_class(config.model.name))  # dev is scored once more
    number = {name: _num_candidates(inputs, name, evaluation) for name in ("dev", "test")}
    times = validations + last
    documents = times * number["dev"] + number["test"]
    return Reads(steps * config.training.batch_size, documents, times + 1, number["test"])
