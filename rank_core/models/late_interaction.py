"""Late interaction (ColBERT, Khattab & Zaharia 2020): query and chunk are encoded separately into a
vector for each token, and each token of the query is compared with its most similar token."""

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from rank_core.chunking.encoder_input import EncoderInput
from rank_core.encoders.any_kind import vector_size
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.checkpoint import foreign_architecture
from rank_core.encoders.flat_rows import on, rows_of_lengths
from rank_core.encoders.multi_vector import (
    ComparedTokens,
    MultiVector,
    TokenLayers,
    read_multi_vector,
)
from rank_core.encoders.packed import products
from rank_core.errors import BadInput
from rank_core.models.bi_encoder import begun, check_rows, row_limit, rows_of
from rank_core.models.embedding_rows import (
    RowEnd,
    TextRows,
    distinct_queries,
    query_rows,
    row_states,
    text_rows,
)
from rank_core.models.poolings import at_least_fp32, masked_max
from rank_core.models.ranker import Ranker
from rank_core.models.ranking_system import BEST_CHUNKS_FIRST
from rank_core.settings.config import BEST_WINDOW, Model, TrialConfig

MOST_QUERY_TOKENS = 512
"""Of a query's row; a document's best similarities are kept for each."""
NO_TOKEN = -1e9
"""The score of a text of which no token is compared, in sentence-transformers."""
KEPT_BYTES = 512 << 20
"""Vectors of texts that are kept while a model ranks."""


class TokenVectors(NamedTuple):
    """The vectors of texts, and which of them are compared."""

    x_CTD: Tensor
    compared_CT: Tensor


class KeptTexts:
    """The token vectors of the texts that one ranking has read last, for queries that share
    them."""

    def __init__(self) -> None:
        self.texts: OrderedDict[bytes, tuple[Tensor, Tensor]] = OrderedDict()
        self.size = 0

    def add(self, text: bytes, x_TD: Tensor, compared_T: Tensor) -> None:
        """Keeps a text, in place of those that were read first."""
        self.texts[text] = x_TD, compared_T
        self.size += x_TD.nbytes
        while self.size > KEPT_BYTES and len(self.texts) > 1:
            _, (old_TD, _) = self.texts.popitem(last=False)
            self.size -= old_TD.nbytes


_KEPT: "ContextVar[tuple[ColBert, KeptTexts] | None]" = ContextVar("kept", default=None)
"""Of the ranking of this thread: the model that ranks, and what it has read."""


