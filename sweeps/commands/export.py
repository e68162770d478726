"""`ranksweep export DIR`: the model of a finished sweep as a folder, or in a registry."""

import argparse
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import described, license_of, resolve_backbone
from rank_core.encoders.published_heads import generated_score
from rank_core.errors import BadInput, unknown
from rank_core.export.folder import portable, require_new, write_model
from rank_core.export.serving import is_cross_encoder
from rank_core.files import file_sha256
from rank_core.models import model_class, trains
from rank_core.models.ranker import uses_checkpoint_head
from rank_core.parsing import parsed_json
from rank_core.ranking.interpolation import DEFAULT, FirstStageMix
from rank_core.secrets import redact_text
from rank_core.settings.config import RUNTIMES, TrialConfig, runtime_of
from rank_core.settings.training import PRECISIONS
from sweeps.commands.hub import FORM, PREFIX, listing, repository_of, require_login, send
from sweeps.engine.kept_weights import is_trained
from sweeps.findings.analysis import Analysis, analyse
from sweeps.plan.next_command import asked_of
from sweeps.report.files import report_files, write_files
from sweeps.report.model_card import NOT_MEASURED, SMOKE_TEST, CardFacts, model_card
from sweeps.report.standing import beside_first_stage, no_champion
from sweeps.store.records import CHANGED, TRIALS, DamagedTrial, Records, Result, trial_name
from sweeps.store.sweep_file import opened
from sweeps.systems.choice import choose, with_rows
from sweeps.systems.derived import with_interpolated
from sweeps.systems.interpolation import MixtureInputs, trial_table, why_not
from sweeps.systems.load import Serving, Sweep, load_sweep, trial_config
from sweeps.systems.machines import CPUS
from sweeps.systems.system import System
from sweeps.terminal.command_line import Need, Parser, check_writable, needing
from sweeps.terminal.text import say
from sweeps.tracking.client import check_database, check_tracking_uri, default_tracking_uri
from sweeps.tracking.registered_model import Registered, register_model

WINNER = "winner"
ANY_FIRST_STAGE = " +BM25"
REPORT, SENT = "report", ("index.html", "results.json", "table.md")
"""The folder and the files of the report that go to the Hub beside the model."""


@dataclass(frozen=True)
class Chosen:
    """The trial whose model is exported."""

    cell: str
    seed: int
    dev: float  # mean of the primary measure
    why: str  # the reason for this trial
    mix: FirstStageMix | None = None  # of a system "+BM25"
    test: Mapping[str, float] = field(default_factory=dict)  # means of such a system
    trained_as: str = ""  # the cell of its trial, if another one's chunk scores are aggregated
    alphas: Mapping[int, float] = field(default_factory=dict)  # {seed with weights: its alpha}

    @property
    def name(self) -> str:
        """Its folder in the storage."""
        return trial_name(self.trained_as or self.cell, self.seed)

    @property
    def first_stage(self) -> str:
        """The name of the first stage that it is interpolated with; "" where it is not."""
        return self.mix.first_stage if self.mix else ""

    @property
    def adds_nothing(self) -> bool:
        """True where its scores are those of the first stage alone."""
        return self.mix is not None and self.mix.alpha == 0


