"""An exported model as a transformer of PyTerrier:

    bm25 >> pt.text.get_text(index) >> ranksweep.pt.Reranker("FOLDER")

In a checkout `pip install '.[pyterrier]'` brings PyTerrier, which starts no Java for this.
"""

from pathlib import Path

import pandas as pd
import pyterrier as pt

import rank_core
from rank_core.arguments import frame, takes, text
from ranksweep.frames import row_scores


class Reranker(pt.Transformer):  # type: ignore[misc]  # PyTerrier may be absent
    """A transformer that rescores the documents of each query, from the columns qid, query, docno
    and text; a docno may have another text for each query, as a snippet does."""

    @takes(text_field=text)
    def __init__(
        self,
        folder: str | Path,
        *,
        text_field: str = "text",
        device: str = "",
        trust_code: bool = False,
    ) -> None:
        load = rank_core.Reranker.load
        self.reranker = load(folder, device=None if device == "" else device, trust_code=trust_code)
        self.text_field = text_field

    @takes(inp=frame)
    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The same rows by falling score, with the columns `score` and `rank`. Raises `BadInput`
        for a query with two texts, and for a document twice in a query."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field])
        scored = inp.assign(score=row_scores(self.reranker, inp, self.text_field))
        return pt.model.add_ranks(scored).sort_values(["qid", "rank"], kind="stable")
