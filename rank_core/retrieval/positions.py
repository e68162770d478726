"""Where the relevant text of a query begins in its documents."""

from collections.abc import Collection

from rank_core.chunking.inputs import Inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.retrieval.collection import evidence_of


def evidence_positions(name: str, inputs: Inputs, query_ids: Collection[str]) -> dict[str, int]:
    """{query_id: tokens of the backbone before the first relevant text of any of its documents}, of
    the queries whose spans the collection knows."""
    documents, tokenizer = inputs.collection.documents, load_tokenizer(inputs.backbone.folder)
    return {
        query_id: min(
            len(tokenizer.encode(documents[place.doc_id][: place.start], add_special_tokens=False))
            for place in places
        )
        for query_id, places in evidence_of(name, inputs.collection).items()
        if query_id in query_ids
    }
