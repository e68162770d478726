"""The descriptions of a sweep's experiments in MLflow: question, answer, and the meaning of a
run."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from rank_core.errors import BadInput
from sweeps.store.sweep_file import read_sweep_file, verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
_NOTE, _OURS = (
    "mlflow.note.content",
    "mlflow.note.contentHash",
)  # the second is hidden, as are all mlflow.*
_MAX_CHARACTERS = 20_000
RUNS = {
    "": "A run is a trial: one configuration, one seed. Quote the means of {name}/summary.",
    "/summary": "A run is a configuration: means over its seeds, with the tests. The trials are in "
    "{name}.",
    "/report": "The one run holds the report: page, tables and figures. The trials are in {name}.",
}
"""{end of an experiment's name: the meaning of its runs}"""


def describe(
    client: "MlflowClient", experiment_id: str, folder: Path, name: str, part: str
) -> None:
    """Sets the tags of the experiment `name` + `part` of the sweep in `folder`. A description that
    a user has changed in MLflow stays."""
    before = client.get_experiment(experiment_id).tags
    tags = dict(EXPERIMENT_TAGS)
    text = description(folder, name, part)
    if text and before.get(_OURS, "") == (_hash(before[_NOTE]) if before.get(_NOTE) else ""):
        tags |= {_NOTE: text, _OURS: _hash(text)}
    for key, value in tags.items():
        if before.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def description(folder: Path, name: str, part: str) -> str:
    """The answer (the report's first sentence), the question, and the meaning of a run; "" without
    a sweep. The list of experiments shows the beginning, without Markdown."""
    try:
        question = f"Question: {read_sweep_file(folder).question}"
    except BadInput:
        return ""
    answer = verdict(folder)
    parts = [answer, question] if answer else [question, "No answer yet."]
    return "\n\n".join([*parts, RUNS[part].format(name=name)])[:_MAX_CHARACTERS]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
