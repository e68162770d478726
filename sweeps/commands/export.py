"""`ranksweep export DIR`: the model of a finished sweep as a folder, or in a registry."""

import argparse
import json
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput, unknown
from rank_core.export.cross_encoder import is_cross_encoder
from rank_core.export.folder import require_new, write_model
from rank_core.models import model_class
from rank_core.ranking.interpolation import DEFAULT, FirstStageMix
from rank_core.settings.config import TrialConfig
from sweeps.plan.command_line import Parser, check_writable
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import say
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.interpolation import Inputs, trial_table, why_not, with_interpolated
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.model_card import CardFacts, model_card
from sweeps.report.search import left_after
from sweeps.store.checksums import read_checked, read_result
from sweeps.store.opened_sweep import opened
from sweeps.store.sweep_file import read_sweep_file
from sweeps.store.trial_store import Store, is_trained
from sweeps.tracking.registered_model import Registered, register_model
from sweeps.tracking.uri import check_database, check_tracking_uri, default_tracking_uri

INTERPOLATION = "interpolation.json"  # the weights that Birch chose on dev
WINNER = "winner"


@dataclass(frozen=True)
class Chosen:
    """The trial whose model is exported."""

    cell: str
    seed: int
    dev: float  # mean of the primary measure
    why: str  # the reason for this trial
    mix: FirstStageMix | None = None  # of a system "+BM25"
    test: Mapping[str, float] = field(default_factory=dict)  # means of such a system

    @property
    def name(self) -> str:
        """Its folder under `runs/`."""
        return f"{self.cell}-seed{self.seed}"


