"""`selected_blocks.json`: which blocks of its test candidates a model selects (figures 11 and 12
of KeyB, Li et al. 2023).

Its `blocks` has {number of blocks of a document: {"documents": how many documents of that many
blocks were read in part, "read": in how many of them each block was read}}, its `whole` the number
of documents of which all blocks were read, the last one perhaps cut; with folds the file has both
for each fold.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from rank_core import distributed
from rank_core.models.ranking_system import BlocksRead
from rank_core.ranking.encode import in_precision
from rank_core.ranking.scorer import Scorer

DOCUMENTS_AT_ONCE = 8


def selected_blocks(scorer: Scorer) -> dict[str, Any]:
    """The content of the file for the test candidates, the same on every worker."""
    parts = distributed.gather(list(_blocks_read(scorer)))
    return counted(document for part in parts for document in part)


def _blocks_read(scorer: Scorer) -> Iterator[BlocksRead]:
    """What is read of this worker's share of the test candidates."""
    model = scorer.model
    candidates = scorer.inputs.collection.splits["test"].candidates
    model.eval()
    with torch.inference_mode(), in_precision(model, scorer.autocast):
        for query_id, query in scorer.own_queries("test").items():
            doc_ids = list(candidates.get(query_id, ()))[: scorer.config.evaluation.depth]
            for start in range(0, len(doc_ids), DOCUMENTS_AT_ONCE):
                some = doc_ids[start : start + DOCUMENTS_AT_ONCE]
                yield from model.blocks_read(scorer.pairs, query, some)


def counted(documents: Iterable[BlocksRead]) -> dict[str, Any]:
    """The content of the file for these documents."""
    whole, in_part = 0, dict[int, list[BlocksRead]]()
    for document in documents:
        if len(document.blocks) == document.number:
            whole += 1
        else:
            in_part.setdefault(document.number, []).append(document)
    blocks = {}
    for number, read in sorted(in_part.items()):
        places = [block for document in read for block in document.blocks]
        counts = np.bincount(places, minlength=number).tolist()
        blocks[str(number)] = {"documents": len(read), "read": counts}
    return {"whole": whole, "blocks": blocks}
