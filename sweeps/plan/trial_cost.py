"""What a configuration reads and costs, from the real length histogram of the collection."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rank_core.chunking.batches import NUM_SPECIAL, tokenize_queries
from rank_core.chunking.chunks import document_spans
from rank_core.chunking.inputs import Inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranker import Ranker
from rank_core.models.readers import pads_in_place
from rank_core.ranking.final_runs import ranks_by_score_alone
from rank_core.ranking.scorer import evaluated_queries
from rank_core.settings.config import Training, TrialConfig
from rank_core.training.examples import training_queries
from rank_core.training.train import num_training_steps, validation_interval
from rank_core.trial.cross_validation import parts_of

SAMPLE = 2000  # documents that tell how a model cuts them in its own way
BACKWARD = 2.0  # a backward pass costs about two forward passes


@dataclass(frozen=True)
class ChunkStatistics:
    """How a configuration cuts the documents of a collection."""

    chunks_per_document: float  # mean
    max_chunks: int
    tokens_per_document: float  # mean encoder tokens of a (query, document) pair
    coverage: float  # share of the collection's tokens that some chunk shows to the encoder
    signature: str  # equal for configurations whose windows cut every document alike


def chunk_statistics(config: TrialConfig, inputs: Inputs) -> ChunkStatistics:
    """Over all documents of the collection, or a sample where a model cuts in its own way."""
    kind = model_class(config.model.name)
    if issubclass(kind, ListRanker):
        return ChunkStatistics(0.0, 0, 0.0, 1.0, config.model.name)
    in_place = pads_in_place(config.model)
    windows = kind.reads_windows() and not in_place
    cuts = _windows(config, inputs) if windows else _own_cuts(kind, config, inputs)
    chunks = tokens = covered = length = longest = num_documents = 0
    digest = hashlib.sha256()
    for document in cuts:
        digest.update(np.asarray(document.lengths, dtype=np.int64).tobytes())
        longest = max(longest, len(document.lengths))
        chunks += len(document.lengths)
        tokens += sum(document.lengths)
        covered += document.covered
        length += document.length
        num_documents += 1
    most = config.chunking.max_query_tokens
    own = NUM_SPECIAL + (most if in_place else mean_query_tokens(inputs, most))
    return ChunkStatistics(
        chunks_per_document=chunks / max(1, num_documents),
        max_chunks=longest,
        tokens_per_document=(tokens + chunks * own) / max(1, num_documents),
        coverage=covered / max(1, length),
        signature=digest.hexdigest()
        if windows
        else f"{config.model.name} {replace(config.chunking, max_query_tokens=1)}",
    )


class _Cut(NamedTuple):
    """How one document is read."""

    lengths: list[int]  # tokens of its chunks
    covered: int  # tokens that some chunk shows
    length: int


def _windows(config: TrialConfig, inputs: Inputs) -> Iterator[_Cut]:
    first_only = model_class(config.model.name).first_chunk_only
    for doc_id, length in zip(inputs.tokens, inputs.tokens.lengths().tolist(), strict=True):
        spans = document_spans(doc_id, length, config.chunking)
        if first_only:
            spans = spans[:1]
        end = covered = 0
        for span in spans:
            covered += span.end - max(span.start, end)
            end = span.end
        yield _Cut([span.end - span.start for span in spans], covered, length)


def _own_cuts(kind: type[Ranker], config: TrialConfig, inputs: Inputs) -> Iterator[_Cut]:
    reader = kind.reader(config, inputs.backbone, inputs.tokens)
    query = np.arange(8, dtype=np.int32)
    step = -(-len(inputs.tokens) // SAMPLE)  # the first ones may all be of one kind
    for doc_id in itertools.islice(inputs.tokens, 0, None, step):
        lengths = [len(chunk.text) for chunk in reader.chunks(query, doc_id)]
        length = len(inputs.tokens[doc_id])
        yield _Cut(lengths, min(sum(lengths), length), length)


@lru_cache(maxsize=8)
def mean_query_tokens(inputs: Inputs, limit: int) -> float:
    """Mean length of a test query after the limit."""
    queries = list(inputs.collection.splits["test"].queries.values())
    tokenizer = load_tokenizer(inputs.backbone.folder)
    return float(np.mean([len(ids) for ids in tokenize_queries(tokenizer, queries, limit)]))


@lru_cache(maxsize=64)
def _num_training_queries(inputs: Inputs, depth: int, sampling: Training) -> int:
    """How many training queries have both a relevant document and a negative."""
    split = inputs.collection.splits["train"]
    no_tokens = np.zeros(0, np.int32)
    return len(training_queries(split, dict.fromkeys(split.queries, no_tokens), depth, sampling))


@dataclass(frozen=True)
class Reads:
    """What the models of one trial read, over all its folds."""

    groups: int  # of training: a relevant document and its negatives
    documents: int  # that are scored, in validations and for test
    evaluations: int  # runs that are measured
    last_documents: int = 0  # of `documents`, those that are scored once at the end: for test


def trial_reads(config: TrialConfig, inputs: Inputs) -> Reads:
    """Counted from the settings and the candidate lists; nothing is read for it."""
    parts = [_reads_of_model(config, part) for part in parts_of(config, inputs)]
    return Reads(
        sum(part.groups for part in parts),
        sum(part.documents for part in parts),
        sum(part.evaluations for part in parts),
        sum(part.last_documents for part in parts),
    )


def trial_cost(config: TrialConfig, inputs: Inputs, chunks: ChunkStatistics) -> float:
    """Encoder tokens of one trial, over all its folds, training weighted by its backward pass."""
    reads = trial_reads(config, inputs)
    documents = reads.groups * (1 + config.training.negatives)
    read = config.training.share_read(chunks.chunks_per_document)
    pairs = documents * read * (1 + BACKWARD) + reads.documents
    return pairs * chunks.tokens_per_document


def _reads_of_model(config: TrialConfig, inputs: Inputs) -> Reads:
    evaluation = config.evaluation
    num_train = _num_training_queries(inputs, evaluation.depth, config.training.sampling)
    steps = num_training_steps(config.training, num_train)
    validations = -(-steps // validation_interval(config.training, num_train))
    last = not ranks_by_score_alone(model_class(config.model.name))  # which looks at dev once more
    number = {}
    for name in ("dev", "test"):
        candidates = inputs.collection.splits[name].candidates
        queries = evaluated_queries(inputs.collection, name, evaluation)
        number[name] = sum(min(evaluation.depth, len(candidates.get(one, ()))) for one in queries)
    times = validations + last
    documents = times * number["dev"] + number["test"]
    return Reads(steps * config.training.batch_size, documents, times + 1, number["test"])
