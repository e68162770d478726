"""`chunking.json`: the chunk size for an index, as a sweep over chunk sizes has measured it."""

from collections.abc import Mapping
from dataclasses import dataclass

FILE = "chunking.json"
FORMAT = 2


@dataclass(frozen=True)
class ChunkingModel:
    """The embedding model that was measured; its name is that of its folder or its last part."""

    name: str
    content_hash: str
    tokenizer_hash: str


@dataclass(frozen=True)
class MeasuredOn:
    """A collection by name and content."""

    name: str
    content_hash: str


@dataclass(frozen=True)
class Gain:
    """The difference of means over another size, its interval, and its corrected p-value."""

    gain: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Measured:
    """The mean on the queries of a split, the gains over other sizes by label, and the costs.
    `clusters` is 0 where queries count one by one."""

    collection: MeasuredOn
    measure: str
    split: str
    chosen_on: str  # the split that chose the size
    precision: str  # in which the vectors were computed
    queries: int
    clusters: int
    mean: float
    level: float  # of the intervals
    over: Mapping[str, Gain]
    vectors_per_document: float
    bytes: int  # of the index, as its vectors are stored


@dataclass(frozen=True)
class WithFirstStage:
    """The scores of an index mixed with those of the first stage: alpha x index + (1 - alpha) x
    first stage, min-max normalised within a query; without alpha reciprocal ranks. The mean of
    `Measured` is that of the index alone."""

    name: str
    alpha: float | None
    mean: float


@dataclass(frozen=True)
class ChunkingFile:
    """The content of the file. Characters are the mean over the chunks that were measured."""

    format: int
    model: ChunkingModel
    chunk_tokens: int
    overlap_tokens: int
    chunk_characters: int
    overlap_characters: int
    ends_at_sentences: bool
    title_before_chunk: bool
    largest_window: int  # tokens of a document that the model reads
    dimensions: int  # the first of a vector, which are stored
    stored: str  # fp32, int8 or binary; the query stays in fp32
    similarity: str
    query_prompt: str
    document_prompt: str
    with_first_stage: WithFirstStage | None  # where the choice is mixed with it
    measured: Measured
