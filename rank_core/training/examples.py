"""Training examples: a relevant document and hard negatives per query, drawn again in each epoch,
and the chunks that are read of them: all, a sample, or passages one by one.

With `training.unit=passage` every passage inherits the label of its document and is scored alone
(Dai & Callan 2019; Zhang, Yates & Lin 2021): the first one always, the others by sampling. Passage
i of the relevant document is paired with passage i of the negatives, up to the end of the shortest.
The aggregation of passages matters only in scoring."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.cache import cached_directory
from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.inputs import Inputs, content_hashes
from rank_core.chunking.token_store import TokenStore
from rank_core.data.named_files import named_run
from rank_core.data.store import MappedTable, Rows, RunStore, TableWriter
from rank_core.data.transforms.expression import fields_of
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput
from rank_core.progress import reported
from rank_core.ranking.encode import Document
from rank_core.records import Collection, Split
from rank_core.seeding import generator
from rank_core.settings.config import Training, TrialConfig

ROWS_VERSION = 2  # incremented when the same settings give other rows on purpose


class DocIds(Sequence[str]):
    """The doc_ids of rows of a token store, looked up on access."""

    def __init__(self, tokens: TokenStore, rows: NDArray[np.integer[Any]]) -> None:
        self._tokens, self._rows = tokens, rows

    def __getitem__(self, index: Any) -> Any:
        names = self._tokens.ids_of(np.atleast_1d(self._rows[index]))
        return tuple(names) if isinstance(index, slice) else names[0]

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class TrainingQuery:
    """A query with its relevant documents and the candidates that are not relevant."""

    query_id: str
    query: NDArray[np.int32]
    positives: Sequence[str]
    grades: Sequence[int]  # of the positives
    negatives: tuple[Sequence[str], ...]  # by epoch; later epochs use the last
    teacher: Mapping[str, float] | None = None  # {doc_id: score}


@dataclass(frozen=True)
class TrainingGroup:
    """A query with one relevant document and hard negatives."""

    query_id: str
    query: NDArray[np.int32]
    positive: str
    grade: int  # of the relevant document
    negatives: tuple[str, ...]
    passes: int  # over the queries before this one; with the ids they seed draws
    teacher: tuple[float, ...] | None  # scores of `documents`

    @property
    def documents(self) -> tuple[str, ...]:
        """The documents, the relevant one first."""
        return (self.positive, *self.negatives)


class TrainingQueries(Sequence[TrainingQuery]):
    """The queries in a folder of `write_training_rows`, read on access. All processes of a machine
    share the pages, and opening takes constant time."""

    def __init__(
        self, folder: Path, tokens: TokenStore, queries: Mapping[str, NDArray[np.int32]], limit: int
    ) -> None:
        self._tokens, self._queries, self._limit = tokens, queries, limit
        self._table = table = MappedTable(folder)
        self._positives, self._grades = table.column("positives"), table.column("grades")
        lists = sorted(folder.glob("negatives*.offsets"))
        self._negatives = [table.column(path.stem) for path in lists]
        self._scored: tuple[Rows, Rows] | None = None
        if (folder / "scores.offsets").exists():
            self._scored = table.column("scored"), table.column("scores")

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        query_id, teacher = self._table.id_of(i), None
        if self._scored is not None:
            names, scores = DocIds(self._tokens, self._scored[0][i]), self._scored[1][i]
            teacher = dict(zip(names, scores.tolist(), strict=True))
        return TrainingQuery(
            query_id,
            self._queries[query_id][: self._limit],
            DocIds(self._tokens, self._positives[i]),
            self._grades[i].tolist(),
            tuple(DocIds(self._tokens, rows[i]) for rows in self._negatives),
            teacher,
        )


def training_queries(inputs: Inputs, config: TrialConfig) -> Sequence[TrainingQuery]:
    """The training queries of a trial, by id; none where nothing is trained."""
    if not config.training.num_epochs:
        return ()
    # Queries are cut on access, so that trials with other lengths share the rows.
    limit = config.chunking.max_query_tokens
    folder = _rows_folder(inputs, config)
    return TrainingQueries(folder, inputs.tokens, inputs.query_tokens("train"), limit)


def num_training_queries(inputs: Inputs, config: TrialConfig) -> int:
    """The number of training queries of a trial."""
    return _num_rows(_rows_folder(inputs, config)) if config.training.num_epochs else 0


@lru_cache(maxsize=256)
def _num_rows(folder: Path) -> int:
    return len(MappedTable(folder))  # whose name stands for its content


def _rows_folder(inputs: Inputs, config: TrialConfig) -> Path:
    """The rows of the training queries, built once per machine for all trials with the same
    collection and sampling settings."""
    collection, training = inputs.collection, config.training
    depth = training.depth or config.evaluation.depth
    hashes = content_hashes(config)
    files = [hashes.get(f"training.{name}") for name in ("negatives_from", "teacher")]
    names: list[Any] = [training.labels, depth, training.negatives_below, *files]
    if training.filters_negatives:
        names += [training.negatives_share, training.negatives_margin]
    text = json.dumps([ROWS_VERSION, collection.content_hash, *names], sort_keys=True)
    return cached_directory(
        "training",
        hashlib.sha256(text.encode()).hexdigest()[:16],
        lambda folder: write_training_rows(
            folder, collection, inputs.tokens, depth, training, fields_of(config.collection)
        ),
    )


def write_training_rows(
    folder: Path,
    collection: Collection,
    tokens: TokenStore,
    depth: int,
    training: Training,
    fields: Fields,
) -> None:
    """Writes the queries that have a relevant document and, for every epoch, a candidate that is
    not relevant, as row numbers of the token store.

    Relevant are documents judged relevant, or with `training.labels=first-stage` the top candidate,
    whatever its judgment. With a teacher, only documents that it has scored are used, and with a
    filter no candidate that it scores above the limit. `fields` are the collection's names of
    fields, which the files of settings may have too. Raises `BadInput` if no query remains.
    """
    split = collection.splits["train"]
    lists = [dict(named_run(name, fields)) for name in training.negatives_from] or [
        split.candidates
    ]
    teacher = dict(named_run(training.teacher, fields)) if training.teacher else None
    names = [f"negatives{number:03}" for number in range(len(lists))]
    row_types: dict[str, DTypeLike] = dict.fromkeys(["positives", "grades", *names], np.int32)
    if teacher is not None:
        row_types |= {"scored": np.int32, "scores": np.float64}
    with TableWriter(folder, **row_types) as table:
        for query_id in reported(sorted(split.queries), "training queries"):
            known = None
            if teacher is not None:
                known = _values_of(tokens, teacher.get(query_id, {}), query_id)
            grades = _grades(split, query_id, training.labels)
            positive = {doc_id: grade for doc_id, grade in grades.items() if grade > 0}
            relevant = _values_of(tokens, positive, query_id)
            row: dict[str, NDArray[Any]] = {}
            row["positives"], row["grades"] = _known(relevant, known)
            ranked: NDArray[np.integer[Any]]
            for name, run in zip(names, lists, strict=True):
                if isinstance(run, RunStore) and run.documents is collection.documents:
                    ranked = run.rows_of(query_id)  # the token store has the documents' order
                else:
                    ranked = _values_of(tokens, run.get(query_id, {}), query_id).rows
                # The first ranks hold unjudged relevant documents more often than others do.
                ranked = ranked[training.negatives_below : depth]
                # All judged relevant documents are kept out, also those that the teacher lacks: a
                # false negative teaches the opposite.
                others = ranked[~np.isin(ranked, relevant.rows)]
                if known is not None:
                    most = _most(known, row["positives"], training)
                    others = others[np.isin(others, known.rows[known.values <= most])]
                row[name] = others
            if known is not None:
                row["scored"], row["scores"] = known
            if len(row["positives"]) and all(len(row[name]) for name in names):
                columns = {name: [row[name].astype(row_types[name])] for name in row_types}
                table.append([query_id], **columns)
    if not len(MappedTable(folder)):
        scored = " that the teacher has scored" if teacher is not None else ""
        raise BadInput(
            "training needs a query with a relevant document and a candidate that is not relevant"
            f"{scored}; none of the {len(split.queries)} training queries has both"
        )


class _Valued(NamedTuple):
    """Row numbers of documents, with a value of each."""

    rows: NDArray[np.integer[Any]]
    values: NDArray[Any]


def _most(known: _Valued, positives: NDArray[Any], training: Training) -> float:
    """The highest score of the teacher for a negative, below its lowest for a relevant document by
    `negatives_margin` and by a share of 1 - `negatives_share` of it (de Souza Moreira et al.
    2024)."""
    lowest = float(known.values[np.isin(known.rows, positives)].min(initial=np.inf))
    share = 1 - training.negatives_share if training.negatives_share else 0.0
    if not training.filters_negatives or lowest == np.inf:
        return np.inf
    return lowest - max(training.negatives_margin, share * abs(lowest))


def _grades(split: Split, query_id: str, labels: str) -> Mapping[str, int]:
    """{doc_id: grade}; grades above 0 are relevant."""
    if labels == "qrels":
        return split.qrels.get(query_id, {})
    return {doc_id: 1 for doc_id in list(split.candidates.get(query_id, ()))[:1]}


def _values_of(tokens: TokenStore, values: Mapping[str, float], query_id: str) -> _Valued:
    """The documents' rows and values; raises `BadInput` for one that the collection lacks."""
    rows = tokens.rows(list(values))
    if (rows < 0).any():
        name = list(values)[int(np.argmin(rows))]
        raise BadInput(
            f"training run or judgments: document {name!r} of query {query_id!r} is not in the "
            "collection; are they from another collection?"
        )
    return _Valued(rows, np.array(list(values.values())))


