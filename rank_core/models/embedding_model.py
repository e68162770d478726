"""An embedding model as its folder says it is read: texts to vectors, and vectors to scores. Equal
to `encode_query`, `encode_document` and `similarity` of sentence-transformers.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from rank_core.arrays import Singles
from rank_core.encoders.embedder import Embedder, kept_dimensions, read_embedder
from rank_core.encoders.openvino_runtime import require_openvino
from rank_core.errors import BadInput, shown, unknown
from rank_core.machine import autocast_type, device_of, trial_device
from rank_core.models.runtimes import encoder_precision, require_computable, require_cpu
from rank_core.models.text_vectors import OpenVino, text_reader
from rank_core.settings.config import RUNTIMES, chosen_runtime
from rank_core.settings.training import INT8

BLOCK = 8192
"""Texts that are tokenised, and sorted by length, at a time."""


@dataclass(frozen=True, eq=False)
class EmbeddingModel:
    """Vectors of queries and documents, with the prompts, pooling, length and similarity of the
    model's folder.

    Examples:
        >>> model = EmbeddingModel.load("tiny-docs")
        >>> query_QD = model.encode_queries(["How is a file opened?"])
        >>> document_ND = model.encode_documents(["open() returns a file object.", "A tuple."])
        >>> model.scores(query_QD, document_ND).shape
        (1, 2)
    """

    name: str
    tokenizer: Any  # of transformers; it does not truncate by itself
    query_prompt: str
    document_prompt: str
    max_length: int  # tokens of a row with prompt and special tokens; the rest is cut
    dimensions: int
    similarity: str  # cosine, dot, euclidean or manhattan
    chain: str  # its modules, in words
    notes: tuple[str, ...]  # what a plan says about the reading, in sentences
    content_hash: str  # of weights, configuration, prompts, dimensions and precision
    vectors_hash: str  # of all that decides the vectors of `encode_whole`
    all_dimensions: int  # of which `dimensions` are kept
    device: torch.device
    _encode: Callable[[list[str], bool], Singles]  # of texts; whether they are queries

    @classmethod
    def load(
        cls,
        path: str,
        *,
        trust_code: bool = False,
        truncate_dim: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        device: str | torch.device | None = None,
        precision: str = "fp32",
        runtime: str = "auto",
        documents: Sequence[str] = (),
    ) -> "EmbeddingModel":
        """The embedding model in a folder, or under a Hugging Face id, on a GPU if there is one.

        Vectors are cut to `truncate_dim` dimensions; prompts replace those of the folder. Code that
        a folder brings along runs only with `trust_code`. On a CPU the `runtime` may be openvino
        (extra `openvino`), which int8 needs, as it needs `documents`, a few dozens of those that
        will be encoded: they show the ranges of activations. Raises `BadInput` for a reranker, for
        a module that cannot be read, for damaged files, and for more dimensions than it has.
        """
        facts = read_embedder(path, query_prompt=query_prompt, document_prompt=document_prompt)
        if truncate_dim is not None:
            facts = replace(facts, truncate_dim=truncate_dim)
        place = trial_device() if device is None else device_of("device", device)
        autocast = autocast_type(precision, place)
        openvino = _openvino(precision, runtime, autocast, place, documents)
        reader = text_reader(facts, place, autocast, trust_code=trust_code, openvino=openvino)
        kept_dim = kept_dimensions(facts, reader.dimensions)
        named, of_documents = facts.content_hashes()
        model = cls(
            name=path,
            tokenizer=reader.tokenizer,
            query_prompt=facts.query_prompt,
            document_prompt=facts.document_prompt,
            max_length=reader.max_length,
            dimensions=kept_dim,
            similarity=facts.similarity,
            chain=facts.described,
            notes=_notes(facts, reader.unread, trust_code=trust_code),
            content_hash=_hash(named, kept_dim, autocast, openvino),
            vectors_hash=_hash(of_documents, reader.dimensions, autocast, openvino),
            all_dimensions=reader.dimensions,
            device=place,
            _encode=reader.encode,
        )
        for prompt in (facts.query_prompt, facts.document_prompt):
            if model.length_of(prompt) >= model.max_length:
                raise BadInput(
                    f"{path} reads {model.max_length} tokens, which the prompt {shown(prompt)} "
                    "fills with the special tokens: no text fits behind it"
                )
        return model

    def length_of(self, text: str) -> int:
        """The tokens of a text with the special tokens of a row, not truncated."""
        return len(self.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    @property
    def max_window(self) -> int:
        """The tokens of a document that fit behind prompt and special tokens."""
        return self.max_length - self.length_of(self.document_prompt)

    def check_window(self, window: int) -> None:
        """Raises `BadInput` for a window whose end would be cut."""
        if window > self.max_window:
            around = self.max_length - self.max_window
            raise BadInput(
                f"chunking.window <= {self.max_window} must hold for {self.name}, which reads "
                f"{self.max_length} tokens, {around} of them prompt and special tokens; got "
                f"chunking.window={window}"
            )

    def encode_queries(self, texts: Sequence[str]) -> Singles:
        """vector_QD of queries, each with the prompt before it."""
        return self._vectors(list(texts), queries=True)[:, : self.dimensions]

    def encode_documents(
        self, texts: Sequence[str], titles: Sequence[str] | None = None
    ) -> Singles:
        """vector_ND of documents or chunks, each with the prompt before it. A title comes between
        both, followed by a space."""
        return self.encode_whole(texts, titles)[:, : self.dimensions]

    def encode_whole(self, texts: Sequence[str], titles: Sequence[str] | None = None) -> Singles:
        """The same in all dimensions."""
        if titles is not None:
            pairs = zip(titles, texts, strict=True)
            texts = [f"{title} {text}" if title else text for title, text in pairs]
        return self._vectors(list(texts), queries=False)

    def _vectors(self, texts: list[str], *, queries: bool) -> Singles:
        if wrong := next((text for text in texts if not isinstance(text, str)), None):
            raise BadInput(f"an embedding model reads texts, got {shown(wrong)}")
        if not texts:
            return np.zeros((0, self.all_dimensions), np.float32)
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        return np.concatenate([self._encode(block, queries) for block in blocks])

    def scores(self, query_QD: Singles, document_ND: Singles) -> Singles:
        """score_QN by the model's similarity; distances are negative, so that more is better."""
        query, document = (
            torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(self.device)
            for x in (query_QD, document_ND)
        )
        return SIMILARITY[self.similarity](query, document).cpu().numpy()


