"""PARADE: aggregate the chunks' [CLS] vectors, then score once (Li et al. 2020)."""

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from rank_core.backbones import Backbone
from rank_core.config import Model
from rank_core.models import poolings
from rank_core.models.ranker import Ranker


class Parade(Ranker):
    """What PARADE's variants share."""

    paper = "Li et al. 2020"
    family = "PARADE"


class ParadeAvg(Parade):
    """head(mean of the chunk vectors)."""

    label = "PARADE-Avg"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Means, then scores."""
        return self.score(poolings.masked_mean(cls_BPH, mask_BP))


class ParadeMax(Parade):
    """head(element-wise maximum of the chunk vectors)."""

    label = "PARADE-Max"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Maxima per dimension, then scores."""
        return self.score(poolings.masked_max(cls_BPH, mask_BP))


class ParadeAttn(Parade):
    """head(sum_p w_p cls_p), w = softmax(C . cls_p) with one learned vector C (the paper's form,
    not the element-wise one of later code)."""

    label = "PARADE-Attn"

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.attention = nn.Parameter(torch.empty(self.head.in_features))
        nn.init.trunc_normal_(self.attention, std=0.02)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Attends over chunks, then scores."""
        weight_BP = poolings.masked_softmax(cls_BPH @ self.attention, mask_BP)
        return self.score((weight_BP[:, :, None] * cls_BPH).sum(1))


class ParadeTransformer(Parade):
    """A transformer with random weights over [C, SEP, cls_1 .. cls_n, SEP]; C's output is scored.

    The RAND-L2 of Boytsov et al. as meant: 2 layers, 4 heads, C and SEP start as the encoder's
    embeddings of [CLS] and [SEP], positions and segments (0, 0, 1 .. 1, 0) are embedded, absent
    chunks are masked, and the SEP that closes a document follows its own last chunk. C is written
    to and read from position 0.
    """

    label = "PARADE-Transformer"
    one_chunk_is_firstp = False
    NUM_LAYERS = 2
    NUM_HEADS = 4
    max_chunks = 509  # 512 positions less C and two SEP

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        config = BertConfig(
            vocab_size=1,
            hidden_size=hidden,
            num_hidden_layers=self.NUM_LAYERS,
            num_attention_heads=self.NUM_HEADS,
            intermediate_size=4 * hidden,
            hidden_dropout_prob=settings.dropout,
            attention_probs_dropout_prob=settings.dropout,
        )
        self.aggregator = BertModel(config, add_pooling_layer=False)
        # Chunk vectors enter as embeddings: a word table would be dead weight.
        del self.aggregator.embeddings.word_embeddings
        words = encoder.get_input_embeddings().weight  # type: ignore[operator]
        special_2H = words[[backbone.cls_id, backbone.sep_id]]
        self.special_2H = nn.Parameter(special_2H.detach().clone())

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Runs the aggregator over each document's chunk vectors and scores C's output."""
        num_docs, num_chunks, _ = cls_BPH.shape
        length_B = mask_BP.sum(1)
        c_B1H, sep_B1H = self.special_2H.to(cls_BPH.dtype)[:, None, None].expand(2, num_docs, 1, -1)
        x_BTH = torch.cat([c_B1H, sep_B1H, cls_BPH, torch.zeros_like(sep_B1H)], dim=1)
        place_T = torch.arange(num_chunks + 3, device=cls_BPH.device)
        end_B1 = (length_B + 2)[:, None]
        x_BTH = torch.where((place_T == end_B1)[:, :, None], sep_B1H, x_BTH)
        segment_BT = ((place_T >= 2) & (place_T < end_B1)).long()
        output = self.aggregator(
            inputs_embeds=x_BTH,
            attention_mask=(place_T <= end_B1).long(),
            token_type_ids=segment_BT,
        )
        return self.score(output.last_hidden_state[:, 0])
