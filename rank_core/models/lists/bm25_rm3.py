"""BM25 with RM3: the query, expanded by terms of its best documents, ranks the candidates."""

from collections.abc import Iterator, Mapping

from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3
from rank_core.models.lists.list_ranker import ListRanker, Ranking
from rank_core.records import Run

RM3 = Bm25Settings(rm3=Rm3())


class Bm25Rm3(ListRanker):
    """The candidates by the expanded query, with the settings of Anserini: 10 terms of the 10 best
    documents of the whole collection, half of the weight to the query's own.

    It indexes the collection in memory; for one of millions of documents, a run of Lucene's RM3
    (`rank_core.first_stage.lucene`) as the candidates is the way.
    """

    label = "BM25+RM3"
    paper = "Abdul-Jaleel et al. 2004"

    def rank(
        self, queries: Mapping[str, str], documents: Mapping[str, str], candidates: Run
    ) -> Iterator[Ranking]:
        """A candidate without any term of the expanded query has score 0."""
        index = Bm25Index(documents)
        for query_id, text in queries.items():
            [found] = index.run({query_id: text}, RM3, depth=max(1, len(documents))).values()
            yield (
                query_id,
                {doc_id: found.get(doc_id, 0.0) for doc_id in self.best(candidates, query_id)},
            )
