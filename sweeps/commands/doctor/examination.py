"""The examination of environment and data, one line per finding. Nothing is launched; the cache
gets what every sweep needs: the collection and its tokens."""

import argparse
import logging
import sys
from collections.abc import Iterator
from typing import Any

from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.shipped import SETTINGS, SHIPPED
from rank_core.errors import BadInput
from rank_core.measure_check import check_measures
from rank_core.models import check_model
from rank_core.settings.config import TrialConfig, parse_setting
from sweeps.commands.doctor.data import data
from sweeps.commands.doctor.finding import Finding, exit_code, print_finding, verdict
from sweeps.commands.doctor.machine import machine
from sweeps.plan.experiment import suited
from sweeps.plan.options import absolute_folder, named_collection
from sweeps.plan.terminal import visible

CUT = ("chunking.window", "chunking.stride")


def examine(arguments: argparse.Namespace) -> int:
    """Print the findings and return the exit code."""
    logging.basicConfig(format="... %(message)s", level=logging.WARNING)
    logging.getLogger("rank_core.cache").setLevel(logging.INFO)  # once, for minutes
    config = config_of(arguments)
    windows_given = any(word.startswith(CUT) for word in arguments.settings)
    sections = {"environment": machine(), "data": _data(config, windows_given=windows_given)}
    findings: list[Finding] = []
    for title, section in sections.items():
        print(title)
        for finding in section:
            print_finding(finding)
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
    if config.model.backbone in SHIPPED:
        config = TrialConfig().override({**SETTINGS, **settings})
    check_measures(config.evaluation.measures)
    return config


def _data(config: TrialConfig, *, windows_given: bool) -> Iterator[Finding]:
    """The findings on the data; inputs that a sweep would refuse are an error with the sweep's
    message."""
    try:
        what = f"{config.collection} and its tokens for {config.model.backbone}"
        print(visible(f"... reading {what}"), file=sys.stderr, flush=True)
        inputs = load_inputs(config.collection, config.model.backbone)
        splits = inputs.collection.splits.values()
        check_measures(config.evaluation.measures, [split.qrels for split in splits])
        if not windows_given:  # a sweep's default for this backbone
            config = config.override(suited(config, inputs.backbone))
        yield from data(config, inputs)
        check_model(config, inputs.backbone)
    except BadInput as error:
        yield Finding("error", str(error))
