"""What of a document is read in training: all its chunks, most of them, or passages one by one.

With `training.unit=passage` every passage is a document of its own that inherits the label of its
document (Dai & Callan 2019; Zhang, Yates & Lin 2021): the first always, the others by a draw.
Passage i of the relevant document meets passage i of the others; what is beyond the end of the
shortest has no partner. How a document's passages are put together matters in scoring alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rank_core.chunking.batches import PairEncoder
from rank_core.ranking.encode import Document
from rank_core.seeding import generator
from rank_core.settings.config import Training
from rank_core.training.examples import TrainingGroup


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
