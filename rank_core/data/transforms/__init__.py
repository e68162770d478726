"""The data experiments of the papers: functions from a collection to another collection.

`python-docs|debias(seed=2)|deep(rate=0.1)` names a transformed collection; see `expression`. A new
transform is one file here and one line in `TRANSFORMS`.
"""

from rank_core.data.transforms.debias import Debias
from rank_core.data.transforms.expression import (
    Step,
    apply_transforms,
    base_of,
    make_transform,
    parse_collection_expression,
    with_base,
)
from rank_core.data.transforms.far_relevant import FarRelevant
from rank_core.data.transforms.first_stage import FirstStage
from rank_core.data.transforms.judgments import Deep, Shallow
from rank_core.data.transforms.registry import TRANSFORMS
from rank_core.data.transforms.transform import Transform, derived

__all__ = [
    "TRANSFORMS",
    "Debias",
    "Deep",
    "FarRelevant",
    "FirstStage",
    "Shallow",
    "Step",
    "Transform",
    "apply_transforms",
    "base_of",
    "derived",
    "make_transform",
    "parse_collection_expression",
    "with_base",
]
