"""What MLflow shows of a sweep besides its trials: view, answer, and the report's files."""

import hashlib
import tempfile
from functools import partial
from pathlib import Path

from sweeps.store.sweep_file import verdict
from sweeps.tracking.runs import Runs
from sweeps.tracking.view import view_tags

REPORT = "report"
_NOTE, _OURS = (
    "mlflow.note.content",
    "mlflow.note.contentHash",
)  # the second is hidden, as are all mlflow.*
_MAX_CHARACTERS = 20_000  # of an experiment's tag


def describe(runs: Runs) -> None:
    """Sets the saved view, the report's run and the description of the experiment. A description
    that a user has changed in MLflow stays."""
    runs.read_sweep()
    experiment = runs.client.get_experiment(runs.experiment_id)
    tags = view_tags(runs.sweep, experiment.creation_time or 0)
    text = _text(runs, _send_report(runs))
    before = experiment.tags.get(_NOTE, "")
    if experiment.tags.get(_OURS, "") == (_hash(before) if before else ""):
        tags |= {_NOTE: text, _OURS: _hash(text)}
    for name, value in tags.items():
        if experiment.tags.get(name) != value:
            send = partial(runs.client.set_experiment_tag, runs.experiment_id, name, value)
            runs.part(experiment.name, name, send)


def _text(runs: Runs, report: str) -> str:
    """The answer (the report's first sentence), the question, the table. The list of experiments
    shows the beginning, without Markdown."""
    question = f"Question: {runs.sweep.question}"
    meaning = "A run is a trial: one configuration, one seed."
    if not report:
        return "\n\n".join([question, "No answer yet.", meaning])
    table = (runs.records.read_file(f"{REPORT}/table.md") or b"").decode()
    link = f"#/experiments/{runs.experiment_id}/runs/{report}/artifacts"
    link += "?workflowType=machine_learning"
    parts = [
        verdict(runs.records),
        question,
        f"{meaning} [The report]({link}) has page, tables and plots.",
    ]
    text = "\n\n".join(filter(None, parts))
    whole = f"{text}\n\n{table}"
    return whole if len(whole) <= _MAX_CHARACTERS else text


def _send_report(runs: Runs) -> str:
    """The id of the run with the report's files, sent if they have changed; "" without a report.
    The view leaves it out: it has no configuration."""
    storage, start = runs.records.storage, runs.records.path(REPORT)
    contents = storage.read_all(storage.files(start))
    if f"{start}/results.json" not in contents:
        return ""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        for path, content in sorted(contents.items()):
            file = Path(folder, path.removeprefix(f"{start}/"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            digest.update(path.encode() + content)
        return runs.files_run(REPORT, Path(folder), digest.hexdigest()[:16])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
