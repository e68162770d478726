"""Bundles as sources of a comparison: verified first, then read as the sweeps that they hold."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import shown_path
from rank_core.lines import beside
from sweeps.store.sweep_file import read_sweep_file
from sweeps.systems.sources import TrainingRun, training_runs

_BUNDLE = re.compile(r"(.*?\.zip)((?::.*)?)", re.DOTALL | re.IGNORECASE)


class Bundles:
    """The bundles of one comparison, whose judgments of a collection must be the same."""

    def __init__(self) -> None:
        self._judged: dict[tuple[str, str], tuple[str, Path]] = {}

    def runs(self, source: object) -> Mapping[str, list[TrainingRun]] | None:
        """The training runs of `FILE.zip` or `FILE.zip:LABEL` by system; None for another source.
        Raises `BadInput` with the first difference of a bundle that is not as `bundle` wrote it. No
        code that it names is run."""
        named = _BUNDLE.fullmatch(source) if isinstance(source, str) else None
        if named is None or not (path := Path(named[1])).is_file():
            return None
        from sweeps.commands import bundle  # draws

        with bundle.own_measures(()), bundle.unpacked(path) as folder:
            _refuse_wrong(bundle.check_unpacked(folder, {}), path)
            sweep = folder / bundle.SWEEP
            held = training_runs(f"{sweep}{named[2]}")
            bundle.put_qrels(sweep, bundle.read_judgments(sweep))  # in the order that is hashed
            self._check_judgments(sweep, path)
        there = str(sweep)
        return {
            name: [replace(run, where=run.where.replace(there, str(path), 1)) for run in runs]
            for name, runs in held.items()
        }

    def _check_judgments(self, folder: Path, path: Path) -> None:
        """Refuses a bundle whose judgments have another hash than an earlier one's."""
        about = read_sweep_file(folder)
        note = folder / "qrels" / f"{about.split}.qrels.sha256"
        digest = note.read_text(encoding="utf-8").partition(" ")[0]
        key = str(about.collection.get("name", "")), about.split
        known, other = self._judged.setdefault(key, (digest, path))
        if known != digest:
            raise BadInput(
                f"its judgments of {' '.join(key)} are not those of {shown_path(other)}, so their "
                "values are not comparable"
            )


def _refuse_wrong(found: Iterable[tuple[str, str]], path: Path) -> None:
    """Refuses a bundle with its first difference; says what was not checked."""
    verdicts = [*found]
    if wrong := [text for verdict, text in verdicts if verdict == "wrong"]:
        # A place in a file says more than the file's checksum, which comes first.
        reason = next((text for text in wrong if ": SHA-256: " not in text), wrong[0])
        raise BadInput(f"is not as `bundle` wrote it: {reason}")
    for verdict, text in verdicts:
        if verdict == "not checked":
            beside(f"note: {shown_path(path)}: not checked: {text}")
