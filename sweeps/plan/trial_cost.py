"""The documents and tokens that a configuration reads, from the lengths of the collection."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.chunking.chunks import span_counts
from rank_core.chunking.encoder_input import NUM_SPECIAL
from rank_core.chunking.inputs import Inputs
from rank_core.data.store import num_ranked
from rank_core.models import model_class, trains
from rank_core.models.dense import DenseChunks, DenseDocument
from rank_core.models.ranker import Ranker
from rank_core.models.readers import pads_in_place
from rank_core.ranking.scorer import evaluated_queries
from rank_core.records import EVALUATED
from rank_core.retrieval.index import DenseIndex
from rank_core.retrieval.vectors import KEY
from rank_core.settings.config import Evaluation, TrialConfig
from rank_core.training.examples import num_training_queries
from rank_core.training.train import num_training_steps, validation_interval
from rank_core.trial.cross_validation import parts_of
from sweeps.plan.machines import BACKWARD
from sweeps.terminal.text import numbered

SAMPLE = 2000  # documents read to measure a model's own chunks
INDEXED_TOKENS = 12_000  # of documents that a plan cuts for each index: ends of sentences take long
FEWEST_INDEXED = 8  # documents of such a sample
FEW_STEPS = 10  # optimizer steps below which a trial hardly changes its model


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
    if kind.retrieves:
        return _of_index(config, inputs)
    if not trains(kind):
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


@dataclass(frozen=True)
class IndexSample:
    """The index of a dense retriever over a sample of the documents, not embedded yet."""

    index: DenseIndex
    documents: int  # of the collection
    scale: float  # the collection's tokens, as a multiple of the sample's; 1: the sample is all

    @property
    def whole(self) -> bool:
        """True if the sample is the collection."""
        return self.index.cuts.num_documents == self.documents

    @property
    def vectors(self) -> int:
        """The vectors of the whole index."""
        return max(self.documents, round(self.scale * len(self.index.cuts)))

    @property
    def num_bytes(self) -> int:
        """The size of all vectors as they are stored."""
        return self.vectors * self.index.vector_bytes

    @property
    def searched_bytes(self) -> int:
        """The memory of a search, which reads them in fp32."""
        return 4 * self.vectors * self.index.model.dimensions

    @property
    def encoder_tokens(self) -> float:
        """The encoder tokens of all chunks."""
        return self.scale * self.index.encoder_tokens


def index_of(config: TrialConfig, inputs: Inputs, device: str = "cpu") -> IndexSample:
    """The index of a dense retriever for a plan, which takes seconds: of a sample of documents, and
    its model on the CPU."""
    kind = model_class(config.model.name)
    assert issubclass(kind, DenseChunks)
    rows, lengths = index_sample(inputs), inputs.tokens.lengths()
    if len(rows) == len(lengths):
        return IndexSample(kind.index(config, inputs, device), len(lengths), 1.0)
    index = kind.index(config, inputs, device, inputs.tokens.ids_of(rows))
    return IndexSample(index, len(lengths), float(lengths.sum() / max(1, lengths[rows].sum())))


@lru_cache(maxsize=8)
def index_sample(inputs: Inputs) -> NDArray[np.int64]:
    """The places of the documents that a plan cuts for an index, spread evenly over the lengths:
    the middle ones of groups of equal size."""
    lengths = inputs.tokens.lengths()
    number = max(FEWEST_INDEXED, int(INDEXED_TOKENS * len(lengths) / max(1, lengths.sum())))
    if number >= len(lengths):
        return np.arange(len(lengths))
    middles = (np.arange(number) + 0.5) * len(lengths) / number
    return np.sort(np.argsort(lengths, kind="stable")[middles.astype(np.int64)])


def unread_tokens(cells: Iterable[tuple[str, TrialConfig, Inputs]]) -> dict[str, int]:
    """{cell: encoder tokens of its index} of the chunks that are not stored yet and that no earlier
    cell has; dense retrievers alone. `cells` are names, settings and inputs."""
    known: dict[str, NDArray[np.bytes_]] = {}  # by model
    found = {}
    for cell, config, inputs in cells:
        if model_class(config.model.name).retrieves:
            sample = index_of(config, inputs)
            model = sample.index.model.vectors_hash
            earlier = known.get(model, np.zeros(0, KEY))
            tokens, keys = sample.index.unread(earlier)
            found[cell] = round(sample.scale * tokens)
            known[model] = np.concatenate([earlier, keys])
    return found


def _of_index(config: TrialConfig, inputs: Inputs) -> ChunkStatistics:
    """The statistics of the chunks of an index."""
    sample, kind = index_of(config, inputs), model_class(config.model.name)
    assert issubclass(kind, DenseChunks)
    cuts, lengths = sample.index.cuts, inputs.tokens.lengths()
    chunks, longest = np.diff(cuts.offsets), int(lengths.max(initial=0))
    read = float(lengths.sum())
    if kind is DenseDocument:
        read = min(read, sample.scale * float(np.asarray(cuts.tokens).sum()))
    digest = hashlib.sha256(b"".join(map(bytes, (cuts.starts, cuts.ends, cuts.titles))))
    most = int(chunks.max(initial=0))
    # Equal chunks of a sample are equal chunks of all where every document is one chunk.
    if not sample.whole and (kind is DenseDocument or longest > config.chunking.window):
        digest.update(repr(kind.cutting(config, sample.index.model.max_window)).encode())
        read_in_sample = max(1, int(lengths[index_sample(inputs)].sum()))
        most = 1 if kind is DenseDocument else -(-longest * len(cuts) // read_in_sample)
    return ChunkStatistics(
        chunks_per_document=sample.vectors / sample.documents,
        max_chunks=most,
        tokens_per_document=sample.encoder_tokens / sample.documents,
        coverage=read / max(1.0, float(lengths.sum())),
        signature=digest.hexdigest(),
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
    # Equal lengths have equal windows: millions of documents are a few thousand lengths.
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


def cut_queries(inputs: Inputs, limit: int) -> tuple[int, int]:
    """The number of queries, of all splits, with more than `limit` tokens, and of all queries."""
    lengths = [inputs.query_tokens(split).lengths() for split in inputs.collection.splits]
    return sum(int((own > limit).sum()) for own in lengths), sum(map(len, lengths))


@lru_cache(maxsize=64)
def _num_candidates(inputs: Inputs, split: str, evaluation: Evaluation) -> int:
    """The number of candidates of a split's evaluated queries, to the depth of the evaluation."""
    candidates = inputs.collection.splits[split].candidates
    queries = evaluated_queries(inputs.collection, split, evaluation)
    return sum(min(evaluation.depth, num_ranked(candidates, query_id)) for query_id in queries)


