"""Rankers over word vectors, without a pretrained encoder.

The papers start from GloVe; these start from the backbone's word embeddings, trained at the
backbone's learning rate, with word pieces as tokens. The rows of [CLS], [SEP] and padding are
trained but unused. A document is one row of any length: the backbone's positions are no limit.
"""

from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch
from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.similarities import Terms, take, terms_of
from rank_core.models.ranker import Ranker
from rank_core.models.readers import WholeDocuments, require_whole_documents
from rank_core.settings.config import Model, TrialConfig


class WordVectorRanker(Ranker):
    """Base class of these rankers; `encoder` is the word embedding alone."""

    family = "word vectors"
    pair_encoder = WholeDocuments
    by_chunks = False
    limited_window = False
    one_chunk_is_firstp = False
    takes_flat_rows = False
    first_chunk_only = True

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        # Ranker's would keep the unused encoder.
        nn.Module.__init__(self)
        table: Tensor = encoder.get_input_embeddings().weight  # type: ignore[operator]
        self.encoder = nn.Embedding.from_pretrained(table.detach().clone(), freeze=False)
        self.dropout = nn.Dropout(settings.dropout)

    @property
    def size(self) -> int:
        """The size of a word vector."""
        return self.encoder.embedding_dim  # type: ignore[return-value]

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects windows other than the whole document."""
        super().check(config, backbone)
        require_whole_documents(config)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B from the word vectors of query and document."""
        ids_CL, terms = batch.inputs.input_ids_CL, terms_of(batch)
        query_ids_BQ, text_ids_BD = take(ids_CL, terms.query_BQ), take(ids_CL, terms.text_BD)
        return self.match(query_ids_BQ, text_ids_BD, terms)

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B of query and document ids; ids at padding are arbitrary."""
        raise TypeError(f"{type(self).__name__} must define `match`")
