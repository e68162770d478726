"""The examination of environment and data, one line per finding.

Nothing is launched. It writes a temporary probe file to the storage, and to the cache what every
sweep needs: collections, tokens, backbones.
"""

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.tiny import EMBEDDED, NAMES, SETTINGS
from rank_core.errors import BadInput
from rank_core.measure_check import check_measures
from rank_core.models import check_model
from rank_core.settings.config import TrialConfig, parse_setting
from sweeps.commands.doctor.candidates import candidates, run_files
from sweeps.commands.doctor.coverage import coverage
from sweeps.commands.doctor.environment import cache_findings, environment, probed
from sweeps.commands.doctor.finding import Finding, exit_code, finding_text, line_width, verdict
from sweeps.commands.doctor.services import cluster, tracking
from sweeps.commands.doctor.texts import similar_queries, texts
from sweeps.plan.experiment import suited
from sweeps.plan.options import absolute_folder, named_collection
from sweeps.plan.trial_cost import MORE_STEPS, few_steps
from sweeps.store.trial_store import Store
from sweeps.tracking.uri import check_tracking_uri, default_tracking_uri

CUT = ("chunking.window", "chunking.stride")


def examine(arguments: argparse.Namespace) -> int:
    """Print the findings and return the exit code."""
    logging.basicConfig(format="... %(message)s", level=logging.WARNING)
    logging.getLogger("rank_core.cache").setLevel(logging.INFO)  # once, for minutes
    config = config_of(arguments)
    store = Store(arguments.storage or "results", "doctor")
    uri = arguments.tracking_uri or default_tracking_uri(store)
    check_tracking_uri(uri)
    width = line_width()
    findings: list[Finding] = []
    windows_given = any(word.startswith(CUT) for word in arguments.settings)
    for title, section in (
        ("environment", _environment(store, uri)),
        ("data", _data(config, windows_given=windows_given)),
    ):
        print(title)
        for finding in section:
            print(finding_text(finding, width), flush=True)
            findings.append(finding)
    print(verdict(findings))
    return exit_code(findings)


def config_of(arguments: argparse.Namespace) -> TrialConfig:
    """The settings of `--collection`, `--backbone` and words such as chunking.window=150."""
    settings: dict[str, Any] = {}
    if arguments.collection is not None:
        settings["collection"] = named_collection(arguments.collection, arguments.fields)
    if arguments.backbone is not None:
        settings["model.backbone"] = absolute_folder(arguments.backbone)
    for word in arguments.settings:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"a setting is written section.setting=value, got {word!r}")
        if name in settings:
            raise BadInput(f"a setting is given once, got {name} twice")
        settings[name] = parse_setting(name, value)
    config = TrialConfig().override(settings)
    if config.model.backbone in EMBEDDED:
        config = TrialConfig().override({**SETTINGS, **settings})
    check_measures(config.evaluation.measures)
    return config


def _environment(store: Store, uri: str) -> Iterator[Finding]:
    yield from environment()
    with probed(store) as probe:
        yield from probe.findings
        yield from cache_findings()
        _announce("asking MLflow and Ray")
        yield from tracking(uri)
        yield from cluster(probe.path)


def _data(config: TrialConfig, *, windows_given: bool) -> Iterator[Finding]:
    """The findings on the data; inputs that a sweep would refuse are an error with the sweep's
    message."""
    try:
        _announce(f"reading {config.collection} and its tokens for {config.model.backbone}")
        inputs = load_inputs(config.collection, config.model.backbone)
        splits = inputs.collection.splits.values()
        check_measures(config.evaluation.measures, [split.qrels for split in splits])
        if not windows_given:  # a sweep's default for this backbone
            config = config.override(suited(config, inputs.backbone))
        yield from _examined(config, inputs)
        check_model(config, inputs.backbone)
    except BadInput as error:
        yield Finding("error", str(error))
        if config.model.backbone in NAMES:  # made here, in minutes
            return
        try:
            resolve_backbone(config.model.backbone)
        except BadInput as further:
            if str(further) != str(error):
                yield Finding("error", str(further))


def _examined(config: TrialConfig, inputs: Inputs) -> Iterator[Finding]:
    collection = inputs.collection
    folder = Path(config.collection)
    parts: dict[str, Iterator[Finding]] = {
        "comparing documents": texts(inputs, config.chunking),
        "measuring the first stage": candidates(collection, config.evaluation),
        "reading run files": run_files(folder) if folder.is_dir() else iter(()),
        "comparing queries of different splits": similar_queries(collection),
        "looking for text outside the windows": coverage(config, inputs),
        "counting training steps": _training(config, inputs),
    }
    for step, part in parts.items():
        _announce(step)
        yield from part


def _training(config: TrialConfig, inputs: Inputs) -> Iterator[Finding]:
    if "train" in inputs.collection.splits and (few := few_steps(config, inputs)):
        yield Finding("warning", f"training: {few}", "next to nothing is learned", MORE_STEPS)


def _announce(step: str) -> None:
    print(f"... {step}", file=sys.stderr, flush=True)
