"""Judged queries divided into splits or folds by a hash: the same queries always go the same way,
whatever others are beside them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from rank_core.errors import BadInput

SALT = "ranksweep"


def query_share(text: str, salt: str = SALT) -> float:
    """A number in [0, 1) from a query's text, less case and white space: a query that stands twice
    under two ids is on one side. Its first 64 bits of SHA-256, after `salt` and a line end."""
    words = " ".join(text.casefold().split())
    digest = hashlib.sha256(f"{salt}\n{words}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def divided(
    queries: Mapping[str, str], shares: Mapping[str, float], salt: str = SALT
) -> dict[str, list[str]]:
    """{part: its query_ids}, about as many as its share says. Raises `BadInput` where one is
    empty."""
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
    """The splits of each fold: tested on the fold, selected on the next one, trained on the
    others."""
    if num_folds < 3:
        raise BadInput(f"--folds >= 3 must hold (test, dev, the others train), got {num_folds}")
    folds = list(
        divided(queries, {f"fold{n}": 1.0 for n in range(1, num_folds + 1)}, salt).values()
    )
    found = []
    for test in range(num_folds):
        dev = (test + 1) % num_folds
        train = {one for n, ids in enumerate(folds) if n not in (test, dev) for one in ids}
        found.append({"train": _in_order(queries, train), "dev": folds[dev], "test": folds[test]})
    return found


def _in_order(queries: Iterable[str], chosen: set[str]) -> list[str]:
    return [query_id for query_id in queries if query_id in chosen]


def _require_filled(parts: Mapping[str, Sequence[str]], salt: str, number: int) -> None:
    empty = [name for name, ids in parts.items() if not ids]
    if empty:
        raise BadInput(
            f"each part must have a query, but of {number} judged queries {', '.join(empty)} got "
            f"none with salt {salt!r}; give it a larger share, or another --salt"
        )
