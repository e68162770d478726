"""Transforms by the name they have in a collection expression."""

from rank_core.data.transforms.debias import Debias
from rank_core.data.transforms.far_relevant import FarRelevant
from rank_core.data.transforms.first_stage import FirstStage
from rank_core.data.transforms.judgments import Deep, Shallow
from rank_core.data.transforms.transform import Transform

TRANSFORMS: dict[str, type[Transform]] = {
    "far-relevant": FarRelevant,
    "first-stage": FirstStage,
    "debias": Debias,
    "deep": Deep,
    "shallow": Shallow,
}
