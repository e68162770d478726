"""MS MARCO passages. The official thousand passages of a query have no order, so BM25 ranks.

A BM25 index over all 8.8 million passages takes some 10 GB of memory while it is built; a run file
in its place saves that.
"""

from rank_core.data.named.recipe import Part, Recipe

_ID = "msmarco-passage"


def _part(name: str, prefix: str = "") -> Part:
    return Part(f"{_ID}/{name}", prefix=prefix, candidates=())


_TRAIN = {"train": (_part("train/judged"),), "dev": (_part("dev/small"),)}
_DL19, _DL20 = "trec-dl-2019/judged", "trec-dl-2020/judged"

MSMARCO_PASSAGES: dict[str, Recipe] = {
    "msmarco-passage": Recipe(_TRAIN | {"test": (_part(_DL19),)}),
    "msmarco-passage-dl20": Recipe(_TRAIN | {"test": (_part(_DL20),)}),
    "msmarco-passage-dl19-20": Recipe(
        _TRAIN | {"test": (_part(_DL19, "dl19/"), _part(_DL20, "dl20/"))}
    ),
}