def main(argv: Sequence[str]) -> int:
    """Write the model of a finished sweep into a new folder: encoder and tokenizer as Hugging Face
    saves them, head, aggregator, settings, and a model card with the tested table. The default is
    the sweep's choice, which its report names; of a confirmation, the confirmed system. The seed is
    the best on dev that has kept its weights. A choice "LABEL +BM25" adds the weight of the
    first stage (--cell LABEL: without it); the seed is then the best on dev when interpolated, and
    an alpha of 0 is refused without --force. Where no scores of the first stage are given, the
    folder ranks by its model alone.

    --runtime openvino adds the graph of the encoder for OpenVINO (extra `openvino`), --precision
    int8 the quantized one; `Reranker.load` and sentence-transformers (backend="openvino") read it.

    --to hf://ORG/NAME sends the folder and the report's page to a private repository of the Hugging
    Face Hub, as the user of `hf auth login`; with --dry-run it lists what would be sent.

    --register logs the model in MLflow and registers it; a confirmed winner that is significantly
    better than the baseline and above the first stage becomes the champion.
    `rank_core.Reranker.load(FOLDER)` and `ranksweep rerank` rank with the folder."""
    args = parser().parse_args(argv)
    repository = _checked(args)
    to = Path(args.to) if args.to and not repository else None
    command = shlex.join(["ranksweep", "export", *argv])
    with opened(args.sweep) as records:
        uri = args.tracking_uri or default_tracking_uri(records)
        if args.register:
            check_tracking_uri(uri)
            check_database(uri)
        sweep = with_interpolated(load_sweep(records))
        cell = _spelled(sweep, args.cell)
        analysis = _analysis(sweep, cell)
        chosen = _chosen(records, analysis.sweep, cell, args.seed)
        _check_alpha(analysis.sweep, chosen, force=args.force)
        if args.force and not (args.register or chosen.adds_nothing):
            raise BadInput("--force needs --register NAME, or a model whose alpha is 0")
        kept = tempfile.TemporaryDirectory() if to is None else nullcontext(to.parent)
        with kept as parent:
            folder = Path(parent) / (to.name if to else "model")
            try:
                about = _write(records, analysis, chosen, folder, redact_text(command), args)
            except SafetensorError as error:  # a full disk
                raise BadInput(f"{folder} cannot be written: {error}") from None
            _say_exported(analysis, chosen, about, args)
            if repository:
                _to_hub(analysis, folder, repository, args)
            if args.register:
                say(_register(records, analysis, chosen, folder, about, args, uri))
    return 0


def _checked(args: argparse.Namespace) -> str:
    """The repository of the Hub that is named, or ""; raises `BadInput` for a place that cannot be
    written, before any work."""
    if not args.register and args.to is None:
        raise BadInput(f"an export needs --to FOLDER, --to {FORM} or --register NAME")
    repository = repository_of(args.to)
    for name in ("dry_run", "public"):
        if vars(args)[name] and not repository:
            raise BadInput(f"--{name.replace('_', '-')} needs --to {FORM}")
    if repository and not args.dry_run:
        require_login()
    if args.to and not repository:
        require_new(Path(args.to))
        check_writable("--to", Path(args.to))
    return repository


def _say_exported(
    analysis: Analysis, chosen: Chosen, about: Mapping[str, Any], args: argparse.Namespace
) -> None:
    """Print which model was exported, what it measured, and warnings."""
    if args.to is not None:
        seed = "" if analysis.sweep.serving else f"seed {chosen.seed}, "
        say(f"exported    {about['label']}, {seed}{chosen.why}: {args.to}")
    if about.get(NOT_MEASURED):
        say(f"warning     not measured as the folder computes it, {about[NOT_MEASURED]}")
    if gain := beside_first_stage(analysis, about["label"]):
        say(f"measured    {gain} ({_means(analysis, about['label'])})")
    if chosen.adds_nothing:
        say(f"warning     alpha is 0: these are the scores of {chosen.first_stage} alone")
    if analysis.sweep.about.smoke_test:
        say(f"warning     not for use: {SMOKE_TEST}")


def _to_hub(analysis: Analysis, folder: Path, repository: str, args: argparse.Namespace) -> None:
    """Send the folder with the report's page, or list what would be sent."""
    files = report_files(_elsewhere(analysis), label=f"tab:{analysis.sweep.about.sweep}")
    write_files(folder / REPORT, {name: files[name] for name in SENT})
    if args.dry_run:
        access = "public if it is new" if args.public else "private"
        say(f"would send  to {PREFIX}{repository}, {access}:")
        for line in listing(folder):
            say(line)
        return
    say(f"sent        {send(folder, repository, public=args.public)}")


def _elsewhere(analysis: Analysis) -> Analysis:
    """The analysis for readers elsewhere: its command names no folder of this machine."""
    about = analysis.sweep.about
    typed = {name: portable(vars(about)[name]) for name in ("command", "flags", "settings")}
    about = replace(about, **typed, directory="", tracking_uri="")
    return replace(analysis, sweep=replace(analysis.sweep, about=about))


