"""A trial as what MLflow keeps of its run, under MLflow's names.

Curves of a trial with more than `MOST_STEPS` steps are thinned to every second, third, ... step: 64
trials of 5 steps/s would be 1,000 points/s. All other numbers are sent, and the whole curve is in
the trial's `history.jsonl`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from rank_core.evaluate import parse_measure
from rank_core.own_code import is_reference
from rank_core.units import MEBIBYTE
from sweeps.store.records import RESULT, State
from sweeps.store.sweep_file import Cell, SweepFile
from sweeps.store.trial_status import TrialStatus
from sweeps.terminal.escape import markdown_text
from sweeps.terminal.text import shortened

GROUP = "config"
"""The tag that MLflow's pages group by, and whose value names a group."""
Point = tuple[str, float, int, int]
"""Metric, value, step (of the optimiser; 0 for a single value), milliseconds since the epoch.
MLflow stores equal points once."""
RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

MOST_STEPS = 1000
EVIDENCE = {
    "config.json": "config",
    "per_query.parquet": "eval",
    "folds.parquet": "eval",
    "dev.run.gz": "runs",
    "test.run.gz": "runs",
}
"""Files of a trial that are sent to MLflow, and their folder there."""
CURVE = ("loss", "learning_rate", "gradient_norm")
COSTS = ("train_seconds", "eval_seconds", "peak_memory_mib", "encoder_tokens", "padding_share",
         "training_padding_share")  # fmt: skip
# trec_eval's names, if any: {ir_measures name: (without cutoff, before a cutoff)}.
_TREC_EVAL = {
    "nDCG": ("ndcg", "ndcg_cut"),
    "AP": ("map", "map_cut"),
    "RR": ("recip_rank", "recip_rank"),
    "R": ("recall", "recall"),
} | {name: (name.lower(),) * 2 for name in ("P", "Rprec", "Bpref", "Success", "Judged")}


def experiment_id(prefix: str, sweep: str, identity: str) -> str:
    """The identity of a sweep's experiment, different for every storage:
    `window_stride-python-docs-0a1b2c`, after the prefix if any."""
    return "/".join(filter(None, (prefix, f"{sweep.replace('/', '-')}-{identity}")))


def metric_name(measure: str) -> str:
    """The metric name of a measure in ir_measures spelling; different measures have different
    names.

    `R(rel=2)@100` becomes `recall_100_rel2`. Text values and unusual signs are escaped with `:`.
    """
    if is_reference(measure):  # a user's function
        return measure
    parsed = parse_measure(measure)
    name = str(parsed.NAME)
    settings = dict(parsed.params)
    cutoff = settings.pop("cutoff", None)
    # Other names keep their case: `alpha_nDCG` and `alpha_DCG` differ.
    plain, before_cutoff = _TREC_EVAL.get(name, (name, name))
    parts = [plain if cutoff is None else f"{before_cutoff}_{cutoff}"]
    parts += [f"{key}{_value(settings[key])}" for key in sorted(settings)]
    return "_".join(parts)


def number_name(setting: str) -> str:
    """The metric with the copy of a swept number, for charts: `hp/window`."""
    return f"hp/{setting.rpartition('.')[2]}"


def run_name(label: str, seed: int) -> str:
    """The cell's label and the seed in 20 characters, unless its values need more: `MaxP 96/48 #2`.

    MLflow's table cuts longer names, and only the seed at the end distinguishes neighbours.
    """
    ending = f" #{seed}"
    return shortened(label, 20 - len(ending)) + ending


def _value(value: object) -> str:
    """A setting's value in legal letters; numbers as they are, everything else behind a colon."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return re.sub(r"\+", "", repr(value))
    return ":" + re.sub(r"[^A-Za-z0-9.-]", lambda sign: f":{ord(sign[0]):x}:", str(value))


def run_status(state: State) -> RunStatus:
    """The status of a trial's run: RUNNING only while its driver lives."""
    if state.status is TrialStatus.RUNNING:
        return "RUNNING"
    return "FINISHED" if state.status.used else "FAILED" if state.status.lost else "KILLED"


