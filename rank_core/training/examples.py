"""Training examples: per query one relevant document and hard negatives, drawn anew in each epoch,
and the chunks that are read of them: all, most, or passages one by one.

With `training.unit=passage` every passage is a document of its own that inherits the label of its
document (Dai & Callan 2019; Zhang, Yates & Lin 2021): the first always, the others by a draw.
Passage i of the relevant document meets passage i of the others; what is beyond the end of the
shortest has no partner. How a document's passages are put together matters in scoring alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.chunking.batches import PairEncoder
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.ranking.encode import Document
from rank_core.records import Split
from rank_core.seeding import generator
from rank_core.settings.config import Training


@dataclass(frozen=True)
class TrainingQuery:
    """A query with its relevant documents and the candidates that are not relevant."""

    query_id: str
    query: NDArray[np.int32]
    positives: tuple[str, ...]
    grades: tuple[int, ...]  # of the positives
    negatives: tuple[tuple[str, ...], ...]  # by epoch; the last ones serve all later epochs
    teacher: Mapping[str, float] | None = None  # its score of each of the documents


@dataclass(frozen=True)
class TrainingGroup:
    """A query, a relevant document and hard negatives."""

    query_id: str
    query: NDArray[np.int32]
    positive: str
    grade: int  # of the relevant one
    negatives: tuple[str, ...]
    passes: int  # over the queries, before this one; with the ids it names a draw
    teacher: tuple[float, ...] | None  # its score of each document

    @property
    def documents(self) -> tuple[str, ...]:
        """The relevant one first."""
        return (self.positive, *self.negatives)


def training_queries(
    split: Split,
    queries: Mapping[str, NDArray[np.int32]],
    depth: int,
    training: Training | None = None,
) -> list[TrainingQuery]:
    """The queries that have a relevant document and, in every epoch, a candidate that is not.

    Relevant are the documents judged so; with `training.labels=first-stage` the first of the
    query's candidates, whatever the judgments say. A teacher's run limits both kinds of documents
    to those that the teacher has scored.
    """
    training = training or Training()
    depth = training.depth or depth
    lists = [read_run(Path(path)) for path in training.negatives_from] or [split.candidates]
    teacher = read_run(Path(training.teacher)) if training.teacher else None
    usable = []
    for query_id, query in queries.items():
        grades = _grades(split, query_id, training.labels)
        known = None if teacher is None else teacher.get(query_id, {})
        positives = _known([doc_id for doc_id, grade in grades.items() if grade > 0], known)
        negatives = []
        for run in lists:
            candidates = list(run.get(query_id, ()))[training.negatives_below : depth]
            others = [doc_id for doc_id in candidates if grades.get(doc_id, 0) <= 0]
            negatives.append(_known(others, known))
        if positives and all(negatives):
            of_positives = tuple(grades[doc_id] for doc_id in positives)
            usable.append(
                TrainingQuery(query_id, query, positives, of_positives, tuple(negatives), known)
            )
    if not usable:
        scored = " that the teacher has scored" if teacher is not None else ""
        raise BadInput(
            "training needs a query with a relevant document and a candidate that is not relevant"
            f"{scored}; none of the {len(queries)} training queries has both"
        )
    return usable


def _grades(split: Split, query_id: str, labels: str) -> Mapping[str, int]:
    """{doc_id: grade}; above 0 is relevant."""
    if labels == "qrels":
        return split.qrels.get(query_id, {})
    return {doc_id: 1 for doc_id in list(split.candidates.get(query_id, ()))[:1]}


def _known(doc_ids: Sequence[str], known: Mapping[str, float] | None) -> tuple[str, ...]:
    return tuple(doc_id for doc_id in doc_ids if known is None or doc_id in known)


def training_groups(
    queries: list[TrainingQuery],
    num_negatives: int,
    *,
    order_seed: int,
    negatives_seed: int,
    epoch_groups: int = 0,
    first: int = 0,
) -> Iterator[TrainingGroup]:
    """An endless stream: pass after pass, each a fresh permutation of the queries; from group
    `first` on.

    The draw for a query depends on (seed, pass, query_id) alone, not on what was drawn before. A
    query with fewer candidates than `num_negatives` repeats some. An epoch, which may have
    negatives of its own, is `epoch_groups` groups, or a pass.
    """
    drawn = first
    passes, skipped = divmod(first, len(queries))
    while True:
        for i in generator(order_seed, passes).permutation(len(queries))[skipped:]:
            query, epoch = queries[i], drawn // (epoch_groups or len(queries))
            rng = generator(negatives_seed, passes, query.query_id)
            chosen = rng.integers(len(query.positives))
            candidates = query.negatives[min(epoch, len(query.negatives) - 1)]
            negatives = _draw(candidates, num_negatives, rng)
            yield _group(query, int(chosen), negatives, passes)
            drawn += 1
        passes, skipped = passes + 1, 0


def _group(
    query: TrainingQuery, chosen: int, negatives: tuple[str, ...], passes: int
) -> TrainingGroup:
    positive, teacher = query.positives[chosen], None
    if query.teacher is not None:
        teacher = tuple(query.teacher[doc_id] for doc_id in (positive, *negatives))
    return TrainingGroup(
        query.query_id, query.query, positive, query.grades[chosen], negatives, passes, teacher
    )


def _draw(names: tuple[str, ...], size: int, rng: np.random.Generator) -> tuple[str, ...]:
    """`size` of the names, all different where there are enough."""
    chosen = rng.choice(len(names), size, replace=len(names) < size)
    return tuple(names[i] for i in chosen)


class Row(NamedTuple):
    """One row of the loss: documents as they are read, the relevant one first."""

    documents: list[Document]
    group: TrainingGroup

    @property
    def tokens(self) -> int:
        """Encoder tokens of the row, without padding."""
        return sum(len(chunk) for document in self.documents for chunk in document)


@dataclass(frozen=True)
class TrainingReader:
    """Cuts the documents of groups as training reads them. A draw depends on the seed, the pass
    over the queries, query_id and doc_id alone."""

    pairs: PairEncoder
    training: Training
    seed: int

    @classmethod
    def of(cls, pairs: PairEncoder, training: Training, seed: int) -> "TrainingReader":
        """The reader of a model whose documents are scored through `pairs`."""
        # FirstP is trained on all passages too, in this mode; it scores by the first.
        whole = replace(pairs, first_chunk_only=False) if training.unit == "passage" else pairs
        return cls(whole, training, seed)

    def rows(self, group: TrainingGroup) -> Iterator[Row]:
        """One row of whole documents, or a row for each passage that is kept."""
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

    def _kept(self, number: int, share: float, group: TrainingGroup, doc_id: str) -> list[int]:
        """The first chunk, and each other one with probability `share`."""
        rng = generator(self.seed, "chunks", group.passes, group.query_id, doc_id)
        kept = rng.random(number) < share
        kept[0] = True
        return list(map(int, np.flatnonzero(kept)))
