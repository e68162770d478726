"""Collections by name or folder. A new one is one file here and one line in `COLLECTIONS`."""

from collections.abc import Callable
from pathlib import Path

from rank_core.data.collection import Collection, Qrels, Run, Split
from rank_core.data.local import LAYOUT, load_folder
from rank_core.data.python_docs import load_python_docs
from rank_core.errors import BadInput, unknown

__all__ = ["COLLECTIONS", "Collection", "Qrels", "Run", "Split", "load_collection"]

COLLECTIONS: dict[str, Callable[[], Collection]] = {"python-docs": load_python_docs}


def load_collection(name_or_folder: str) -> Collection:
    """The collection of a registered name or, failing that, of a folder."""
    if name_or_folder in COLLECTIONS:
        return COLLECTIONS[name_or_folder]()
    folder = Path(name_or_folder).expanduser()
    if name_or_folder and folder.is_dir():
        return load_folder(folder)
    raise BadInput(f"{unknown('collection', name_or_folder, COLLECTIONS)}; or a folder: {LAYOUT}")
