"""An exported model as a transformer of PyTerrier:

    bm25 >> pt.text.get_text(index) >> ranksweep.pt.Reranker("FOLDER")

In a checkout `pip install '.[pyterrier]'` brings PyTerrier, which starts no Java for this.
"""

from pathlib import Path

import pandas as pd
import pyterrier as pt

import rank_core


class Reranker(pt.Transformer):
    """A transformer that rescores the documents of each query, from the columns qid, query, docno
    and text."""

    def __init__(
        self,
        folder: str | Path,
        *,
        text_field: str = "text",
        device: str = "",
        trust_code: bool = False,
    ) -> None:
        load = rank_core.Reranker.load
        self.reranker = load(folder, device=device or None, trust_code=trust_code)
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The same rows by falling score, with the columns `score` and `rank`."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field])
        qids, docnos = inp["qid"].astype(str), inp["docno"].astype(str)
        first_stage = inp["score"] if "score" in inp.columns else [0.0] * len(inp)
        run: dict[str, dict[str, float]] = {}
        for qid, docno, score in zip(qids, docnos, first_stage, strict=True):
            run.setdefault(qid, {})[docno] = float(score)
        queries = dict(zip(qids, inp["query"], strict=True))
        documents = dict(zip(docnos, inp[self.text_field], strict=True))
        scores = self.reranker.rerank(run, queries, documents, depth=max(1, len(inp)))
        scored = inp.assign(
            score=[scores[qid][docno] for qid, docno in zip(qids, docnos, strict=True)]
        )
        return pt.model.add_ranks(scored).sort_values(["qid", "rank"], kind="stable")