def times(state: State) -> tuple[int, int]:
    """Begin and end of a trial. The end of a finished one is its result's, which a driver that was
    killed meanwhile did not note; of one of another sweep it is all that there is."""
    if file := state.files.get(RESULT):
        end = int(1000 * file.modified)
    else:
        end = state.attempts[-1].ended or state.attempts[-1].begun if state.attempts else 0
    return (state.attempts[0].begun if state.attempts else end), end


def run_tags(sweep: SweepFile, cell: Cell, state: State) -> dict[str, str]:
    """The tags of a trial's run by its last attempt, with those of its end if it has ended."""
    tags = {
        "mlflow.note.content": markdown_text(f"{cell.label}, seed {state.seed}"),
        **config_tags(cell.label, cell.cell),
        "collection": str(sweep.collection.get("name", "")),
        "collection.hash": str(sweep.collection.get("content_hash", "")),
        "backbone.hash": str(sweep.backbone.get("content_hash", "")),
        "attempts": str(state.num_attempts),
        **sweep.tags,
    }
    if state.status is TrialStatus.RUNNING:
        return tags
    collapsed = state.status is TrialStatus.COLLAPSED
    tags["stop.reason"] = "collapsed" if collapsed else state.reason[:500]
    if state.status is TrialStatus.DIVERGED:
        tags["diverged"] = "true"
    versions = state.facts.get("versions", {})
    tags |= {f"version.{name}": text for name, text in versions.items()}
    host = state.attempts[-1].host if state.attempts else ""
    places = {"host": host, "device": " and ".join(state.devices)}
    return tags | {name: place for name, place in places.items() if place}


def config_tags(label: str, cell: str) -> dict[str, str]:
    """The tags of a configuration. Two cells may have one label: two learning rates in one
    folder."""
    return {"config.id": label, "config.hash": cell, GROUP: f"{label} ({cell})"}


def run_params(cell: Cell, seed: int) -> dict[str, str]:
    """The settings with an effect on a trial."""
    return {"seed": str(seed)} | {name: param_text(value) for name, value in cell.config.items()}


def number_points(sweep: SweepFile, cell: Cell, time: int) -> Iterator[Point]:
    """The swept numbers of a trial as metrics, since MLflow draws no lines over params."""
    for name in sweep.swept:
        value = cell.config.get(name)
        if isinstance(value, int | float):
            yield number_name(name), float(value), 0, time


def report_points(report: Mapping[str, Any], begun: int) -> Iterator[Point]:
    """Curve points of a report, and dev measures after a validation, at the times of their steps:
    equal for every reader."""
    num_steps, time = report["num_steps"], begun
    every = max(1, -(-num_steps // MOST_STEPS))
    for point in report["curve"]:
        step, time = point["step"], int(1000 * float(point.get("seconds", begun / 1000)))
        if step % every == 0 or step == num_steps:
            for name in (name for name in CURVE if name in point):
                yield f"train/{name}", float(point[name]), step, time
    for measure, value in (report["dev"] or {}).items():
        yield f"dev/{metric_name(measure)}", float(value), report["step"], time


def final_points(sweep: SweepFile, state: State) -> Iterator[Point]:
    """Final measures and costs of a finished trial."""
    facts, time = dict(state.facts), times(state)[1]
    if not state.status.used:
        return
    for prefix, split in (("test/", "test"), ("best/dev_", "dev")):
        values = facts.get(split, {})
        for name in [name for name in sweep.measures if name in values] or list(values):
            yield f"{prefix}{metric_name(name)}", float(values[name]), 0, time
    facts["peak_memory_mib"] = facts.get("peak_memory_bytes", 0) / MEBIBYTE
    names = {"best/step": "best_step"} | {f"cost/{name}": name for name in COSTS}
    for metric, name in names.items():
        if name in facts:
            yield metric, float(facts[name]), 0, time


def param_text(value: Any) -> str:
    """A setting as a param."""
    if isinstance(value, list | tuple):
        return ",".join(param_text(item) for item in value)
    return str(value)