def main(argv: Sequence[str]) -> int:
    """Write the model of a finished sweep into a new folder: encoder and tokenizer as Hugging Face
    saves them, head, aggregator, settings, and a model card with the tested table. The winner is
    the best configuration on dev; of a confirmation, the confirmed one. The seed is the best on dev
    that has kept its weights. --cell "LABEL +BM25" adds the weight of the first stage.

    --register logs the model in MLflow and registers it; a confirmed winner whose gain is above 0
    becomes the champion. `rank_core.Reranker.load(FOLDER)` and `ranksweep rerank` rank with the
    folder."""
    given = _parser().parse_args(argv)
    if given.to is None and not given.register:
        raise BadInput("an export needs --to FOLDER, --register NAME, or both")
    if given.to is not None:
        require_new(given.to)
        check_writable("--to", given.to)
    command = shlex.join(["ranksweep", "export", *argv])
    with opened(given.sweep) as store:
        uri = given.tracking_uri or default_tracking_uri(store)
        if given.register:
            check_tracking_uri(uri)
            check_database(uri)
        analysis = _analysis(store, given.cell)
        chosen = _chosen(store, analysis.sweep, given.cell, given.seed)
        if chosen.mix and given.register:
            raise BadInput(
                "--register accepts a model alone: a registered model has no scores of the first "
                f"stage; use --to FOLDER, or --cell without +{analysis.sweep.first_stage_name}"
            )
        kept = tempfile.TemporaryDirectory() if given.to is None else nullcontext(given.to.parent)
        with kept as parent:
            folder = Path(parent) / (given.to.name if given.to else "model")
            about = _write(store, analysis, chosen, folder, redact_text(command))
            if given.to is not None:
                say(f"exported    {about['label']}, seed {chosen.seed}, {chosen.why}: {folder}")
            if given.register:
                say(_register(store, analysis, chosen, folder, about, given.register, uri))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("ranksweep export", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add = parser.add_argument
    add("--to", type=Path, metavar="FOLDER", help="a new folder")
    add("--cell", default=WINNER, metavar="LABEL", help="winner (default), or a label of the table")
    add("--seed", type=int, metavar="N", help="default: the best on dev")
    add("--register", metavar="NAME", help="log the model in MLflow and register it by this name")
    add("--tracking-uri", metavar="URI", help="MLflow; default: beside the sweep")
    return parser


def _analysis(store: Store, cell: str) -> Analysis:
    """The tested table. Where a row "+BM25" is exported it has the report's such rows, or all of
    them if the report lacks this row."""
    sweep = load_sweep(store.folder)
    if not cell.endswith(f" +{sweep.first_stage_name}"):
        return analyse(sweep)
    reported = with_interpolated(sweep, "best")
    if cell.startswith(WINNER) or cell in [row.label for row in reported.interpolated]:
        return analyse(reported)
    store.pull(store.finished())
    return analyse(with_interpolated(sweep, "all"))


def _chosen(store: Store, sweep: Sweep, cell: str, seed: int | None) -> Chosen:
    """The trial to export. Raises `BadInput` with the command to run where there is none."""
    model = cell.removesuffix(f" +{sweep.first_stage_name}")
    dev = sweep.dev_scores.groupby(["cell", "seed"], observed=True)["value"].mean()
    values: dict[str, dict[int, float]] = {}
    for (name, number), value in dev.items():
        values.setdefault(str(name), {})[int(number)] = float(value)
    trained = {name: seeds for name, seeds in values.items() if _is_trained(store, name, seeds)}
    name = _cell(sweep, model, values, trained)
    here = store.with_weights()
    kept = {n: v for n, v in trained[name].items() if f"{name}-seed{n}" in here}
    if not kept or (seed is not None and seed not in kept):
        raise _no_weights(sweep, name, sorted(kept), seed)
    best = max(kept, key=lambda number: (kept[number], -number)) if seed is None else seed
    best_of_all = max(trained[name].values()) == kept[best]
    others = "the best of its seeds on dev" if best_of_all else "the best on dev with weights"
    chosen = Chosen(name, best, kept[best], "as requested" if seed is not None else others)
    return chosen if model == cell else _interpolated(sweep, chosen)


def _interpolated(sweep: Sweep, chosen: Chosen) -> Chosen:
    """The trial with the weight of the first stage that was chosen on dev."""
    cell = next(cell for cell in sweep.cells if cell.cell == chosen.cell)
    if reason := why_not(cell):
        raise BadInput(f"{sweep.label(chosen.cell)} is not interpolated: it {reason}")
    inputs = Inputs(sweep.folder, sweep.measures, sweep.primary, DEFAULT)
    table = trial_table(chosen.name, inputs)
    means = table.groupby(["split", "measure"], observed=True)["value"].mean()
    mix = FirstStageMix(float(table["alpha"].iloc[0]), DEFAULT, sweep.first_stage_name)
    dev = float(means["dev", sweep.primary])
    test = {name: float(means["test", name]) for name in sweep.measures}
    return replace(chosen, dev=dev, mix=mix, test=test)


def _cell(
    sweep: Sweep,
    label: str,
    values: Mapping[str, Mapping[int, float]],
    trained: Mapping[str, Mapping[int, float]],
) -> str:
    if not trained:
        raise BadInput(f"{sweep.folder} has no finished trial of a model with weights of its own")
    if label == WINNER:
        if sweep.confirms:
            return str(sweep.confirms["cell"])
        stayed = [cell for cell in trained if cell not in left_after(sweep)] or list(trained)
        return max(stayed, key=lambda cell: sum(trained[cell].values()) / len(trained[cell]))
    labels = {cell.label: cell.cell for cell in sweep.cells} | {
        cell.cell: cell.cell for cell in sweep.cells
    }
    if label == sweep.first_stage_name:
        raise BadInput(f"{label} has no weights to export; --cell names a trained configuration")
    if label not in labels:
        raise unknown("cell", label, [WINNER, *(cell.label for cell in sweep.cells)])
    if labels[label] not in values:
        raise BadInput(f"{label} has no finished seed; {sweep.command or 'its sweep'} runs it")
    if labels[label] not in trained:
        raise BadInput(f"{label} has no weights of a single model to export")
    return labels[label]


def _is_trained(store: Store, cell: str, seeds: Mapping[int, float]) -> bool:
    return is_trained(_config(store, f"{cell}-seed{next(iter(seeds))}"))


def _config(store: Store, name: str) -> TrialConfig:
    store.pull({name})
    content = read_checked(store.folder / "runs" / name, "config.json")
    return TrialConfig().override(json.loads(content))


def _no_weights(sweep: Sweep, cell: str, kept: Sequence[int], seed: int | None) -> BadInput:
    """The error where a model has kept no weights, with the command that keeps them."""
    keep = "best" if seed is None else "all"
    command = re.sub(r" training\.keep_weights=\S+", "", sweep.command) or "its sweep"
    weights = f"only seeds {', '.join(map(str, kept))} have" if kept else "none of its seeds has"
    return BadInput(
        f"{sweep.label(cell)} must have kept its weights"
        f"{'' if seed is None else f' of seed {seed}'}, {weights}. Run the trial again, for them "
        f"alone: {command} training.keep_weights={keep}"
    )


def _write(
    store: Store, analysis: Analysis, chosen: Chosen, folder: Path, command: str
) -> dict[str, Any]:
    """Write the folder and return the origin of the model as stated in it."""
    sweep, config = analysis.sweep, _config(store, chosen.name)
    weights = store.pull_file(f"runs/{chosen.name}/{WEIGHTS}")
    if damaged := store.damage(chosen.name):
        raise BadInput(
            f"{store.uri}/runs/{chosen.name}: {damaged}; the sweep's command runs it again"
        )
    run = store.folder / "runs" / chosen.name
    facts = read_result(run).facts
    label = sweep.label(chosen.cell)
    about = {
        "label": f"{label} +{chosen.mix.first_stage}" if chosen.mix else label,
        "sweep": sweep.name,
        "trial": chosen.name,
        "cell": chosen.cell,
        "seed": chosen.seed,
        "chosen": chosen.why,
        "primary": sweep.primary,
        "dev": chosen.dev,
        "test": dict(chosen.test) or facts["test"],
        "confirms": dict(sweep.confirms or {}),
        "collection": {k: sweep.collection[k] for k in ("name", "content_hash")},
        "backbone": dict(sweep.backbone),
        "versions": facts["versions"],
        "command": sweep.command,
    }
    backbone = resolve_backbone(config.model.backbone)
    plain = is_cross_encoder(config, backbone) and chosen.mix is None
    card = CardFacts(config, about, plain, command, chosen.mix)
    noted = run / INTERPOLATION
    write_model(
        folder,
        config,
        weights,
        interpolation=json.loads(noted.read_text()) if noted.exists() else None,
        first_stage=chosen.mix,
        about=about,
        card=model_card(analysis, card),
    )
    return about


def _register(
    store: Store,
    analysis: Analysis,
    chosen: Chosen,
    folder: Path,
    about: Mapping[str, Any],
    name: str,
    uri: str,
) -> str:
    """Register the model and return a line about it."""
    sweep = analysis.sweep
    gain = next((c.delta for c in analysis.primary if c.system == chosen.cell), None)
    confirmed = (sweep.confirms or {}).get("cell") == chosen.cell
    version = register_model(
        folder,
        Registered(
            name=name,
            tracking_uri=uri,
            experiment=read_sweep_file(store.folder).experiment or f"rank/{sweep.name}",
            trial=chosen.name,
            family=model_class(_config(store, chosen.name).model.name).label,
            tags={key: str(about[key]) for key in ("sweep", "cell", "seed")},
            champion=confirmed and gain is not None and gain > 0,
        ),
    )
    text = f"registered  {name} version {version} in {redact_text(uri)}"
    if not sweep.confirms:
        return f"{text}; export the confirmation (--confirm) to make a champion"
    if not confirmed:
        return f"{text}; no champion, because it is not the confirmed winner"
    if gain is None or gain <= 0:
        return f"{text}; no champion, because its gain was not confirmed ({gain or 0:+.3f})"
    return f"{text}, alias champion: models:/{name}@champion"
