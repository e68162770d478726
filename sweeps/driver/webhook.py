"""The message at the end of a sweep to the URL in `RANKSWEEP_WEBHOOK`: a POST of JSON with a `text`
that Slack and similar services show. No stored command has the variable; a message that fails
changes nothing else."""

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

from rank_core.errors import BadInput
from sweeps.plan.secrets import redact, redact_text
from sweeps.plan.terminal import say
from sweeps.store.sweep_file import FILE, read_sweep_file, verdict
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable

VARIABLE = "RANKSWEEP_WEBHOOK"
SECONDS = 10.0  # of waiting for the server
ENDS = {0: "done", 3: "finished with failed trials", 4: "stopped by its budget"}
"""{exit code: its words}."""


def check_webhook() -> None:
    """Refuses a URL that is no web address, before anything is launched."""
    address = os.environ.get(VARIABLE, "")
    if address and not address.startswith(("http://", "https://")):
        raise BadInput(f"{VARIABLE} must be the URL of a webhook, https://..., got another")


def announced(store: Store, table: TrialTable, drive: Callable[[], int]) -> int:
    """The exit code of `drive`; the message is sent in any case."""
    try:
        code = drive()
    except BaseException as error:
        _send(store, table, f"stopped by {type(error).__name__}: {error}".rstrip(": "))
        raise
    _send(store, table, ENDS[code], verdict(store.folder))
    return code


def _send(store: Store, table: TrialTable, end: str, answer: str = "") -> None:
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        body = json.dumps(redact(message(store, table, end, answer))).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "ranksweep"}
        request = urllib.request.Request(address, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=SECONDS):
            pass
    except Exception as error:  # of the network, and of a server that refuses
        say(f"warning: the webhook failed: {redact_text(str(error))}")


def message(store: Store, table: TrialTable, end: str, answer: str) -> dict[str, Any]:
    """The message: `text`, and its parts."""
    if not (store.folder / FILE).exists():  # ended before it was planned
        return {"text": f"{store.uri}: {end}", "end": end, "where": store.uri}
    file = read_sweep_file(store.folder)
    planned = {f"{cell.cell}-seed{seed}" for cell in file.cells for seed in file.seeds}
    trials = table.state.trials
    counts = Counter(str(trial.status) for name, trial in trials.items() if name in planned)
    collection = str(file.collection.get("name", ""))
    states = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    text = f"{file.sweep} on {collection}: {end} ({states or 'no trial'} of {len(planned)} trials)"
    return {
        "text": f"{text}. {answer}".rstrip(),
        "sweep": file.sweep,
        "collection": collection,
        "question": file.question,
        "end": end,
        "trials": dict(counts),
        "planned": len(planned),
        "answer": answer,
        "where": store.uri,
    }
