"""The bi-encoder: query and chunk are encoded separately and compared by the similarity of their
vectors: that of an embedding model's folder, or else the cosine of mean vectors (E5, Wang et al.
2022; E5-Base-4k, Zhu et al. 2024). It can rank without training."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rank_core.chunking.encoder_input import EncoderInput
from rank_core.encoders.any_kind import vector_size
from rank_core.encoders.backbone_types import ANY, Backbone, type_of
from rank_core.encoders.backbones import load_config, load_tokenizer
from rank_core.encoders.checkpoint import foreign_architecture
from rank_core.encoders.decoder_rerankers import prompt_tokens
from rank_core.encoders.embedder import Embedder, kept_dimensions, read_trained, width_behind
from rank_core.encoders.flat_rows import FlatRows
from rank_core.encoders.module_chain import ModuleStack, marks_around
from rank_core.encoders.packed import products
from rank_core.encoders.saved_model import MULTI_VECTOR, SPARSE
from rank_core.errors import BadInput
from rank_core.models.embedding_rows import (
    Around,
    RowEnd,
    distinct_queries,
    query_rows,
    row_states,
    text_rows,
)
from rank_core.models.poolings import at_least_fp32, masked_max, row_vectors
from rank_core.models.ranker import Ranker
from rank_core.models.ranking_system import BEST_CHUNKS_FIRST
from rank_core.settings.config import Model, TrialConfig


class BiEncoder(Ranker):
    """score = w max_p s(query, chunk_p), with the similarity s of the embedding model, the cosine
    by default; w = 1 / temperature initially where vectors have length 1, else 1.

    Train it with a contrastive loss: cosines lie close together, so a margin of 1 is rarely met.
    """

    label = "Bi-encoder"
    waits = (BEST_CHUNKS_FIRST,)
    rates = ("backbone", "head")
    paper = "Zhu et al. 2024"
    citation = (
        "LongEmbed: Extending Embedding Models for Long Context Retrieval. EMNLP 2024, "
        "arXiv:2404.12096"
    )
    family = "long context"
    reads_tokens = True
    reads_pairs = False
    one_chunk_is_firstp = False
    chunks_that_learn = 1
    options = ("pool", "query_prompt", "document_prompt", "truncate_dim")
    TEMPERATURE: ClassVar[float] = 0.01  # of E5's contrastive loss

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.backbone = backbone
        self.facts = facts_of(settings, backbone)
        self.query_row, self.chunk_row = rows_of(self.facts, backbone)
        self.limit = row_limit(self.facts, backbone)
        self.row = RowEnd(self.limit, backbone.pad_id)
        self.projection = ModuleStack(self.facts.folder, self.facts.steps)
        self.dimensions = dimensions_of(self.facts, self.projection, backbone, self.pooling)
        self.head = nn.Linear(1, 1, bias=False)
        of_unit = self.facts.similarity == "cosine" or self.facts.ends_normalised
        nn.init.constant_(self.head.weight, 1 / self.TEMPERATURE if of_unit else 1.0)

    @classmethod
    def pooling_of(cls, settings: Model, backbone: Backbone) -> str:
        """That of the embedding model; the mean of an encoder alone, whatever its own."""
        if settings.pool:
            return backbone.row_pooling(settings.pool)
        facts = facts_of(settings, backbone)
        return facts.pooling if facts.is_stated else "mean"

    @classmethod
    def backbone_of(cls, settings: Model, backbone: Backbone) -> Backbone:
        """The backbone whose texts begin with the space that ends the prompts, where their
        tokens differ by it."""
        return begun(cls.rows_over(backbone), *rows_of(facts_of(settings, backbone), backbone))

    @classmethod
    def stated_settings(cls, settings: Model, backbone: Backbone) -> dict[str, Any]:
        """Prompts and dimensions; 0: all."""
        return facts_of(settings, backbone).stated_settings

    @classmethod
    def notes(cls, settings: Model, backbone: Backbone) -> tuple[str, ...]:
        """How texts become vectors, in words, and what the folder leaves open."""
        facts = facts_of(settings, backbone)
        given = (facts.query_prompt, facts.document_prompt)
        prompts = f"prompts {given[0]!r} and {given[1]!r}" if any(given) else "no prompts"
        how = f"pooling {cls.pooling_of(settings, backbone)}, {facts.similarity}, {prompts}"
        stated = "" if facts.is_stated else "; the folder says nothing of pooling (no modules.json)"
        return (how + stated, *facts.notes)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Raises `BadInput` for rows that would be cut, and more dimensions than there are."""
        super().check(config, backbone)
        learned = config.training.num_epochs or config.training.init_from
        if not learned and (foreign := foreign_architecture(backbone.folder)):
            raise BadInput(
                f"{backbone.name} is a {foreign}, which transformers does not have: the vectors of "
                "its encoder alone are not what it was trained for; train it first"
            )
        facts = facts_of(config.model, backbone)
        if not learned and facts.task in (SPARSE, *MULTI_VECTOR):
            other = ", or rank with model.name=late-interaction" if facts.task != SPARSE else ""
            raise BadInput(
                f"{backbone.name} {facts.other_task}: the vectors of its encoder alone are "
                f"not what it was trained for; train it first{other}"
            )
        modules = ModuleStack(facts.folder, facts.steps)
        dimensions_of(facts, modules, backbone, cls.pooling_of(config.model, backbone))
        limit = row_limit(facts, backbone)
        check_rows(config, backbone, rows_of(facts, backbone), (limit, limit))

    def encode(self, inputs: EncoderInput) -> Tensor:
        """s_C1 of each row's query and its chunk."""
        asked = distinct_queries(inputs)
        query_QH = self.vectors(*query_rows(inputs, asked.rows, self.query_row, self.row))
        chunk_CH = self.vectors(*text_rows(inputs, self.chunk_row, self.row))
        return PAIRS[self.facts.similarity](query_QH[asked.of_C], chunk_CH)[:, None]

    def vectors(self, ids_CL: Tensor, mask_CL: Tensor, flat: FlatRows) -> Tensor:
        """Vectors x_CH in fp32; each row is independent of the others."""
        hidden_CLH = row_states(
            self.encoder, self.facts, ids_CL, mask_CL, flat, products(ids_CL.device)
        )
        pooled_CH = at_least_fp32(row_vectors(hidden_CLH, mask_CL, self.pooling))
        with torch.autocast(pooled_CH.device.type, enabled=False):
            x_CH: Tensor = self.projection(pooled_CH)[:, : self.dimensions]
        return normalize(x_CH, dim=-1) if self.facts.similarity == "cosine" else x_CH

    def score(self, cls_H: Tensor) -> Tensor:
        """The scaled similarity."""
        return self.head(cls_H).squeeze(-1)

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """The maximum over chunk scores."""
        return masked_max(self.score(x_BPH), mask_BP)


