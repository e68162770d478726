"""Dense retrieval: an embedding model, as published, ranks the whole collection by exact search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.embedder import read_embedder
from rank_core.machine import trial_device
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.models.kept_files import EVIDENCE, INDEX
from rank_core.models.list_rankers import ListRanker, Ranking
from rank_core.models.runtimes import CALIBRATION_ROWS
from rank_core.records import Run, without_own
from rank_core.retrieval.collection import asked_evidence, chosen_documents, cuts_of
from rank_core.retrieval.cuts import Cutting, WholeDocument
from rank_core.retrieval.evidence import BUDGETS, evidence_recall
from rank_core.retrieval.index import DenseIndex
from rank_core.settings.config import Model, TrialConfig, runtime_of
from rank_core.settings.training import INT8

OF_FOLDER = ("query_prompt", "document_prompt", "truncate_dim")
"""Settings of the model in place of what its folder says."""
VECTORS = (
    "model.backbone",
    *(f"model.{name}" for name in OF_FOLDER),
    "training.precision",
    "evaluation.runtime",
)
"""The settings that decide the vector of a text."""
INDEXED = (*VECTORS, "model.stored", "evaluation.evidence")
"""The settings of an index but those of its chunks."""


def embedding_model(config: TrialConfig, device: str = "") -> EmbeddingModel:
    """The embedding model that the backbone of the settings is, on a device, by default that of
    trials; loaded once per process."""
    return _loaded(
        config.model.backbone,
        device=device or str(trial_device()),
        precision=config.training.precision,
        runtime=runtime_of(config),
        documents=_first_documents(config) if config.training.precision == INT8 else (),
        truncate_dim=config.model.truncate_dim or None,
        **config.model.given_prompts,
    )


@lru_cache(maxsize=2)
def _loaded(name: str, **options: Any) -> EmbeddingModel:
    return EmbeddingModel.load(name, **options)


def _first_documents(config: TrialConfig) -> tuple[str, ...]:
    """Documents of a collection, the same in every trial."""
    documents = load_inputs(config.collection, config.model.backbone).collection.documents
    return tuple(documents[doc_id] for doc_id in sorted(documents)[:CALIBRATION_ROWS])


class DenseChunks(ListRanker):
    """The score of a document is that of its best chunk. The whole collection is ranked,
    independently of the first stage."""

    label = "Dense"
    paper = "Karpukhin et al. 2020"
    citation = (
        "Dense Passage Retrieval for Open-Domain Question Answering. EMNLP 2020, arXiv:2004.04906"
    )
    family = "dense retrieval"
    retrieves = True
    options = (*OF_FOLDER, "stored")
    reads: ClassVar[tuple[str, ...]] = (
        *INDEXED,
        "chunking.window",
        "chunking.overlap",
        "chunking.snap",
        "chunking.title",
    )

    def __init__(self, config: TrialConfig, workdir: Path) -> None:
        super().__init__(config, workdir)
        self._indexes: dict[int, DenseIndex] = {}  # by their documents

    @classmethod
    def cutting(cls, config: TrialConfig, limit: int) -> Cutting:
        """How it cuts documents for a model that reads at most `limit` of their tokens."""
        return config.chunking

    @classmethod
    def stated_settings(cls, settings: Model, backbone: Backbone) -> dict[str, Any]:
        """Prompts and dimensions; 0: all."""
        facts = read_embedder(settings.backbone, **settings.given_prompts)
        kept = settings.truncate_dim or facts.truncate_dim
        return replace(facts, truncate_dim=kept).stated_settings

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Raises `BadInput` for a window that the model does not read whole."""
        if "chunking.window" in cls.reads:
            # Not on the GPU, of which a driver holds no part.
            embedding_model(config, "cpu").check_window(config.chunking.window)

    @classmethod
    def index(
        cls,
        config: TrialConfig,
        inputs: Inputs,
        device: str = "",
        only: Sequence[str] | None = None,
    ) -> DenseIndex:
        """The index of a collection, or of the documents with the ids of `only`, not embedded yet.
        Raises `BadInput` for titles and evidence that the collection has not, and for signs that
        are compared by a distance."""
        asked_evidence(config, inputs.collection)  # refused before anything is embedded
        model = embedding_model(config, device)
        cutting = cls.cutting(config, model.max_window)
        cuts = cuts_of(config.collection, inputs.collection, model.tokenizer, cutting, only)
        documents = chosen_documents(inputs.collection, only)
        return DenseIndex(model, documents, cuts, config.model.stored)

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """The best documents of the collection."""
        index, depth = self._index(), self.config.evaluation.depth
        known = asked_evidence(self.config, self.inputs.collection)
        vectors = index.model.encode_queries([*queries.values()])
        num_chunks = max(BUDGETS) if known else 0  # a chunk has a token or more
        leaves_own_out = self.inputs.collection.leaves_own_out
        found = index.search(vectors, depth=depth + leaves_own_out, num_chunks=num_chunks)
        if known:
            recall = evidence_recall(index.chunks(found.chunks, [*queries]), known)
            for budget, values in recall.items():
                self.notes.setdefault(EVIDENCE, {}).setdefault(str(budget), {}).update(values)
        seconds = index.query_seconds([*queries.values()], depth)
        self.encoder_tokens = index.cost.tokens
        model = embedding_model(self.config)
        self.notes[INDEX] = index.cost.record() | {
            "similarity": model.similarity,
            "query_prompt": model.query_prompt,
            "document_prompt": model.document_prompt,
            "largest_window": model.max_window,
            "ms_per_query": 1000 * float(np.median(seconds)),
            "ms_per_query_p95": 1000 * float(np.percentile(seconds, 95)),
        }
        for query_id, ranked in index.run(found.documents, [*queries]).items():
            own = without_own(query_id, ranked) if leaves_own_out else ranked
            yield query_id, dict(islice(own.items(), depth))

    def scores_of(
        self, queries: Mapping[str, str], named: Mapping[str, Sequence[str]]
    ) -> Iterator[Ranking]:
        """The scores of the documents that are named for each query, which the best may not have
        among them."""
        index, rows = self._index(), self.inputs.tokens.rows
        vector_QD = index.model.encode_queries([*queries.values()])
        for query_id, query_D in zip(queries, vector_QD, strict=True):
            doc_ids = named.get(query_id, ())
            scores = index.scores_of(query_D, rows(doc_ids).tolist())
            yield query_id, dict(zip(doc_ids, scores, strict=True))

    def _index(self) -> DenseIndex:
        """The index of the collection, which all splits and folds share."""
        documents = self.inputs.collection.documents
        if id(documents) not in self._indexes:
            self._indexes = {id(documents): self.index(self.config, self.inputs)}
        return self._indexes[id(documents)]


class DenseDocument(DenseChunks):
    """A document is one chunk, truncated at the model's limit."""

    label = "Dense, cut"
    paper = "Karpukhin et al. 2020"
    reads: ClassVar[tuple[str, ...]] = INDEXED

    @classmethod
    def cutting(cls, config: TrialConfig, limit: int) -> Cutting:
        """The start of a document, as long as the model reads."""
        return WholeDocument(limit)
