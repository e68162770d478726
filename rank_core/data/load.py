"""Collections by name, folder or ir_datasets id.

A new one from ir_datasets is one entry in `rank_core.data.named`; any other is one file in this
package and one line in `COLLECTIONS`.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rank_core.data.folder import LAYOUT, load_folder
from rank_core.data.ir_datasets.collection import PREFIX, is_dataset, load_dataset, load_recipe
from rank_core.data.made.long_embed import TASKS, is_task, load_task
from rank_core.data.made.python_docs import load_passages, load_python_docs
from rank_core.data.named import NAMED
from rank_core.data.transforms.expression import apply_transforms, parse_collection_expression
from rank_core.errors import BadInput, unknown
from rank_core.records import Collection

COLLECTIONS: dict[str, Callable[[], Collection]] = {
    "python-docs": load_python_docs,
    "python-docs-passages": load_passages,
    **{name: partial(load_task, name) for name in TASKS},
    **{name: partial(load_recipe, name, recipe) for name, recipe in NAMED.items()},
}
_FOLD = re.compile(r"(?P<name>[\w-]+)(?:/(?P<fold>fold\d+)|@(?P<file>.+#.+))")


def load_collection(name: str) -> Collection:
    """The collection of a registered name or, failing that, of a folder or an ir_datasets id.

    A name may choose a fold (`robust04-title/fold2`, `robust04-title@folds.json#s1`) or a length
    (`needle-4096`). `ir:ID` is always an ir_datasets id, a plain ID is one if no folder has it.
    Transforms follow a bar: `python-docs|debias(seed=2)`.
    """
    base, steps = parse_collection_expression(name)
    if steps:
        return apply_transforms(load_collection(base), steps)
    if name in COLLECTIONS:
        return COLLECTIONS[name]()
    if is_task(name):
        return load_task(name)
    match = _FOLD.fullmatch(name)
    if match and match["name"] in NAMED:
        base = match["name"]
        return load_recipe(base, NAMED[base], fold=match["fold"] or match["file"])
    if name.startswith(PREFIX):
        return load_dataset(name.removeprefix(PREFIX))
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return load_folder(folder)
    if is_dataset(name):
        return load_dataset(name)
    raise BadInput(
        f"{unknown('collection', name, COLLECTIONS)}; or {PREFIX}ID for any ir_datasets id; "
        f"or a folder: {LAYOUT}"
    )