def _cosine(query_QD: Tensor, document_ND: Tensor) -> Tensor:
    return normalize(query_QD, dim=1) @ normalize(document_ND, dim=1).T


def _distance(p: float) -> Callable[[Tensor, Tensor], Tensor]:
    # Without products: they round, and by more for larger blocks.
    exact = "donot_use_mm_for_euclid_dist"
    return lambda query, document: -torch.cdist(query, document, p=p, compute_mode=exact)


SIMILARITY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": _cosine,
    "dot": lambda query, document: query @ document.T,
    "euclidean": _distance(2.0),
    "manhattan": _distance(1.0),
}
"""{name in a model's folder: score_QN of vectors}."""


def _notes(facts: Embedder, unread: Sequence[str], *, trust_code: bool) -> tuple[str, ...]:
    """What a plan says about the reading of a folder, in sentences."""
    found = list(facts.notes)
    if not facts.is_stated:
        found.insert(0, f"It has no modules.json: a text's vector is the {facts.described}.")
    if unread:
        found.append(f"Weights beside the encoder are not read: {', '.join(unread)}.")
    if facts.own_code and not trust_code:
        found.append(f"The code that {facts.own_code} brings along is not run.")
    if facts.library:
        found.append(f"sentence-transformers computes its vectors: {facts.library}.")
    return tuple(found)


def _openvino(
    precision: str,
    runtime: str,
    autocast: torch.dtype | None,
    device: torch.device,
    documents: Sequence[str],
) -> OpenVino | None:
    """How OpenVINO computes the encoder; None: torch does."""
    if runtime not in RUNTIMES:
        raise unknown("runtime", runtime, RUNTIMES)
    runtime, quantizes = chosen_runtime(runtime, precision), precision == INT8
    require_computable(runtime, precision)
    if runtime == "torch":
        return None
    require_cpu(device)
    require_openvino(quantizes=quantizes)
    if quantizes and not documents:
        raise BadInput("precision=int8 needs documents, which show the ranges of activations")
    return OpenVino(encoder_precision(precision, autocast), tuple(documents) if quantizes else ())


def _hash(
    facts: str, dimensions: int, autocast: torch.dtype | None, openvino: OpenVino | None
) -> str:
    runtime = f" {openvino!r}" if openvino else ""  # vectors of torch keep their hash
    return hashlib.sha256(f"{facts} {dimensions} {autocast}{runtime}".encode()).hexdigest()[:16]