class ColBert(Ranker):
    """score = sum_q max_t s(q, t): each token q of the query is compared with its most similar
    token t, by the cosine of their projections to 128 dimensions, or as the folder of a
    late-interaction model says. t is any token of the document's windows; with model.maxsim=window
    it is one of a window, and the best window scores. Both are equal for a document of one window.

    An encoder alone gets a new projection, and neither the prefixes [Q] and [D], nor queries filled
    with [MASK], nor punctuation that is left out: these are read from the folder of a model.
    """

    label = "Late interaction"
    waits = ({**BEST_CHUNKS_FIRST, "model.maxsim": BEST_WINDOW},)
    rates = ("backbone", "head")
    paper = "Khattab & Zaharia 2020"
    citation = (
        "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over "
        "BERT. SIGIR 2020, arXiv:2004.12832"
    )
    family = "long context"
    reads_tokens = True
    reads_pairs = False
    one_chunk_is_firstp = False
    options: ClassVar[tuple[str, ...]] = ("maxsim", "query_prompt", "document_prompt")

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.backbone, self.by_window = backbone, settings.maxsim == BEST_WINDOW
        self.chunks_that_learn = 1 if self.by_window else 0
        self.facts = facts_of(settings, backbone).over(vector_size(encoder.config))
        self.query_row, self.chunk_row = rows_of(self.facts.texts, backbone, self.facts.tokenizer())
        limits = limits_of(self.facts, backbone)
        self.query_end, self.text_end = (RowEnd(limit, backbone.pad_id) for limit in limits)
        added = self.facts.expansion
        self.width = max(limits[0], added.length if added else 0)
        self.head = TokenLayers(self.facts)
        self.compared = ComparedTokens(self.facts)

    @contextlib.contextmanager
    def one_ranking(self) -> Iterator[None]:
        """Keeps the vectors of the texts that are read."""
        token = _KEPT.set((self, KeptTexts()))
        try:
            yield
        finally:
            _KEPT.reset(token)

    @classmethod
    def pooling_of(cls, settings: Model, backbone: Backbone) -> str:
        """None is read; the mean excludes no token."""
        return "mean"

    @classmethod
    def backbone_of(cls, settings: Model, backbone: Backbone) -> Backbone:
        """The backbone whose texts begin with the space that ends the prompts, where their
        tokens differ by it."""
        facts = facts_of(settings, backbone)
        return begun(cls.rows_over(backbone), *rows_of(facts.texts, backbone, facts.tokenizer()))

    @classmethod
    def stated_settings(cls, settings: Model, backbone: Backbone) -> dict[str, Any]:
        """The prompts."""
        stated = facts_of(settings, backbone).texts.stated_settings
        return {name: stated[name] for name in ("model.query_prompt", "model.document_prompt")}

    @classmethod
    def notes(cls, settings: Model, backbone: Backbone) -> tuple[str, ...]:
        """How texts become vectors, in words, and what is not read."""
        facts = facts_of(settings, backbone)
        given = (facts.texts.query_prompt, facts.texts.document_prompt)
        prompts = f"prompts {given[0]!r} and {given[1]!r}" if any(given) else "no prompts"
        return (f"{facts.described}, {prompts}", *facts.texts.notes)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Raises `BadInput` for rows that would be cut."""
        super().check(config, backbone)
        facts = facts_of(config.model, backbone)
        if foreign := foreign_architecture(backbone.folder):
            raise BadInput(
                f"{backbone.name} is a {foreign}, which transformers does not have, and no folder "
                "of sentence-transformers: save it with MultiVectorEncoder(...).save"
            )
        around = rows_of(facts.texts, backbone, facts.tokenizer())
        check_rows(config, backbone, around, limits_of(facts, backbone))

    def encode(self, inputs: EncoderInput) -> Tensor:
        """best_CW: the similarity of each token of a row's query to the most similar one of its
        text, divided by their number for a mean; 0 behind the query."""
        asked = distinct_queries(inputs)
        query, text = self.queries(inputs, asked.rows), self.texts(inputs)
        with torch.autocast(inputs.device.type, enabled=False):
            similar_CWT = query.x_CTD[asked.of_C] @ text.x_CTD.mT
        best_CW = similar_CWT.masked_fill(~text.compared_CT[:, None], float("-inf")).amax(-1)
        compared_CW = query.compared_CT[asked.of_C]
        num_C1 = compared_CW.sum(1, keepdim=True).clamp(min=1)
        best_CW = best_CW.where(text.compared_CT.any(1, keepdim=True), NO_TOKEN / num_C1)
        if self.facts.similarity == "meanmaxsim":
            best_CW = best_CW / num_C1
        best_CW = best_CW.masked_fill(~compared_CW, 0.0)
        return pad(best_CW, (0, self.width - best_CW.shape[1]))

    def queries(self, inputs: EncoderInput, rows: list[int]) -> TokenVectors:
        """The queries of some rows."""
        ids_QW, mask_QW, flat = read = query_rows(inputs, rows, self.query_row, self.query_end)
        added = self.facts.expansion
        if added is None:
            return self.vectors(read, mask_QW > 0, "query")
        wider = (0, max(0, added.length - ids_QW.shape[1]))
        ids_QW, mask_QW = pad(ids_QW, wider, value=self.query_end.pad_id), pad(mask_QW, wider)
        place_W = torch.arange(mask_QW.shape[1], device=ids_QW.device)
        new_QW = (mask_QW == 0) & (place_W < added.length)
        ids_QW, real_QW = ids_QW.masked_fill(new_QW, added.token), mask_QW > 0
        scored_QW = real_QW | new_QW if added.attended or self.facts.has_mask else real_QW
        if added.attended:
            lengths = [max(length, added.length) for length in flat.lengths]
            flat = on(ids_QW.device, rows_of_lengths(lengths, ids_QW.shape[1]))
            return self.vectors(
                TextRows(ids_QW, (real_QW | new_QW).long(), flat), scored_QW, "query"
            )
        # Tokens that are read but not attended to: rows without padding cannot have them.
        output = self.encoder(input_ids=ids_QW, attention_mask=mask_QW)
        return self.projected(output.last_hidden_state, ids_QW, scored_QW, "query")

    def texts(self, inputs: EncoderInput) -> TokenVectors:
        """The texts of all rows. Within one ranking each is read once."""
        ranks, kept = _KEPT.get() or (None, None)
        if kept is None or ranks is not self or not inputs.texts:
            read = text_rows(inputs, self.chunk_row, self.text_end)
            return self.vectors(read, read.mask_CW > 0, "document")
        known = kept.texts
        first = {text: row for row, text in reversed([*enumerate(inputs.texts)])}
        of = {text: known[text] for text in first if text in known}
        if new := {text: row for text, row in first.items() if text not in of}:
            read = text_rows(inputs, self.chunk_row, self.text_end, [*new.values()])
            x_NTD, compared_NT = self.vectors(read, read.mask_CW > 0, "document")
            for place, (text, length) in enumerate(zip(new, read.flat.lengths, strict=True)):
                # Copies: a view would keep the whole batch.
                of[text] = x_NTD[place, :length].clone(), compared_NT[place, :length].clone()
                kept.add(text, *of[text])
        x, compared = zip(*(of[text] for text in inputs.texts), strict=True)
        return TokenVectors(pad_sequence([*x], True), pad_sequence([*compared], True))

    def vectors(self, rows: TextRows, scored_CW: Tensor, task: str) -> TokenVectors:
        """The tokens of rows; each row is independent of the others."""
        type_of_products = products(rows.ids_CW.device)
        hidden_CWH = row_states(self.encoder, self.facts.texts, *rows, type_of_products)
        return self.projected(hidden_CWH, rows.ids_CW, scored_CW, task)

    def projected(
        self, hidden_CWH: Tensor, ids_CW: Tensor, scored_CW: Tensor, task: str
    ) -> TokenVectors:
        """The vectors in fp32 of the states of tokens."""
        # Some encoders pad rows to whole blocks.
        hidden_CWH = at_least_fp32(hidden_CWH[:, : ids_CW.shape[1]])
        with torch.autocast(hidden_CWH.device.type, enabled=False):
            compared_CW = self.compared(ids_CW, scored_CW, task)
            return TokenVectors(self.head(hidden_CWH), compared_CW)

    def score(self, best_XW: Tensor) -> Tensor:
        """The sum over the query's tokens."""
        return best_XW.sum(-1)

    def aggregate(self, best_BPW: Tensor, mask_BP: Tensor) -> Tensor:
        """The best window's sum, or the sum of the best similarities in all windows."""
        if self.by_window:
            return masked_max(self.score(best_BPW), mask_BP)
        return self.score(masked_max(best_BPW, mask_BP))


def facts_of(settings: Model, backbone: Backbone) -> MultiVector:
    """What the folder of a backbone says of its late-interaction model, with the prompts of the
    settings."""
    return read_multi_vector(backbone.name, **settings.given_prompts)


def limits_of(facts: MultiVector, backbone: Backbone) -> tuple[int, int]:
    """The tokens of the rows of a query and of a text, with prompt and special tokens."""
    usual, most = row_limit(facts.texts, backbone), backbone.max_input_tokens
    query = min(facts.query_length or usual, most, MOST_QUERY_TOKENS)
    return query, min(facts.document_length or usual, most)
