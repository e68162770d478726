"""RandP: the score of one chunk at a random place, what a document's chunks say on average."""

from dataclasses import dataclass

from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.models import poolings
from rank_core.models.passage_scores import ChunkScores
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig


@dataclass(frozen=True)
class OneRandomChunk(PairEncoder):
    """One of a document's chunks, the same one whenever the document is read in a trial."""

    seed: int

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunk that (seed, document) draw among those that all chunks' models would read."""
        chunks = super().chunks(query, doc_id)
        return [chunks[generator(self.seed, "randp", doc_id).integers(len(chunks))]]


class RandP(ChunkScores):
    """The score of one chunk, drawn once per document and seed, for training and ranking alike."""

    label = "RandP"
    paper = "Li et al. 2023"  # their random baseline, with one block
    pool_scores = staticmethod(poolings.first)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """One chunk of each document; another one in a trial of another seed."""
        return OneRandomChunk(
            tokens, config.chunking, cls.first_chunk_only, backbone, seed=config.seed
        )