def _known(documents: _Valued, known: _Valued | None) -> _Valued:
    """The documents that the teacher has scored; all without a teacher."""
    if known is None:
        return documents
    kept = np.isin(documents.rows, known.rows)
    return _Valued(documents.rows[kept], documents.values[kept])


def training_groups(
    queries: Sequence[TrainingQuery],
    num_negatives: int,
    *,
    order_seed: int,
    negatives_seed: int,
    epoch_groups: int = 0,
    first: int = 0,
) -> Iterator[TrainingGroup]:
    """An endless stream of groups, from group `first` on: pass after pass, each a new permutation
    of the queries.

    The draw for a query depends only on (seed, pass, query_id). A query with fewer candidates than
    `num_negatives` repeats some. An epoch is `epoch_groups` groups, by default a pass, and may have
    its own negatives.
    """
    drawn = first
    passes, skipped = divmod(first, len(queries))
    while True:
        for i in generator(order_seed, passes).permutation(len(queries))[skipped:]:
            query, epoch = queries[i], drawn // (epoch_groups or len(queries))
            # By the query's id and not by its position: a query has the same negatives whatever
            # other queries there are.
            rng = generator(negatives_seed, passes, query.query_id)
            chosen = rng.integers(len(query.positives))
            # Curricula of negatives end with their last list.
            candidates = query.negatives[min(epoch, len(query.negatives) - 1)]
            negatives = _draw(candidates, num_negatives, rng)
            positive, teacher = query.positives[int(chosen)], None
            if query.teacher is not None:
                teacher = tuple(query.teacher[doc_id] for doc_id in (positive, *negatives))
            grade = query.grades[int(chosen)]
            yield TrainingGroup(
                query.query_id, query.query, positive, grade, negatives, passes, teacher
            )
            drawn += 1
        passes, skipped = passes + 1, 0


