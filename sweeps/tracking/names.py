"""Names that MLflow accepts and whose beginnings its pages show: `nDCG@10` -> `ndcg_cut_10`."""

import re

from rank_core.evaluate import parse_measure
from rank_core.own_code import is_reference
from sweeps.plan.terminal import shortened

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


def shown_name(experiment: str) -> str:
    """The name of an experiment on MLflow's pages, which cut its end: without the identity of its
    storage. After a slash they show the last part alone."""
    return re.sub(r"-[0-9a-f]{6}$", "", experiment)


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
