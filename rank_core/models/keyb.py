"""KeyB: a document represented by its key blocks (Li, Popa, Chagnon, Cinar & Gaussier 2023)."""

import copy
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch, PairEncoder
from rank_core.chunking.chunks import BLOCK_TOKENS
from rank_core.chunking.encoder_input import NUM_SPECIAL, EncoderInput
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_encoder, load_tokenizer, resolve_backbone
from rank_core.encoders.cls_only import only_cls
from rank_core.encoders.published_heads import PublishedHead
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.models.key_blocks import (
    LEARNED,
    TRUNCATE_LATEST,
    BlockReader,
    DocumentBlocks,
    by_score,
    fitting,
    passages_of,
    selector_of,
    some_rows,
    with_segments,
)
from rank_core.models.parade import ParadeTransformer
from rank_core.models.passage_scores import FirstP
from rank_core.models.poolings import at_least_fp32, first
from rank_core.models.ranker import Ranker, pad_chunks
from rank_core.models.ranking_system import BlocksRead
from rank_core.settings.config import Model, TrialConfig

BLOCKS_AT_ONCE = 64  # blocks scored together, without gradient
SAME_SCORE_DECIMALS = 4
"""Scores that differ only by rounding are ties: the batch must not decide between equal texts."""


class KeyBlocks(Ranker):
    """Reads the blocks of a selector, which selects before the forward pass from the text alone, or
    at every forward pass with a learned model."""

    paper = "Li et al. 2023"
    citation = (
        "The Power of Selecting Key Blocks with Local Pre-ranking for Long Document Information "
        "Retrieval. TOIS 41(3), 2023, arXiv:2111.09852"
    )
    family = "key blocks"
    unread: ClassVar[tuple[str, ...]] = ("chunking.max_chunks", "chunking.overflow")
    options: ClassVar[tuple[str, ...]] = ("pool", "selector", "selector_backbone", "quirks")
    QUIRKS: ClassVar[tuple[str, ...]] = (TRUNCATE_LATEST,)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.truncate_latest = TRUNCATE_LATEST in settings.quirks
        self.pad_id = backbone.pad_id
        self.selector: Ranker | None = None
        self.selector_segments = backbone.num_segments > 1
        if selector_of(settings) == "learned-separate":
            self.selector = self._own_selector(backbone, settings)

    @classmethod
    def num_passages(cls, settings: Model) -> int:
        """The number of passages of the chunking's window; 0: one that fills the encoder."""
        return 0

    @classmethod
    def selects_blocks(cls, settings: Model) -> bool:
        """Always."""
        return True

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Reads documents as selected blocks, or as blocks to select from."""
        chunking, tokenizer = config.chunking, load_tokenizer(backbone.folder)
        return BlockReader(
            tokens,
            chunking,
            cls.first_chunk_only,
            backbone,
            selector_of(config.model),
            cls.num_passages(config.model),
            TRUNCATE_LATEST in config.model.quirks,
            DocumentBlocks(tokens, tokenizer, chunking.max_document_tokens),
        )

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects unknown selectors, encoders that cannot read blocks, settings without effect."""
        selector = selector_of(config.model)
        if selector in LEARNED and len(backbone.layout.suffix) > 1:
            raise BadInput(
                f"model.selector={selector} joins scored blocks, and backbone {backbone.name} has "
                "text of its own behind each; choose a selector that reads no encoder"
            )
        cls.num_passages(config.model)
        if config.model.selector_backbone:
            _check_selector(resolve_backbone(config.model.selector_backbone), backbone)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B; a learned selection depends on the current weights."""
        if batch.passages:
            batch = passages_of(batch, self.choose(batch), self.pad_id)
        x_CH = self.encode(batch.inputs)
        with torch.autocast(x_CH.device.type, enabled=False):
            return self.aggregate(*pad_chunks(at_least_fp32(x_CH), batch.counts))

    def choose(self, batch: ChunkBatch) -> list[list[tuple[int, int]]]:
        """(block, number of tokens) of the blocks to read of each document, in document order."""
        of_documents, start = [], 0
        for count in batch.counts:
            of_documents.append(range(start, start + count))
            start += count
        sizes = [[batch.inputs.sizes[i].num_text for i in rows] for rows in of_documents]
        fits = [sum(s) <= p.budget for s, p in zip(sizes, batch.passages, strict=True)]
        # A document that fits is read as a whole.
        asked = [i for rows, fit in zip(of_documents, fits, strict=True) if not fit for i in rows]
        score_of = dict(zip(asked, self.score_blocks(batch, asked), strict=True))
        chosen = []
        for rows, size, passages in zip(of_documents, sizes, batch.passages, strict=True):
            score_K = torch.tensor([score_of.get(i, 0.0) for i in rows], dtype=torch.float64)
            order = by_score(score_K.round(decimals=SAME_SCORE_DECIMALS).numpy())
            chosen.append(
                fitting(order, size, passages.budget, truncate_latest=self.truncate_latest)
            )
        return chosen

    def blocks_read(
        self, pairs: BlockReader, query: NDArray[np.int32], doc_ids: Sequence[str]
    ) -> list[BlocksRead]:
        """The blocks that are read of each document."""
        reads = [pairs.blocks_of(query, doc_id) for doc_id in doc_ids]
        chosen: list[Sequence[int]] = [range(len(blocks)) for blocks in reads]
        if pairs.selector in LEARNED:
            documents = [pairs.chunks(query, doc_id) for doc_id in doc_ids]
            batch = pairs.collate(documents, self.device).to(self.device)
            chosen = [[place for place, _ in own] for own in self.choose(batch)]
        return [
            BlocksRead(
                tuple(blocks[place][0] for place in places), len(pairs.blocks.of(doc_id).spans)
            )
            for doc_id, blocks, places in zip(doc_ids, reads, chosen, strict=True)
        ]

    def score_blocks(self, batch: ChunkBatch, rows: list[int]) -> list[float]:
        """The selector's scores of blocks, without dropout and gradient."""
        ranker = self if self.selector is None else self.selector
        parts, trains = [], ranker.encoder.training
        ranker.encoder.eval()
        with torch.no_grad():
            for start in range(0, len(rows), BLOCKS_AT_ONCE):
                inputs = some_rows(batch.inputs, rows[start : start + BLOCKS_AT_ONCE])
                parts.append(_scores(ranker, with_segments(inputs, self.selector_segments)))
        ranker.encoder.train(trains)
        return [score for part in parts for score in part.tolist()]

    def _own_selector(self, backbone: Backbone, settings: Model) -> Ranker:
        """A frozen ranker of blocks: a backbone trained on passage ranking with its own head, or a
        copy of the model's encoder and head."""
        own = resolve_backbone(settings.selector_backbone) if settings.selector_backbone else None
        if own is None:
            selector = FirstP(copy.deepcopy(self.encoder), backbone, settings)
        else:
            _check_selector(own, backbone)
            self.selector_segments = own.num_segments > 1
            encoder = load_encoder(own, 0.0)
            selector = FirstP(encoder, own, settings)
            if selector.pooling == "cls":
                only_cls(encoder)
        head = (own or backbone).folder / RANKING_HEAD
        if head.exists():
            selector.head.load_state_dict(load_file(head))
        elif own is None and not isinstance(selector.head, PublishedHead):
            selector.head.load_state_dict(self.head.state_dict())
        return selector.requires_grad_(False)