class Tokens(NamedTuple):
    """The encoder tokens that all models of a trial read (one, or one for each fold)."""

    trained: float
    scored: float  # in validations and for test
    tested: float = 0.0  # of these, for test: after the last step

    @property
    def cost(self) -> float:
        """All of them, those of training times 3."""
        return self.trained * (1 + BACKWARD) + self.scored


def planned_tokens(config: TrialConfig, inputs: Inputs, chunks: ChunkStatistics) -> Tokens:
    """The tokens, from the settings, the candidate lists and the mean document."""
    if model_class(config.model.name).retrieves:
        return Tokens(0.0, chunks.tokens_per_document * len(inputs.tokens))
    groups = documents = tested = 0
    for part in parts_of(config, inputs):
        dev, test = (
            _num_candidates(part, name, config.evaluation) if name in part.collection.splits else 0
            for name in EVALUATED
        )
        own = num_pairs(config, num_training_queries(part, config), dev, test)
        groups, documents, tested = groups + own[0], documents + own[1], tested + test
    read = config.training.share_read(chunks.chunks_per_document)
    trained = groups * (1 + config.training.negatives) * read
    return Tokens(*(number * chunks.tokens_per_document for number in (trained, documents, tested)))


def trial_cost(config: TrialConfig, inputs: Inputs, chunks: ChunkStatistics) -> float:
    """The encoder tokens of a trial over all its folds, those of training times 3."""
    return planned_tokens(config, inputs, chunks).cost


class Steps(NamedTuple):
    """The optimizer steps of a trial, of the fold with the fewest, and what they come from."""

    number: int
    how: str  # `30 queries, batch 16, 1 epoch`
    remedy: str  # for more of them; empty from `FEW_STEPS` on

    @property
    def text(self) -> str:
        """`1 step per trial (30 queries, batch 16, 1 epoch)`."""
        return f"{numbered(self.number, 'step')} per trial ({self.how})"


def planned_steps(config: TrialConfig, inputs: Inputs) -> Steps | None:
    """The steps of a trial; None without training."""
    training = config.training
    if not model_class(config.model.name).trains:
        return None
    queries = min(num_training_queries(part, config) for part in parts_of(config, inputs))
    steps = num_training_steps(training, queries)
    if not steps:
        return None
    epochs = numbered(training.num_epochs, "epoch")
    how = f"{queries:,} queries, batch {training.batch_size}, {epochs}"
    remedy = "raise training.num_epochs or lower training.batch_size"
    if training.max_steps and num_training_steps(replace(training, max_steps=0), queries) > steps:
        how, remedy = f"training.max_steps={steps}", "raise training.max_steps"
    return Steps(steps, how, remedy if steps < FEW_STEPS else "")


def num_pairs(config: TrialConfig, num_train: int, dev: int, test: int) -> tuple[int, int]:
    """The training groups and the scored documents of a model, from the number of its training
    queries and of the candidates of dev and test."""
    steps = num_training_steps(config.training, num_train)
    # A model that is not trained is validated once, too.
    validations = max(1, -(-steps // validation_interval(config.training, num_train)))
    last = not model_class(config.model.name).by_score_alone  # dev is scored once more
    return steps * config.training.batch_size, (validations + last) * dev + test