def facts_of(settings: Model, backbone: Backbone) -> Embedder:
    """What the folder of a backbone says of its embedding model, with the prompts and dimensions of
    the settings."""
    facts = read_trained(backbone.name, **settings.given_prompts)
    return replace(facts, truncate_dim=settings.truncate_dim or facts.truncate_dim)


def rows_of(facts: Embedder, backbone: Backbone, tokenizer: Any = None) -> tuple[Around, Around]:
    """The rows of queries and of chunks: prompt and text between the special tokens of the
    embedding model's tokenizer; of an encoder alone of the kinds in `TYPES` [CLS] and [SEP].
    Another `tokenizer` than the backbone's may read the prompts."""
    tokenizer = tokenizer or load_tokenizer(backbone.folder)
    own = (backbone.cls_id,), (backbone.sep_id,)
    stated = facts.is_stated or type_of(backbone.kind) is ANY
    start, end = marks_around(tokenizer) if stated else own
    rows = []
    for prompt in (facts.query_prompt, facts.document_prompt):
        tokens, before = prompt_tokens(facts.name, tokenizer, prompt) if prompt else ((), "")
        rows.append(Around((*start, *tokens), end, before))
    return rows[0], rows[1]


def begun(backbone: Backbone, query: Around, chunk: Around) -> Backbone:
    """The backbone with the texts before queries and chunks that end their prompts."""
    if not query.before and not chunk.before:
        return backbone
    layout = backbone.layout._replace(before_query=query.before, before_text=chunk.before)
    return replace(backbone, own_layout=layout)


def check_rows(
    config: TrialConfig, backbone: Backbone, around: Sequence[Around], limits: Sequence[int]
) -> None:
    """Raises `BadInput` for queries or windows of which a part would be cut."""
    chunking = config.chunking
    sizes = {"max_query_tokens": chunking.max_query_tokens, "window": chunking.window}
    for (name, size), row, limit in zip(sizes.items(), around, limits, strict=True):
        if size > limit - row.num_tokens:
            raise BadInput(
                f"chunking.{name} <= {limit - row.num_tokens} must hold for {backbone.name}, "
                f"which reads {limit} tokens, {row.num_tokens} of them prompt and special "
                f"tokens; got chunking.{name}={size}"
            )


def dimensions_of(facts: Embedder, modules: ModuleStack, backbone: Backbone, pooling: str) -> int:
    """The dimensions of a vector. Raises `BadInput` for more of them than there are."""
    size = vector_size(load_config(backbone.name, backbone.folder))
    return kept_dimensions(facts, width_behind(facts, modules, size, pooling))


def row_limit(facts: Embedder, backbone: Backbone) -> int:
    """The tokens of a row, with prompt and special tokens."""
    if not facts.is_stated:
        return backbone.max_input_tokens
    stated = facts.max_length or load_tokenizer(backbone.folder).model_max_length
    return int(min(stated, backbone.max_input_tokens))


PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda x_CH, y_CH: (x_CH * y_CH).sum(-1),
    "dot": lambda x_CH, y_CH: (x_CH * y_CH).sum(-1),
    "euclidean": lambda x_CH, y_CH: -(x_CH - y_CH).norm(dim=-1),
    "manhattan": lambda x_CH, y_CH: -(x_CH - y_CH).abs().sum(-1),
}
"""{similarity: s_C of rows of vectors, which have length 1 for the cosine}."""