class KeyB(KeyBlocks):
    """KeyB(vBERT): the key blocks that fit the encoder, in document order, scored as one
    passage."""

    label = "KeyB"
    rates = ("backbone", "head")
    unread = (
        *KeyBlocks.unread,
        "training.unit",
        "training.passage_keep",
        "training.chunk_dropout",
    )  # of several passages
    scores_chunks = True  # its only passage

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects windows other than the encoder's, which the blocks fill."""
        super().check(config, backbone)
        chunking, limit = config.chunking, backbone.max_window(config.chunking.max_query_tokens)
        if not chunking.window == chunking.stride == limit:
            raise BadInput(
                f"model {config.model.name} fills the encoder with key blocks and needs "
                f"chunking.window = chunking.stride = {limit} for backbone {backbone.name}, got "
                f"{chunking.window} and {chunking.stride}"
            )

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B of the only passage."""
        return self.score(first(x_BPH, mask_BP))


class KeyBParade(KeyBlocks, ParadeTransformer):
    """KeyB(PARADE k): the key blocks as k passages, aggregated by PARADE-Transformer."""

    label = "KeyB-PARADE"
    # The model selects its blocks by its own scores, document by document.
    waits = ({"model.selector": "learned-shared", "model.k": 2},)
    options = (*KeyBlocks.options, "k")
    DEFAULT_K = 5

    @classmethod
    def num_passages(cls, settings: Model) -> int:
        """The number of passages of the chunking's window."""
        number = settings.k or cls.DEFAULT_K
        if not 0 < number <= (cls.max_chunks or number):
            raise BadInput(
                f"model {settings.name} reads 1 to {cls.max_chunks} passages, got model.k={number}"
            )
        return number


def _scores(ranker: Ranker, inputs: EncoderInput) -> Tensor:
    """score_C of rows, with the head in fp32 or wider."""
    x_CH = ranker.encode(inputs)
    with torch.autocast(x_CH.device.type, enabled=False):
        score_C: Tensor = ranker.head(x_CH.to(next(ranker.head.parameters()).dtype)).squeeze(-1)
    return score_C


def _check_selector(own: Backbone, backbone: Backbone) -> None:
    """Rejects an encoder that cannot read the model's tokens."""
    if load_tokenizer(own.folder).get_vocab() != load_tokenizer(backbone.folder).get_vocab():
        raise BadInput(
            "model.selector_backbone must have the vocabulary of model.backbone "
            f"({backbone.name}), in which documents are tokenised; {own.name} has another"
        )
    if own.max_input_tokens < BLOCK_TOKENS + NUM_SPECIAL + 1:
        raise BadInput(
            f"model.selector_backbone must read blocks of {BLOCK_TOKENS} tokens and a query, "
            f"got {own.name} with {own.max_input_tokens} positions"
        )
