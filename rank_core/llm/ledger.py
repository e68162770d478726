"""The cost ledger of a chat model, and a cache of its answers on disk, so that none is paid for
twice. Neither of them contains the API key."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput
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


@dataclass
class Totals:
    """Sums over answers. The cost of cached answers is separate from what was spent."""

    calls: int = 0  # answers from the server
    cached_calls: int = 0  # answers from the cache
    unmetered_calls: int = 0  # answers without token counts, so that the sums below are too low
    repaired_answers: int = 0  # answers that were no valid permutation
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    spared_input_tokens: int = 0  # of cached answers
    spared_output_tokens: int = 0
    spared_cost: float = 0.0
    seconds: float = 0.0

    def add(self, answer: Answer, *, repaired: bool) -> None:
        """Adds an answer."""
        self.repaired_answers += repaired
        self.unmetered_calls += not answer.metered
        self.retries += answer.retries
        self.seconds += answer.seconds
        if answer.cached:
            self.cached_calls += 1
            self.spared_input_tokens += answer.input_tokens
            self.spared_output_tokens += answer.output_tokens
            self.spared_cost += answer.cost
        else:
            self.calls += 1
            self.input_tokens += answer.input_tokens
            self.output_tokens += answer.output_tokens
            self.cost += answer.cost


@dataclass
class Ledger:
    """Totals, and a JSONL line per answer if a path is given. An existing file is read first, so
    that a resumed trial's totals include its earlier attempts."""

    path: Path | None = None
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self._resume(self.path)

    def record(self, answer: Answer, *, repaired: bool, **labels: str | int) -> None:
        """Adds an answer and writes its line, with `labels` first (query_id, start, end...)."""
        self.totals.add(answer, repaired=repaired)
        if self.path is not None:
            numbers = asdict(answer)
            del numbers["text"]  # already in the cache
            with self.path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(labels | {"repaired": repaired} | numbers) + "\n")

    def _resume(self, path: Path) -> None:
        whole, _, torn = path.read_bytes().rpartition(b"\n")
        if torn:  # from a killed writer
            os.truncate(path, len(whole) + 1 if whole else 0)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                known = {name: entry[name] for name in _NUMBERS}
                self.totals.add(Answer(text="", **known), repaired=entry["repaired"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(
                    f"{path}:{number} is no entry of a cost ledger ({type(error).__name__}: "
                    f"{error}); delete the file"
                ) from None


_NUMBERS = tuple(name for name in Answer.__dataclass_fields__ if name != "text")


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
        kept = {
            "text": answer.text,
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "metered": answer.metered,
        }
        write_json(path, kept)

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"
