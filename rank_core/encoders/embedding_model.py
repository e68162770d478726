"""TEMPORARY stand-in until the real one is merged."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class EmbeddingModel:
    def __init__(self, st: Any, content_hash: str) -> None:
        self.st, self.content_hash = st, content_hash
        self.tokenizer = st.tokenizer
        self.query_prompt = self.document_prompt = ""
        self.max_length = st.max_seq_length
        self.dimensions = st.get_embedding_dimension()
        self.similarity = st.similarity_fn_name
        self.device = st.device

    @classmethod
    def load(
        cls,
        path: str,
        *,
        trust_code: bool = False,
        truncate_dim: int | None = None,
        device: Any = None,
        precision: str = "fp32",
    ) -> "EmbeddingModel":
        from sentence_transformers import SentenceTransformer

        digest = hashlib.sha256()
        for file in sorted(Path(path).rglob("*")):
            if file.is_file():
                digest.update(file.read_bytes())
        return cls(
            SentenceTransformer(str(path), device=str(device or "cpu")), digest.hexdigest()[:16]
        )

    def encode_queries(self, texts: list[str]) -> Floats:
        return self.st.encode_query(list(texts), show_progress_bar=False)

    def encode_documents(self, texts: list[str], titles: list[str] | None = None) -> Floats:
        if titles:
            texts = [f"{a}\n{b}" if a else b for a, b in zip(titles, texts, strict=True)]
        return self.st.encode_document(list(texts), show_progress_bar=False)

    def scores(self, queries: Floats, documents: Floats) -> Floats:
        return np.asarray(self.st.similarity(queries, documents))