def _draw(names: Sequence[str], size: int, rng: np.random.Generator) -> tuple[str, ...]:
    """`size` of the names, without repetition if there are enough."""
    chosen = rng.choice(len(names), size, replace=len(names) < size)
    return tuple(names[i] for i in chosen)


class Row(NamedTuple):
    """A row of the loss: the documents as they are read, the relevant one first."""

    documents: list[Document]
    group: TrainingGroup

    @property
    def tokens(self) -> int:
        """Encoder tokens of the row, without padding."""
        return sum(len(chunk) for document in self.documents for chunk in document)


@dataclass(frozen=True)
class TrainingReader:
    """Reads the chunks of a group's documents for training. Draws depend only on the seed, the pass
    over the queries, query_id and doc_id."""

    pairs: PairEncoder
    training: Training
    seed: int

    @classmethod
    def of(cls, pairs: PairEncoder, training: Training, seed: int) -> "TrainingReader":
        """The reader of a model that reads documents through `pairs`."""
        # FirstP too is trained on all passages in this mode; it scores by the first.
        whole = replace(pairs, first_chunk_only=False) if training.unit == "passage" else pairs
        return cls(whole, training, seed)

    def rows(self, group: TrainingGroup) -> Iterator[Row]:
        """A row of whole documents, or a row per sampled passage."""
        documents: list[Document] = [
            self.pairs.chunks(group.query, doc_id) for doc_id in group.documents
        ]
        if self.training.unit == "passage":
            shortest = min(map(len, documents))
            for i in self._kept(shortest, self.training.passage_keep, group, group.positive):
                yield Row([[document[i]] for document in documents], group)
            return
        if self.training.chunk_dropout:
            keep = 1 - self.training.chunk_dropout
            documents = [
                [document[i] for i in self._kept(len(document), keep, group, doc_id)]
                for doc_id, document in zip(group.documents, documents, strict=True)
            ]
        yield Row(documents, group)

    def num_tokens(self, group: TrainingGroup) -> int:
        """Encoder tokens of the group, by the lengths of its documents; not less by the chunks that
        are left out at random. Passages end with the shortest document's."""
        each = [self.pairs.num_tokens(group.query, doc_id) for doc_id in group.documents]
        return len(each) * min(each) if self.training.unit == "passage" else sum(each)

    def _kept(self, number: int, share: float, group: TrainingGroup, doc_id: str) -> list[int]:
        """The first row, and each other one with probability `share`; at least one chunk."""
        rng = generator(self.seed, "chunks", group.passes, group.query_id, doc_id)
        kept = rng.random(number) < share
        kept[0] = True
        # A view: rows that hold the query alone are no text, and a document without text has no
        # score.
        chunks = kept[self.pairs.query_rows :]
        if not chunks.any():
            chunks[0] = True
        return list(map(int, np.flatnonzero(kept)))
