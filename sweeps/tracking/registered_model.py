"""An exported model in MLflow: logged with its signature and an example, registered, and named
champion. It contains its folder and the code of `rank_core` and `ranksweep`, so that it loads
without an installed ranksweep."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import rank_core
from rank_core.own_code import is_reference, travelling
from sweeps.tracking.client import artifact_root, connect, ensure_experiment, mlflow_uri

CHAMPION = "champion"
SCRIPT = Path(__file__).with_name("pyfunc_model.py")
NEEDS = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pandas", "filelock")
EXAMPLE = {
    "query": ["how to open a file", "how to open a file"],
    "document": ["open(path) opens the file at path.", "A list is sorted by its method sort()."],
}


@dataclass(frozen=True)
class Registered:
    """The name, place and tags of a model to register."""

    name: str
    tracking_uri: str
    experiment: str
    trial: str  # its run is the model's source, if MLflow has it
    family: str
    tags: Mapping[str, str] = field(default_factory=dict)
    champion: bool = False


def register_model(folder: Path, model: Registered) -> int:
    """Log the exported folder, register it, and return the number of its version."""
    client = connect(model.tracking_uri)
    import mlflow
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    from rank_core.export.folder import CARD, read_settings

    root = artifact_root(model.tracking_uri, Path.cwd())
    experiment_id = ensure_experiment(client, model.experiment, root)
    mlflow.set_tracking_uri(mlflow_uri(model.tracking_uri))
    mlflow.set_registry_uri(mlflow_uri(model.tracking_uri))
    mlflow.set_experiment(experiment_id=experiment_id)
    runs = client.search_runs(
        [experiment_id], filter_string=f"tags.`rank.trial_key` LIKE '%/{model.trial}'"
    )
    family = read_settings(folder).model.name
    code = travelling([family]) if is_reference(family) else ()
    texts: list[ColSpec | TensorSpec] = [ColSpec("string", name) for name in EXAMPLE]
    with _quietly():
        logged = Model.log(
            artifact_path=None,
            name="reranker",
            flavor=mlflow.pyfunc,
            run_id=runs[0].info.run_id if runs else None,
            registered_model_name=model.name,
            model_type=model.family,
            tags=dict(model.tags),
            python_model=str(SCRIPT),
            artifacts={"model": str(folder)},
            code_paths=[*map(str, _library()), *code],
            signature=ModelSignature(Schema(texts), Schema([ColSpec("double", "score")])),
            input_example=pd.DataFrame(EXAMPLE),
            pip_requirements=list(_requirements()),
        )
    number = int(logged.registered_model_version)
    for name, text in model.tags.items():
        client.set_model_version_tag(model.name, str(number), name, text)
    card = (folder / CARD).read_text(encoding="utf-8")
    text = card.partition("\n---\n")[2].strip()  # without the metadata for a model hub at its top
    client.update_model_version(model.name, str(number), description=text)
    if model.champion:
        client.set_registered_model_alias(model.name, CHAMPION, str(number))
    return number


def _library() -> tuple[Path, ...]:
    """The folders of `rank_core` and `ranksweep`, by whose names a user's model imports its base
    class; `ranksweep` imports what it names on first use, and so needs no `sweeps` for that."""
    core = Path(rank_core.__file__).parent
    return core, core.with_name("ranksweep")


def _requirements() -> Iterator[str]:
    """The packages of the model as pip requirements, without local builds of torch."""
    for name in NEEDS:
        with suppress(PackageNotFoundError):
            yield f"{name}=={version(name).partition('+')[0]}"


@contextmanager
def _quietly() -> Iterator[None]:
    log = logging.getLogger("mlflow")
    before = log.level
    log.setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):
        try:
            yield
        finally:
            log.setLevel(before)
