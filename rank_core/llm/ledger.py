"""The answers of a chat model: a line for each in a cost ledger, and a cache on disk, so that none
is paid for twice. Neither of them contains the API key."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rank_core.files import write_json

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """A chat model's text, with its tokens, cost and time."""

    text: str
    input_tokens: int = 0  # as counted by the server
    output_tokens: int = 0
    metered: bool = True  # False: the server gave no token counts
    cost: float = 0.0  # in the currency of the prices; for a cached answer, the cost saved
    cached: bool = False
    retries: int = 0  # failed requests before this answer
    seconds: float = 0.0  # including waits


@dataclass(frozen=True)
class Ledger:
    """A file with a line of JSON for each answer; a resumed trial appends to it."""

    path: Path

    def record(self, answer: Answer, *, repaired: bool, **labels: str | int) -> None:
        """Writes the line of an answer, with `labels` first (query_id, start, end...); `repaired`
        says that it was not in the form that was asked for."""
        numbers = asdict(answer)
        del numbers["text"]  # already in the cache
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(labels | {"repaired": repaired} | numbers) + "\n")


@dataclass(frozen=True)
class AnswerCache:
    """Answers by the SHA-256 of their request, a file each. Files are written atomically, so that
    processes can share the folder."""

    folder: Path

    def get(self, digest: str) -> Answer | None:
        """The cached answer without its cost; None if it is missing or damaged."""
        path = self._path(digest)
        try:
            kept: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return Answer(
                text=str(kept["text"]),
                input_tokens=int(kept["input_tokens"]),
                output_tokens=int(kept["output_tokens"]),
                metered=bool(kept["metered"]),
                cached=True,
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            # A repeated request costs little; ending a long run would not.
            _log.warning("repeating the request: %s is damaged (%s)", path, type(error).__name__)
            return None

    def put(self, digest: str, answer: Answer) -> None:
        """Writes an answer, replacing an earlier one."""
        path = self._path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        names = ("text", "input_tokens", "output_tokens", "metered")
        write_json(path, {name: getattr(answer, name) for name in names})

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"
