"""The quirk `unmasked-chunks`: chunks that hold nothing but padding compete with real ones, as in
the code that the numbers of Boytsov et al. 2022 come from."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy import int32
from numpy.typing import NDArray

from rank_core.chunking.batches import Chunk, EncoderInput, PairEncoder
from rank_core.chunking.chunks import document_spans
from rank_core.errors import BadInput, unknown
from rank_core.settings.config import TrialConfig

UNMASKED = "unmasked-chunks"
"""Every document is padded to max_document_tokens and cut as if the padding were text; every row
is [CLS] query [SEP] chunk [SEP] with query and chunk padded in place, so that the last [SEP] keeps
one place. Attention within a row never sees padding: a padding-only chunk reads the query and the
marks. Windows begin wherever a text is left, also where another window has covered it."""

PADDING = -1  # in chunks, until they are laid out


def check_quirks(config: TrialConfig, known: tuple[str, ...], pooling: str) -> None:
    """Refuses quirks that the model does not have, and the last token's vector where rows are
    padded in place."""
    for quirk in config.model.quirks:
        if quirk not in known:
            raise unknown(f"quirk of model {config.model.name}", quirk, known)
    if UNMASKED in config.model.quirks and pooling == "last":
        raise BadInput(
            f"quirk {UNMASKED} pads rows in place, so model.pool must be cls or mean, got last"
        )


class UnmaskedChunks(PairEncoder):
    """All windows of a document of `max_document_tokens` tokens, whatever its own length."""

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """As many chunks for every document, each of the same length."""
        limits = self.chunking
        text = self.tokens[doc_id][: limits.max_document_tokens]
        spans = document_spans(doc_id, limits.max_document_tokens, limits)
        padded = _padded(query, limits.max_query_tokens)
        return [Chunk(padded, _padded(text[start:end], limits.window)) for start, end in spans]

    def layout(self, chunks: Sequence[Chunk]) -> EncoderInput:
        """Rows of one length, with masks of 0 at padding wherever it is."""
        rows = super().layout(chunks)
        absent_CL = rows.input_ids_CL == PADDING
        return rows._replace(
            input_ids_CL=rows.input_ids_CL.masked_fill(absent_CL, self.backbone.pad_id),
            attention_mask_CL=rows.attention_mask_CL.masked_fill(absent_CL, 0),
            query_length_C=torch.tensor([int((c.query != PADDING).sum()) for c in chunks]),
        )


def _padded(tokens: NDArray[int32], size: int) -> NDArray[int32]:
    return np.pad(tokens, (0, size - len(tokens)), constant_values=PADDING)
