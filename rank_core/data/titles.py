"""The titles of a collection's documents, where its files keep them apart from the text."""

import os
from pathlib import Path

from rank_core.data.folder import titles_in
from rank_core.data.readers import parse_fields
from rank_core.data.transforms.expression import folder_and_fields


def title_lengths(name: str) -> dict[str, int]:
    """{doc_id: characters of the title with which its text begins} of the documents of a folder
    that have one; empty for other collections and for transformed texts."""
    base, fields = folder_and_fields(name)
    folder = Path(os.path.expanduser(base))
    if not folder.is_dir():
        return {}
    return titles_in(folder, parse_fields(fields) if fields else None)
