"""What makes vectors of texts: an encoder with the modules behind it, on batches of rows of similar
length, or sentence-transformers itself.
"""

import contextlib
import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from rank_core.arrays import Singles
from rank_core.chunking.batches import batch_tokens_on, batches_by_length
from rank_core.encoders.any_kind import vector_size
from rank_core.encoders.backbones import load_encoder, own_tokenizer, resolve_backbone
from rank_core.encoders.checkpoint import quietly
from rank_core.encoders.copies import kept
from rank_core.encoders.embedder import Embedder, width_behind
from rank_core.encoders.flat_rows import on, rows_of_lengths
from rank_core.encoders.module_chain import ModuleStack, require_library
from rank_core.encoders.openvino_runtime import INPUTS, CompiledEncoder, Row
from rank_core.encoders.packed import kept_weights, packs
from rank_core.encoders.saved_model import LIBRARY
from rank_core.errors import BadInput, OutOfMemory, not_installed
from rank_core.machine import is_out_of_memory, release_memory
from rank_core.models.embedding_rows import SpreadEncoder, row_states
from rank_core.models.poolings import at_least_fp32, row_vectors
from rank_core.models.runtimes import ROWS_AT_ONCE, compiled

NO_LIMIT = 2**31 - 1
"""Tokens of a row where nothing limits them."""


class OpenVino(NamedTuple):
    """The precision of an encoder that OpenVINO computes, and documents that show the ranges of
    activations for int8."""

    precision: str
    documents: tuple[str, ...] = ()


class TextReader:
    """Texts to vectors, by the facts of a folder."""

    tokenizer: Any  # of transformers
    max_length: int  # tokens of a row
    dimensions: int
    unread: tuple[str, ...] = ()  # parts of the checkpoint whose weights are not used

    def encode(self, texts: list[str], queries: bool) -> Singles:
        """vector_ND of queries or of documents, in the order of the texts."""
        raise NotImplementedError


def text_reader(
    facts: Embedder,
    device: torch.device,
    autocast: torch.dtype | None,
    *,
    trust_code: bool,
    openvino: OpenVino | None = None,
) -> TextReader:
    """The reader that `facts` ask for, with products in type `autocast`, or by `openvino`. Raises
    `BadInput` for code of a folder that is not trusted, and for a model that does not load."""
    if facts.needs_code and not trust_code:
        raise BadInput(
            f"{facts.name} brings along the code of {facts.own_code}, which is never run unless "
            "you read it and trust it: EmbeddingModel.load(..., trust_code=True)"
        )
    if not facts.library and not (facts.own_code and trust_code):
        return ChainReader(facts, device, autocast, openvino)
    if openvino is not None:
        raise BadInput(
            f"OpenVINO computes encoders that ranksweep reads; {facts.name} is read by "
            "sentence-transformers: use evaluation.runtime=torch"
        )
    if find_spec(LIBRARY) is None:
        what = f"sentence-transformers, which has to read {facts.name} ({facts.library}),"
        raise not_installed(what, "serve")
    return LibraryReader(facts, device, autocast, trust_code=trust_code)


