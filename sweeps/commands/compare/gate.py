"""The looks of a gate, in `gate.json`: they are counted, and the same measurements are one look."""

from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from rank_core.errors import BadInput
from rank_core.files import shown_path, write_json
from rank_core.parsing import parsed_json
from sweeps.report.comparison import RunComparison
from sweeps.report.gate import GateDecision, Look, Rule, look, sentence
from sweeps.terminal.text import say

FILE = "gate.json"
SCHEMA = "ranksweep gate 1"


def pass_gate(comparison: RunComparison, rule: Rule, folder: Path, *, reset: bool) -> int:
    """The exit code of the decision, after its line; the look is written to `gate.json` in
    `folder`. Raises `BadInput` where all looks are taken, or the file is of another rule."""
    found = look(comparison.analysis, rule)
    digest = _digest(comparison, found)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{FILE}.lock"):
        taken = [] if reset else _taken(folder / FILE, rule)
        known = [one for one in taken if one["values"] == digest]
        if not known:
            if len(taken) >= rule.looks:
                raise BadInput(
                    f"all looks of {shown_path(folder / FILE)} are taken, {len(taken)} of "
                    f"{rule.looks}: a further one would not keep alpha; --reset-looks begins "
                    "a new loop"
                )
            known = [{"look": len(taken) + 1, **_plain(found), "values": digest}]
            taken += known
            content = {"schema": SCHEMA, **asdict(rule), "level": rule.level, "taken": taken}
            write_json(folder / FILE, content)
    say(sentence(found, rule, known[0]["look"]))
    return GateDecision[found.decision.upper()].value


def _taken(file: Path, rule: Rule) -> list[dict[str, Any]]:
    """The looks that were taken by the same rule."""
    if not file.exists():
        return []
    try:
        content = parsed_json(file.read_bytes())
        if content["schema"] != SCHEMA:
            raise ValueError
        taken = list(content["taken"])
        written = {name: content[name] for name in asdict(rule)}
        if not all(isinstance(one["look"], int) and one["values"] for one in taken):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{shown_path(file)} is not a file of a gate: remove or rename it") from None
    for name, value in asdict(rule).items():
        if written[name] != value:
            raise BadInput(
                f"{shown_path(file)} was begun with {name} {written[name]}, not {value}: one rule "
                "decides all looks; --reset-looks begins a new loop"
            )
    return taken


def _plain(found: Look) -> dict[str, Any]:
    """Its fields; null for an interval that one training run does not give."""
    return {name: None if value != value else value for name, value in asdict(found).items()}


def _digest(comparison: RunComparison, found: Look) -> str:
    """The identity of what was measured: a command that is given again takes no further look."""
    sweep = comparison.sweep
    scores = sweep.scores[sweep.scores["cell"].isin((found.baseline, found.proposal))]
    columns = ["measure", "cell", "seed", "query_id", "value"]
    ordered = scores[columns].astype({"cell": str, "query_id": str, "measure": str})
    ordered = ordered.assign(cell=ordered["cell"] == found.proposal).sort_values(columns)
    measured = ordered.to_csv(index=False, float_format="%.12g")
    untrained = [name in sweep.deterministic for name in (found.baseline, found.proposal)]
    return sha256(f"{measured}{untrained}".encode()).hexdigest()
