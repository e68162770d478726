"""Division of judged queries into splits or folds by a hash: each query's part is independent of
the other queries."""

import hashlib
from collections.abc import Mapping, Sequence

from rank_core.errors import BadInput

SALT = "ranksweep"
FEW_QUERIES = 50
"""Queries of dev or test below which real differences are rarely found."""


def query_share(text: str, salt: str = SALT) -> float:
    """A number in [0, 1) from a query's text, ignoring case and white space, so that duplicates get
    the same number: the first 64 bits of SHA-256 of `salt`, a newline and the text."""
    words = " ".join(text.casefold().split())
    digest = hashlib.sha256(f"{salt}\n{words}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def divided(
    queries: Mapping[str, str], shares: Mapping[str, float], salt: str = SALT
) -> dict[str, list[str]]:
    """{part: query_ids}, with sizes approximately proportional to `shares`. Raises `BadInput` for
    an empty part."""
    names, total = list(shares), sum(shares.values())
    parts: dict[str, list[str]] = {name: [] for name in names}
    for query_id, text in queries.items():
        place = query_share(text, salt) * total
        below = 0.0
        for name in names:
            below += shares[name]
            if place < below or name == names[-1]:
                parts[name].append(query_id)
                break
    _require_filled(parts, salt, len(queries))
    return parts


def fold_parts(
    queries: Mapping[str, str], num_folds: int, salt: str = SALT
) -> list[dict[str, list[str]]]:
    """The splits per fold: tested on the fold, validated on the next, trained on the others."""
    if num_folds < 3:
        raise BadInput(f"--folds >= 3 must hold (test, dev, the others train), got {num_folds}")
    if num_folds > len(queries):
        raise BadInput(f"--folds <= {len(queries)} judged queries must hold, got {num_folds}")
    folds = list(
        divided(queries, {f"fold{n}": 1.0 for n in range(1, num_folds + 1)}, salt).values()
    )
    splits = []
    for test in range(num_folds):
        dev = (test + 1) % num_folds
        train = {
            query_id
            for n, query_ids in enumerate(folds)
            if n not in (test, dev)
            for query_id in query_ids
        }
        in_order = [query_id for query_id in queries if query_id in train]
        splits.append({"train": in_order, "dev": folds[dev], "test": folds[test]})
    return splits


def _require_filled(parts: Mapping[str, Sequence[str]], salt: str, number: int) -> None:
    empty = [name for name, ids in parts.items() if not ids]
    if empty:
        names = ", ".join(empty[:3]) + ("" if len(empty) < 4 else f" and {len(empty) - 3} more")
        raise BadInput(
            f"{number} judged queries are too few: with salt {salt!r}, {names} got none; use "
            "larger --shares, fewer --folds or another --salt"
        )