class ChainReader(TextReader):
    """An encoder, a pooling and the modules behind it. The vector of a text without any token is
    zero."""

    def __init__(
        self,
        facts: Embedder,
        device: torch.device,
        autocast: torch.dtype | None,
        openvino: OpenVino | None = None,
    ) -> None:
        require_library(facts.pooling)
        backbone = resolve_backbone(facts.name)
        self.openvino, self.backbone = openvino, backbone
        self.facts, self.device, self.autocast = facts, device, autocast
        self.pad_id = backbone.pad_id
        self.tokenizer = own_tokenizer(backbone.folder)
        # A tokenizer that has cut once cuts whoever asks its Rust part directly.
        self._cutting = copy.deepcopy(self.tokenizer)
        stated = facts.max_length or self.tokenizer.model_max_length
        self.max_length = min(stated, backbone.max_input_tokens)
        encoder: Any = load_encoder(backbone, 0.0)
        self.unread = getattr(encoder, "unread_weights", ())
        self.encoder = encoder.to(device).eval()
        layers = ModuleStack(facts.folder, facts.steps).eval()
        size = vector_size(self.encoder.config)
        self.dimensions = width_behind(facts, layers, size, facts.pooling)
        self.layers = layers.to(device)

    def encode(self, texts: list[str], queries: bool) -> Singles:
        """vector_ND of queries or of documents, in the order of the texts."""
        prompt = self.facts.query_prompt if queries else self.facts.document_prompt
        rows = self._rows([prompt + text for text in texts])
        vector_ND = np.zeros((len(rows), self.dimensions), np.float32)
        read = [place for place, row in enumerate(rows) if row]
        batches = batches_by_length(
            [len(rows[place]) for place in read],
            batch_tokens_on(self.device),
            self.device,
            flat=packs(self.encoder, self.autocast),
        )
        with torch.inference_mode(), self._precision():
            for batch in batches:
                places = [read[i] for i in batch]
                vector_ND[places] = self._vectors([rows[place] for place in places]).cpu().numpy()
        return vector_ND

    def _rows(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, cut at the limit."""
        rows: list[list[int]] = self._cutting(
            texts,
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        return rows

    @cached_property
    def compiled(self) -> CompiledEncoder | None:
        """The encoder computed by OpenVINO, made when the first text is encoded; None: by torch."""
        if self.openvino is None:
            return None
        step = self.facts.position_step
        encoder = SpreadEncoder(self.encoder, step) if step > 1 else self.encoder
        return compiled(
            encoder, self.backbone, self.openvino.precision, self._ranges, segments=False
        )

    def _ranges(self) -> list[Row]:
        assert self.openvino is not None
        texts = [self.facts.document_prompt + text for text in self.openvino.documents]
        rows = sorted(filter(None, self._rows(texts)), key=len)
        batches = [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
        given = (self._padded(batch) for batch in batches)
        return [dict(zip(INPUTS, (ids.numpy(), mask.numpy()), strict=False)) for ids, mask in given]

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        wanted = self.autocast
        products = torch.autocast(self.device.type, dtype=wanted, enabled=wanted is not None)
        copies = kept_weights(self.encoder, wanted) if packs(self.encoder, wanted) else {}
        with products, kept(copies):
            yield

    def _vectors(self, rows: list[list[int]]) -> Tensor:
        """x_CD in fp32; in two halves where the GPU's memory does not hold them together."""
        try:
            return self._vectors_together(rows)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Outside of the except block the failed pass no longer holds memory.
        release_memory()
        if len(rows) == 1:
            raise OutOfMemory(
                f"the GPU's memory cannot hold a row of {len(rows[0])} tokens of "
                f"{self.facts.name}; use shorter windows or a larger GPU"
            )
        half = len(rows) // 2
        return torch.cat([self._vectors(rows[:half]), self._vectors(rows[half:])])

    def _padded(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """(ids_CL, mask_CL) on the host."""
        lengths = [len(row) for row in rows]
        width = max(lengths)
        padded = [row + [self.pad_id] * (width - len(row)) for row in rows]
        real = torch.arange(width) < torch.tensor(lengths)[:, None]
        return torch.tensor(padded), real.long()

    def _vectors_together(self, rows: Sequence[list[int]]) -> Tensor:
        ids_CL, mask_CL = (on(self.device, part) for part in self._padded(rows))
        if self.compiled is not None:
            hidden_CLH = self.compiled(ids_CL, mask_CL, None)
        else:
            flat = on(self.device, rows_of_lengths([*map(len, rows)], ids_CL.shape[1]))
            hidden_CLH = row_states(self.encoder, self.facts, ids_CL, mask_CL, flat, self.autocast)
        pooled_CH = at_least_fp32(row_vectors(hidden_CLH, mask_CL, self.facts.pooling))
        with torch.autocast(self.device.type, enabled=False):
            vectors: Tensor = self.layers(pooled_CH)
        return vectors


class LibraryReader(TextReader):
    """A model of sentence-transformers, for what is not computed here."""

    def __init__(
        self,
        facts: Embedder,
        device: torch.device,
        autocast: torch.dtype | None,
        *,
        trust_code: bool,
    ) -> None:
        from sentence_transformers import SentenceTransformer

        self.device, self.autocast = device, autocast
        try:
            with quietly():
                self.model: Any = SentenceTransformer(
                    str(facts.folder),
                    device=str(device),
                    prompts={"query": facts.query_prompt, "document": facts.document_prompt},
                    trust_remote_code=trust_code,
                    local_files_only=True,
                    model_kwargs={"dtype": torch.float32},
                )
            self.model.truncate_dim = None  # whoever reads the vectors cuts them
            own = self.model.tokenizer
            if not isinstance(own, PreTrainedTokenizerBase):
                own = PreTrainedTokenizerFast(tokenizer_object=own)
            self.max_length = min(self.model.max_seq_length or NO_LIMIT, NO_LIMIT)
            [vector] = self.model.encode_document(["a text"], show_progress_bar=False)
            self.dimensions = len(vector)
        except Exception as error:  # of any kind: of its modules, and of a folder's own code
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadInput(
                f"sentence-transformers cannot read {facts.name} (its modules: {facts.described}): "
                f"{reason}"
            ) from None
        self.tokenizer = own

    def encode(self, texts: list[str], queries: bool) -> Singles:
        """vector_ND of queries or of documents, in the order of the texts."""
        encode = self.model.encode_query if queries else self.model.encode_document
        wanted = self.autocast
        with torch.autocast(self.device.type, dtype=wanted, enabled=wanted is not None):
            return np.asarray(encode(texts, show_progress_bar=False), np.float32)
