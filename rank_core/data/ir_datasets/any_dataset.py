"""Any other ir_datasets id as a collection: its own judgments, and those of its sister splits."""

from rank_core.data.ir_datasets.collection import load_recipe
from rank_core.data.ir_datasets.source import IrSource, known_ids
from rank_core.data.named import Part, Recipe
from rank_core.errors import BadInput
from rank_core.records import Collection

PREFIX = "ir:"
SPLITS = ("train", "dev", "test")


def is_dataset(name: str) -> bool:
    """Whether ir_datasets lists this id."""
    return name in known_ids()


def load_dataset(dataset_id: str) -> Collection:
    """The collection of an ir_datasets id, under the name `ir:ID`."""
    recipe = recipe_of(dataset_id)
    return load_recipe(f"{PREFIX}{dataset_id}", recipe)


def recipe_of(dataset_id: str) -> Recipe:
    """Which splits an id stands for.

    An id that ends in train, dev or test brings the other two along where they exist. An id
    without judgments of its own, such as `beir/nfcorpus`, stands for its train, dev and test. Any
    other id with judgments is a test set. Of crawled pages only the ranked and relevant are kept.
    """
    base, _, last = dataset_id.rpartition("/")
    judged = _is_judged(dataset_id)
    if judged and last not in SPLITS:
        is_web = IrSource(dataset_id).is_web
        return Recipe({"test": (Part(dataset_id),)}, ranked_only=is_web)
    base = base if judged else dataset_id
    ids = {split: f"{base}/{split}" for split in SPLITS}
    parts = {
        split: (Part(id_),) for split, id_ in ids.items() if is_dataset(id_) and _is_judged(id_)
    }
    if not parts:
        raise BadInput(
            f"{dataset_id} must have documents, queries and qrels, or a train, dev or test that has"
        )
    return Recipe(parts)


def _is_judged(dataset_id: str) -> bool:
    source = IrSource(dataset_id)
    return all(source.has(entity) for entity in ("docs", "queries", "qrels"))
