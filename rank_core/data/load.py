"""Collections by name, folder or ir_datasets id.

A new collection from ir_datasets needs an entry in `rank_core.data.named`, any other a file in
`rank_core.data.made` and a line in `COLLECTIONS`. A user's own is named `module:function`.
"""

import os
from pathlib import Path

from rank_core.data.folder import LAYOUT, load_folder
from rank_core.data.ir_datasets.collection import (
    PREFIX,
    is_dataset,
    is_fold,
    load_dataset,
    load_named,
)
from rank_core.data.ir_datasets.source import known_ids
from rank_core.data.made.long_embed import TASKS, is_task, load_task
from rank_core.data.named import NAMED
from rank_core.data.own_collection import load_own
from rank_core.data.readers.records import parse_fields
from rank_core.data.transforms.expression import (
    apply_transforms,
    folder_and_fields,
    parse_collection_expression,
    portable_steps,
    with_folder,
)
from rank_core.errors import BadInput, shown, unknown
from rank_core.own_code import announced, is_reference, load
from rank_core.records import Collection

COLLECTIONS: dict[str, str] = {
    "python-docs": "rank_core.data.made.python_docs:load_python_docs",
    "python-docs-passages": "rank_core.data.made.python_docs:load_passages",
    **dict.fromkeys(TASKS, "rank_core.data.made.long_embed:load_task"),
    **dict.fromkeys(NAMED, "rank_core.data.ir_datasets.collection:load_named"),
}
"""{name: module and function}; the function is called with the name."""


def load_collection(name: str) -> Collection:
    """The collection of a registered name or else of a folder, a user's function
    (`module:function`, or an entry point) or an ir_datasets id. Raises `BadInput` for others.

    A name may include a fold (`robust04-title/fold2`) or a length (`needle-4096`). `ir:ID` is
    always an ir_datasets id; a plain ID is one if no folder has that name. Transforms follow a bar,
    `python-docs|debias(seed=2)`, as do a folder's own names of fields,
    `DIR|fields(uri=doc_id,body=text)`.
    """
    base, steps = parse_collection_expression(name)
    if steps:
        return apply_transforms(load_collection(base), steps)
    folder, fields = folder_and_fields(base)
    if fields:
        if not os.path.isdir(os.path.expanduser(folder)):
            raise BadInput(f"--fields is for the files of a folder; {shown(folder)} is no folder")
        return load_folder(Path(folder), parse_fields(fields))
    if name in COLLECTIONS:
        return load("collection", COLLECTIONS[name])(name)
    if is_task(name):
        return load_task(name)
    if is_fold(name):
        return load_named(name)
    if name.startswith(PREFIX):
        return load_dataset(name.removeprefix(PREFIX))
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):
        return load_folder(Path(folder))
    if is_reference(name) or name in announced("collection"):
        return load_own(announced("collection").get(name, name))
    if is_dataset(name):
        return load_dataset(name)
    if os.path.exists(folder):
        raise BadInput(f"--collection {shown(name)} is a file; {LAYOUT}")
    if folder.startswith((".", "~")) or _is_path(folder):
        raise BadInput(f"--collection {shown(name)} does not exist; {LAYOUT}")
    raise BadInput(
        f"{unknown('collection', name, [*COLLECTIONS, *announced('collection')])}; others: "
        f"{PREFIX}ID for an ir_datasets id, your own module:function, or a folder ({LAYOUT})"
    )


def _is_path(name: str) -> bool:
    """True for a name with a slash that cannot be an ir_datasets id."""
    top, slash, _ = name.partition("/")
    return bool(slash) and all(known.partition("/")[0] != top for known in known_ids())


def portable_collection(name: str) -> str:
    """The name or expression under which every process finds the same collection: entry points
    become `module:function` and `module:Class`."""
    parse_collection_expression(name)
    base = name.partition("|")[0].strip()
    own = {} if base in COLLECTIONS or os.path.isdir(base) else announced("collection")
    return portable_steps(with_folder(name, own.get(base, base)))
