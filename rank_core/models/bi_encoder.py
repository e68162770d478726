"""The bi-encoder: query and chunk are encoded separately and compared by cosine (E5, Wang et al.
2022; E5-Base-4k, Zhu et al. 2024). It ranks without training."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rank_core.chunking.batches import EncoderInput
from rank_core.chunking.token_store import tokenize
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.flat_rows import FlatRows, on, rows_of_lengths
from rank_core.encoders.packed import flat_states, packs, products
from rank_core.models.poolings import at_least_fp32, masked_max, row_vectors
from rank_core.models.ranker import Ranker, own_lengths
from rank_core.models.ranking_system import BEST_CHUNKS_FIRST
from rank_core.settings.config import Model


class BiEncoder(Ranker):
    """score = w max_p cos(query, chunk_p), with w = 1 / temperature initially.

    Train it with a contrastive loss: cosines lie close together, so a margin of 1 is rarely met.
    """

    label = "Bi-encoder"
    waits = (BEST_CHUNKS_FIRST,)
    rates = ("backbone", "head")
    paper = "Zhu et al. 2024"
    family = "long context"
    reads_tokens = True
    one_chunk_is_firstp = False
    chunks_that_learn = 1
    options = ("pool",)
    TEMPERATURE: ClassVar[float] = 0.01  # of E5's contrastive loss
    PREFIXES = ("query: ", "passage: ")
    ORIGINAL_POSITIONS: ClassVar[int] = 512
    """Positions of BERT before its table was extended; shorter rows are spread over the table."""

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.backbone = backbone
        self.head = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.head.weight, 1 / self.TEMPERATURE)
        prefixes = tokenize(load_tokenizer(backbone.folder), list(self.PREFIXES))
        self.query_prefix, self.passage_prefix = prefixes
        stretched = backbone.max_input_tokens // self.ORIGINAL_POSITIONS
        self.position_step = max(1, stretched) if backbone.kind == "bert" else 1
        self.cls_is_global = backbone.kind == "longformer"

    @classmethod
    def pooling_of(cls, settings: Model, backbone: Backbone) -> str:
        """The mean by default, whatever the backbone's own."""
        return backbone.row_pooling(settings.pool or "mean")

    def encode(self, inputs: EncoderInput) -> Tensor:
        """cos_C1 between each row's query and its chunk."""
        sizes, query_length_C = inputs.sizes, inputs.query_length_C
        # The rows of a batch share few distinct queries; each is encoded once.
        queries = sorted(set(inputs.query_rows))
        row_Q = on(inputs.input_ids_CL.device, torch.tensor(queries))
        query_QH = self.vectors(
            *self.rows(
                inputs.input_ids_CL[row_Q],
                torch.ones_like(row_Q),
                query_length_C[row_Q],
                self.query_prefix,
                [sizes[row].num_query for row in queries],
            )
        )
        at = {row: place for place, row in enumerate(queries)}
        query_C = on(
            inputs.input_ids_CL.device, torch.tensor([at[row] for row in inputs.query_rows])
        )
        chunk_CH = self.vectors(
            *self.rows(
                inputs.input_ids_CL,
                query_length_C + 2,
                on(inputs.input_ids_CL.device, torch.tensor([size.num_text for size in sizes])),
                self.passage_prefix,
                [size.num_text for size in sizes],
            )
        )
        return (query_QH[query_C] * chunk_CH).sum(-1, keepdim=True)

    def rows(
        self,
        ids_CL: Tensor,
        first_C: Tensor,
        length_C: Tensor,
        prefix: list[int],
        lengths: list[int],
    ) -> tuple[Tensor, Tensor, FlatRows]:
        """(ids_CW, mask_CW, flat rows) of rows [CLS] prefix text [SEP]. A row's text is the
        `length_C` tokens of `ids_CL` from `first_C` on, truncated to the encoder's positions;
        `lengths` is `length_C` on the host."""
        before = 1 + len(prefix)
        limit = self.backbone.max_input_tokens - before - 1
        end_C1 = (before + length_C.clamp(max=limit))[:, None]
        own = [before + min(length, limit) + 1 for length in lengths]
        place_W = torch.arange(max(own), device=ids_CL.device)
        # A gather in place of slices: rows begin at different columns, and slices would need the
        # host.
        source_CW = (place_W - before + first_C[:, None]).clamp(0, ids_CL.shape[1] - 1)
        row_CW = ids_CL.gather(1, source_CW)
        row_CW = row_CW.where(place_W < end_C1, self.backbone.pad_id)
        row_CW = row_CW.where(place_W != end_C1, self.backbone.sep_id)
        row_CW[:, :before] = on(ids_CL.device, torch.tensor([self.backbone.cls_id, *prefix]))
        flat = on(ids_CL.device, rows_of_lengths(own, max(own)))
        return row_CW, (place_W <= end_C1).long(), flat

    def vectors(self, ids_CL: Tensor, mask_CL: Tensor, flat: FlatRows) -> Tensor:
        """Unit vectors x_CH in fp32; each row is independent of the others."""
        extra: dict[str, Any] = {}
        if self.position_step > 1:
            # E5-Base-4k uses the batch's length; a row's own makes its score independent.
            short_C = mask_CL.sum(1) <= self.ORIGINAL_POSITIONS
            step_C = torch.where(short_C, self.position_step, 1)
            place_L = torch.arange(ids_CL.shape[1], device=ids_CL.device)
            extra["position_ids"] = place_L * step_C[:, None] * mask_CL
        if self.cls_is_global:  # no query tokens to attend globally
            extra["global_attention_mask"] = torch.zeros_like(mask_CL)
            extra["global_attention_mask"][:, 0] = 1
        if packs(self.encoder, products(ids_CL.device)):
            position_CL = extra.get("position_ids")
            [hidden_CLH] = flat_states(self.encoder, ids_CL, flat, position_CL=position_CL)
        else:
            extra |= own_lengths(self.encoder, flat)
            output = self.encoder(input_ids=ids_CL, attention_mask=mask_CL, **extra)
            hidden_CLH = output.last_hidden_state
        return normalize(at_least_fp32(row_vectors(hidden_CLH, mask_CL, self.pooling)), dim=-1)

    def score(self, cls_H: Tensor) -> Tensor:
        """The scaled cosine."""
        return self.head(cls_H).squeeze(-1)

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """The maximum over chunk scores."""
        return masked_max(self.score(x_BPH), mask_BP)
