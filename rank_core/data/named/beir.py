"""BEIR: one table, since only ids and splits differ. Text is title and text; BM25 ranks.

Touche is its corrected second version (`v2`). There is no
Robust04 in BEIR as ir_datasets has it: `robust04-title` is that collection.
"""

from rank_core.data.named.recipe import Recipe, splits

_SPLITS = {
    "arguana": (),
    "climate-fever": (),
    "dbpedia-entity": ("dev", "test"),
    "fever": ("train", "dev", "test"),
    "fiqa": ("train", "dev", "test"),
    "hotpotqa": ("train", "dev", "test"),
    "msmarco": ("train", "dev", "test"),
    "nfcorpus": ("train", "dev", "test"),
    "nq": (),
    "quora": ("dev", "test"),
    "scidocs": (),
    "scifact": ("train", "test"),
    "trec-covid": (),
    "webis-touche2020": (),
}
_IDS = {"webis-touche2020": "beir/webis-touche2020/v2"}
_FORUMS = (
    "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress"
)


def _recipe(dataset_id: str, names: tuple[str, ...]) -> Recipe:
    """A dataset without splits is a test set."""
    if not names:
        return Recipe(splits(test=dataset_id))
    return Recipe(splits(**{name: f"{dataset_id}/{name}" for name in names}))


BEIR: dict[str, Recipe] = {
    f"beir-{name}": _recipe(_IDS.get(name, f"beir/{name}"), names)
    for name, names in _SPLITS.items()
} | {
    f"beir-cqadupstack-{forum}": _recipe(f"beir/cqadupstack/{forum}", ())
    for forum in _FORUMS.split()
}