def parser() -> Parser:
    """The arguments and flags of `ranksweep export`."""
    parser = Parser("ranksweep export", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add = parser.add_argument
    add("--to", metavar=f"FOLDER|{FORM}", help="a new folder, or a model of the Hub")
    public = "the repository is public, or is made public (default: private)"
    needing(add("--public", action="store_true", help=public), Need("to"))
    listed = "list what would be sent to the Hub, and send nothing"
    needing(add("--dry-run", action="store_true", help=listed), Need("to"))
    add(
        "--cell",
        default=WINNER,
        metavar="LABEL",
        help="the row: winner (default), the choice of the report, or a label of the table",
    )
    add(
        "--runtime",
        choices=RUNTIMES[1:],
        help="inference backend stored in the folder; openvino also writes the graph "
        "(default: as in the trial)",
    )
    asked = "the precision where the folder is loaded; int8 writes the quantized graph of OpenVINO"
    add("--precision", choices=PRECISIONS, help=f"{asked} (default: as in the trial)")
    add("--seed", type=int, metavar="N", help="the seed (default: the best on dev)")
    add("--register", metavar="NAME", help="log the model in MLflow and register it by this name")
    forced = "set the alias `champion` even if the gain is not significant; "
    forced += "export a model even if its alpha is 0"
    add("--force", action="store_true", help=forced)
    uri = "tracking URI of MLflow (default: the sweep's)"
    needing(add("--tracking-uri", metavar="URI", help=uri), Need("register"))
    return parser


def _spelled(sweep: Sweep, cell: str) -> str:
    """The label of the row that is asked for: `winner` is the choice, and a row "+BM25", as the
    documentation has it, is that of whatever ranked the candidates."""
    labels = [cell.label for cell in sweep.cells] + [row.label for row in sweep.mixed]
    if cell in labels:
        return cell
    model = cell.removesuffix(ANY_FIRST_STAGE).removesuffix(f" +{sweep.first_stage_name}")
    mixed = "" if model == cell else f" +{sweep.first_stage_name}"
    if model != WINNER:
        return f"{model}{mixed}"
    choice = choose(sweep)
    if choice is None:
        raise BadInput(f"{sweep.folder} has no finished trial to choose from: --cell names a row")
    if not choice.cell:
        raise BadInput(
            f"the choice is {choice.label} ({sweep.primary} {choice.mean:.3f} on {choice.split}), "
            "which needs no model; --cell LABEL exports one all the same"
        )
    return f"{sweep.label(choice.cell)}{mixed}" if mixed else choice.label


def _analysis(sweep: Sweep, label: str) -> Analysis:
    """The report's table; where a row "+BM25" is exported that it lacks, with all such rows."""
    hidden = {row.label for row in sweep.mixed} - {row.label for row in sweep.interpolated}
    return analyse(with_rows(sweep, "all") if label in hidden else sweep)


def _means(analysis: Analysis, label: str) -> str:
    """`nDCG@10 0.488 on test, mean of 5 seeds`; of one seed, without the last words."""
    primary = analysis.sweep.primary
    row = next(r for r in [*analysis.cells, *analysis.interpolated] if r.cell.label == label)
    seeds = f", mean of {row.num_used} seeds" if row.num_used > 1 else ""
    return f"{primary} {row.mean(primary):.3f} on {analysis.sweep.split}{seeds}"


def _served(sweep: Sweep, serving: Serving, cell: str) -> Chosen:
    """The aggregation to export: of a model that nothing has trained."""
    labels: dict[str, tuple[str, float | None]] = {c.label: (c.cell, None) for c in sweep.cells}
    for mixed in sweep.mixed:
        labels[mixed.label] = mixed.of, next(iter(mixed.alphas.values()))[0]
    if cell not in labels:
        raise unknown("cell", cell, [WINNER, *labels])
    name, alpha = labels[cell]
    trial, _ = serving.of[name]
    row = next(row for row in serving.rows if row["label"] == sweep.label(name))
    value = "" if alpha is None else "_interpolated"
    return Chosen(
        name,
        int(sweep.trials.loc[sweep.trials["cell"] == name, "seed"].iloc[0]),
        row[f"dev{value}"],
        _why(sweep, cell),
        None if alpha is None else FirstStageMix(alpha, DEFAULT, sweep.first_stage_name),
        {sweep.primary: row[f"test{value}"]},
        trial,
    )


def _why(sweep: Sweep, label: str) -> str:
    """The reason for a row."""
    choice = choose(sweep)
    if choice is None or choice.label != label:
        return "as requested"
    return f"the best on {choice.split}"


def _chosen(records: Records, sweep: Sweep, cell: str, seed: int | None) -> Chosen:
    """The trial to export. Raises `BadInput` with the command to run where there is none."""
    if sweep.serving:
        return _served(sweep, sweep.serving, cell)
    model = cell.removesuffix(f" +{sweep.first_stage_name}")
    dev = sweep.dev_scores.groupby(["cell", "seed"], observed=True)["value"].mean()
    values: dict[str, dict[int, float]] = {}
    for (name, number), value in dev.items():
        values.setdefault(str(name), {})[int(number)] = float(value)
    trained = {
        name: seeds
        for name, seeds in values.items()
        if is_trained(trial_config(records, trial_name(name, next(iter(seeds)))))
    }
    name = _cell(sweep, model, values, trained)
    states = (records.origin or records).states(trial_name(name, n) for n in trained[name])
    kept = [n for n in sorted(trained[name]) if WEIGHTS in states[trial_name(name, n)].files]
    if not kept or (seed is not None and seed not in kept):
        raise _no_weights(sweep, name, kept, seed)
    every = {n: Chosen(name, n, value, "as requested") for n, value in trained[name].items()}
    if model != cell:
        every = {n: _interpolated(sweep, one) for n, one in every.items()}
    alphas = {n: one.mix.alpha for n, one in every.items() if one.mix and n in kept}
    if seed is not None:
        return replace(every[seed], alphas=alphas)
    best, of_all = (max(some, key=lambda n: (every[n].dev, -n)) for some in (kept, every))
    why = "the best of its seeds on dev"
    if every[of_all].dev > every[best].dev:
        why = (
            f"the best on dev with weights (seed {of_all} is better and has kept none; "
            "training.keep_weights=all keeps them)"
        )
    return replace(every[best], why=why, alphas=alphas)


def _interpolated(sweep: Sweep, chosen: Chosen) -> Chosen:
    """The trial with the weight of the first stage that was chosen on dev."""
    cell = next(cell for cell in sweep.cells if cell.cell == chosen.cell)
    if reason := why_not(cell):
        raise BadInput(f"{sweep.label(chosen.cell)} is not interpolated: it {reason}")
    inputs = MixtureInputs.of(sweep)
    table = trial_table(chosen.name, inputs)
    means = table.groupby(["split", "measure"], observed=True)["value"].mean()
    mix = FirstStageMix(float(table["alpha"].iloc[0]), DEFAULT, sweep.first_stage_name)
    dev = float(means["dev", sweep.primary])
    test = {name: float(means["test", name]) for name in sweep.measures}
    return replace(chosen, dev=dev, mix=mix, test=test)


def _check_alpha(sweep: Sweep, chosen: Chosen, *, force: bool) -> None:
    """Refuse a model that returns the scores of the first stage, unless it is asked for."""
    if force or not chosen.adds_nothing:
        return
    label, first = sweep.label(chosen.cell), chosen.first_stage
    seed = "" if sweep.serving else f", seed {chosen.seed}"
    others = [f"seed {n} (alpha {alpha:g})" for n, alpha in chosen.alphas.items() if alpha > 0]
    ways = f"--seed: {', '.join(others)} with weights; " if others else ""
    raise BadInput(
        f"{label} +{first}{seed} has alpha 0: dev queries gave the model no weight, and the folder "
        f"would return the scores of {first} alone. {ways}--cell {shlex.quote(label)} exports the "
        "model without them, --force exports this one anyway"
    )


def _cell(
    sweep: Sweep,
    label: str,
    values: Mapping[str, Mapping[int, float]],
    trained: Mapping[str, Mapping[int, float]],
) -> str:
    if not trained:
        raise BadInput(f"{sweep.folder} has no finished trial of a model with weights of its own")
    labels = {cell.label: cell.cell for cell in sweep.cells}
    cell = label if label in labels.values() else labels.get(label, "")
    if not cell and label != sweep.first_stage_name:
        raise unknown("cell", label, [WINNER, f"{WINNER} +{sweep.first_stage_name}", *labels])
    if cell and cell not in values:
        raise BadInput(
            f"{label} has no finished seed; {sweep.about.command or 'its sweep'} runs it"
        )
    if cell not in trained:
        raise BadInput(f"{label} has no weights of a single model; --cell names a trained one")
    return cell


def _no_weights(sweep: Sweep, cell: str, kept: Sequence[int], seed: int | None) -> BadInput:
    """The error where a model has kept no weights, with the command that keeps them."""
    of_seed = "" if seed is None else f" of seed {seed}"
    keep = {"training.keep_weights": "best" if seed is None else "all"}
    command = asked_of(sweep.about).changed(settings=keep)
    command = command if sweep.about.start else f"its sweep with {command}"
    weights = f"only seeds {', '.join(map(str, kept))} have" if kept else "none of its seeds has"
    return BadInput(
        f"{sweep.label(cell)} must have kept its weights{of_seed}, {weights}. Run the trial again "
        f"to get them: {command}"
    )


def _write(
    records: Records,
    analysis: Analysis,
    chosen: Chosen,
    folder: Path,
    command: str,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Write the folder and return the origin of the model as stated in it. The card names the
    repository of the Hub that it is for."""
    sweep, config = analysis.sweep, trial_config(records, chosen.name)
    run, weights = records.trial_folder(chosen.name), None
    result = records.result(chosen.name)
    if sweep.serving:
        config = TrialConfig().override(sweep.serving.of[chosen.cell][1])
    else:
        storage = (records.origin or records).storage
        weights = storage.fetch(f"{TRIALS}/{chosen.name}/{WEIGHTS}", run)
        if file_sha256(weights) != result.files.get(WEIGHTS, {}).get("sha256"):
            raise DamagedTrial(chosen.name, WEIGHTS, CHANGED)
    label = sweep.label(chosen.cell)
    label = f"{label} +{chosen.mix.first_stage}" if chosen.mix else label
    about = _origin(analysis, chosen, label, result)
    unmeasured = _unmeasured(config, result, args)
    if unmeasured:
        about[NOT_MEASURED] = unmeasured
        about["description"] += f" (not of this folder, which computes {unmeasured})"
    backbone = resolve_backbone(config.model.backbone)
    card = CardFacts(
        config,
        about,
        is_cross_encoder(config, backbone),
        command,
        chosen.mix,
        license_of(backbone),
        described(backbone),
        _scored(config, backbone),
        repository_of(args.to),
    )
    noted = run / "interpolation.json"  # the weights that Birch chose on dev
    write_model(
        folder,
        config,
        weights,
        interpolation=parsed_json(noted.read_text()) if noted.exists() else None,
        first_stage=chosen.mix,
        about=about,
        measured=None if unmeasured else _measured(analysis, label),
        card=model_card(analysis, card),
        runtime=args.runtime or "",
        precision=args.precision or "",
    )
    return about


def _scored(config: TrialConfig, backbone: Backbone) -> str:
    """How others score the encoder of a model with the head of a T5 reranker; "" for others."""
    kind = model_class(config.model.name)
    keeps = trains(kind) and uses_checkpoint_head(kind, backbone, config.model.head)
    return generated_score(backbone) if keeps else ""


def _unmeasured(config: TrialConfig, result: Result, args: argparse.Namespace) -> str:
    """How the folder computes scores and how its trial did, in words; "" where they are alike."""
    asked = {"training.precision": args.precision, "evaluation.runtime": args.runtime}
    asked = {name: word for name, word in asked.items() if word}
    served = config.override({"training.num_epochs": 0, **asked})
    computed, measured = (
        f"in {_precision(c, result)} by {_RUNTIMES[runtime_of(c)]}" for c in (served, config)
    )
    return "" if computed == measured else f"{computed}; the trial was measured {measured}"


_RUNTIMES = {"torch": "torch", "openvino": "OpenVINO"}


def _precision(config: TrialConfig, result: Result) -> str:
    """The precision of a configuration where its trial ran; auto for that of its GPU."""
    versions = result.facts["versions"]
    on_cpu = "fp32" if versions.get("device") in CPUS else "auto"
    stated = config.training.precision
    return stated if stated != "auto" else versions.get("auto_precision") or on_cpu


def _origin(analysis: Analysis, chosen: Chosen, label: str, result: Result) -> dict[str, Any]:
    """The origin of a model, as its folder states it."""
    sweep = analysis.sweep
    gain = beside_first_stage(analysis, label)
    seed = "" if sweep.serving else f", seed {chosen.seed}"
    description = f"{label}{seed}, from {sweep.about.sweep} over {sweep.about.collection['name']}"
    return {
        "label": label,
        "description": ", ".join(filter(None, [description, _means(analysis, label), gain])),
        "sweep": sweep.about.sweep,
        "trial": chosen.name,
        "cell": chosen.cell,
        "seed": chosen.seed,
        "chosen": chosen.why,
        "primary": sweep.primary,
        "dev": chosen.dev,
        "test": dict(chosen.test) or result.facts["test"],
        **({"test_alone": _test_alone(sweep, chosen, result)} if chosen.mix else {}),
        "confirms": {
            k: v
            for k, v in (sweep.about.confirms or {}).items()
            if isinstance(v, str | int | float)
        },
        "collection": {k: sweep.about.collection[k] for k in ("name", "content_hash")},
        "backbone": dict(sweep.about.backbone),
        "versions": result.facts["versions"],
        "command": sweep.about.command,
    }


def _measured(analysis: Analysis, label: str) -> Mapping[str, Any]:
    """What `serving.json` says of a system's test; of a row that was not tested, its mean."""
    sweep = analysis.sweep
    choice = analysis.choice
    if sweep.serving and choice and label == choice.label:
        return dict(sweep.serving.setting["measured"])
    row = next(r for r in [*analysis.cells, *analysis.interpolated] if r.cell.label == label)
    compared = [*analysis.primary, *analysis.interpolated_comparisons]
    over = {
        sweep.label(c.baseline): {"gain": c.delta, "low": c.ci_low, "high": c.ci_high}
        for c in compared
        if c.system == row.cell.cell and c.measure == sweep.primary
    }
    return {
        "collection": {k: sweep.about.collection[k] for k in ("name", "content_hash")},
        "measure": sweep.primary,
        "split": sweep.split,
        "mean": row.mean(sweep.primary),
        **({"mean_alone": _alone(analysis, row)} if row.of else {}),
        "seeds": row.num_used,
        "level": 1 - sweep.tests.alpha,
        "over": over,
    }


def _test_alone(sweep: Sweep, chosen: Chosen, result: Result) -> dict[str, float]:
    """The means of a model on the reported split without the first stage."""
    if sweep.serving is None:
        return dict(result.facts["test"])
    label = sweep.label(chosen.cell)
    row = next(row for row in sweep.serving.rows if row["label"] == label)
    return {sweep.primary: row["test"]}


def _alone(analysis: Analysis, row: System) -> float:
    """The mean of the model of a row with the first stage, without it."""
    model = next(cell for cell in analysis.cells if cell.name == row.of)
    return model.mean(analysis.sweep.primary)


def _register(
    records: Records,
    analysis: Analysis,
    chosen: Chosen,
    folder: Path,
    about: Mapping[str, Any],
    args: argparse.Namespace,
    uri: str,
) -> str:
    """Register the model and return a line about it."""
    sweep, name = analysis.sweep, args.register
    why_not = no_champion(analysis, chosen.cell)
    why_not = why_not or "it computes other scores than were tested" * (NOT_MEASURED in about)
    try:
        version = register_model(
            folder,
            Registered(
                name=name,
                tracking_uri=uri,
                experiment=sweep.about.experiment or sweep.about.sweep,
                trial=chosen.name,
                family=model_class(trial_config(records, chosen.name).model.name).label,
                tags={key: str(about[key]) for key in ("sweep", "cell", "seed")},
                champion=args.force or not why_not,
            ),
        )
    except BadInput:
        raise
    except Exception as error:  # of any kind, from MLflow, its database or the network
        reason = " ".join(redact_text(str(error)).split())[:300]  # a cut secret has no form
        raise BadInput(f"the model was not registered: MLflow at {uri}: {reason}") from None
    text = f"registered  {name} version {version} in {uri}"
    if why_not and not args.force:
        return f"{text}; no alias champion (--force sets it), because {why_not}"
    forced = f", by --force although {why_not}" if why_not else ""
    return f"{text}, alias champion{forced}: models:/{name}@champion"
