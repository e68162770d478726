"""`ranksweep teach MODEL`: the scores of a teacher over the training candidates, which
`training.teacher`, the filters of negatives and `training.negatives_from` read."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rank_core.chunking.inputs import load_inputs
from rank_core.data.load import load_collection
from rank_core.data.tables import check_run_name
from rank_core.data.trec import write_run
from rank_core.encoders.backbones import EXPORT_FILE
from rank_core.errors import BadInput
from rank_core.llm.chat import Ledger, NoAnswer
from rank_core.models import MODELS, model_class, trains
from rank_core.models.checks import check_model
from rank_core.models.dense import DenseChunks
from rank_core.models.list_rankers import LEDGER, ListRanker, RankGPT
from rank_core.models.reading import ignored_settings, with_encoder
from rank_core.own_code import is_reference
from rank_core.ranking.scorer import require_finite
from rank_core.records import Collection, Run
from rank_core.settings.config import Chunking, TrialConfig, parse_setting
from sweeps.commands.rerank import TAG, RerankJob, rerank_run
from sweeps.plan.flags import add_flags
from sweeps.plan.options import absolute, absolute_folder, named_collection, typed_settings
from sweeps.terminal.command_line import Parser, check_writable
from sweeps.terminal.text import num_queries, say

DEPTH, SHARD_QUERIES = 100, 50
SECTIONS = ("model", "chunking", "chat")
READ = ("training.precision", "evaluation.batch_tokens")
"""The sections and the further settings that say how a teacher reads."""


def main(argv: Sequence[str]) -> int:
    """Score the training candidates of a collection, and all relevant documents, and write them as
    a run. MODEL is an exported folder; a published reranker (a folder or a Hugging Face id), read
    as the settings say; or a system without training: rankgpt with chat.model=NAME, a chat model
    that orders lists, whose answers and costs are in OUT.ledger.jsonl, or dense with
    model.backbone=DIR, an embedding model that searches the whole collection. In a sweep:
    training.teacher=OUT with a loss of a teacher (training.loss=margin-mse) or with
    training.negatives_share=0.95, which drops candidates that the teacher scores like relevant
    ones; training.negatives_from=OUT for the negatives of dense. The same command resumes."""
    args = parser().parse_intermixed_args(list(argv))
    for flag in ("cpus_per_worker", "depth"):
        if (value := vars(args)[flag]) < 1:
            raise BadInput(f"--{flag.replace('_', '-')} >= 1 must hold, got {value}")
    check_run_name("--out", Path(args.out))
    check_writable("the folder of --out", Path(args.out).parent)
    out = Path(os.path.abspath(args.out))
    if out.exists():
        raise BadInput(f"--out must be a new file, but {out} exists")
    name = str(named_collection(args.collection, args.fields))
    config = teacher_of(args.teacher, args.settings, name)
    run = candidates(load_collection(name), args.depth)
    if config is not None and not trains(model_class(config.model.name)):
        if args.trust_code:
            raise BadInput(f"--trust-code has no effect on {args.teacher}, which is not a folder")
        _rank_lists(config, run, out, args.depth)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.run.gz"
        write_run(file, run, tag="candidates")
        job = RerankJob(
            folder="" if config else os.path.abspath(args.teacher),
            collection=name,
            run=str(file),
            out=str(out),
            queries="",
            depth=max(map(len, run.values())),
            depth_only=True,
            shard_queries=SHARD_QUERIES,
            threads=args.cpus_per_worker,
            trust_code=args.trust_code,
            model_alone=True,
            published=config,
        )
        if job.model.needs_first_stage:
            raise BadInput(
                f"a teacher scores only texts, but {args.teacher} has no score without those of "
                "the first stage: export another system"
            )
        rerank_run(job)
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep teach`."""
    parser = Parser("ranksweep teach", main.__doc__)
    add = parser.add_argument
    teacher = "the teacher: an exported folder, a published reranker, or a system's name"
    add("teacher", metavar="MODEL", help=teacher)
    add("--collection", required=True, metavar="NAME|DIR", help="collection with a split train")
    add_flags(parser, ("fields", "cpus_per_worker"))
    add("--out", required=True, metavar="FILE", help="the teacher's run, a new file")
    add(
        "--depth",
        type=int,
        default=DEPTH,
        metavar="N",
        help=f"candidates scored per query (default: {DEPTH})",
    )
    trust = "allow the model's source code in FOLDER/code to run; read it first"
    add("--trust-code", action="store_true", help=trust)
    how = "settings of the teacher: sections model, chunking and chat of `ranksweep settings`"
    add("settings", nargs="*", metavar="section.setting=value", help=how)
    return parser


def teacher_of(model: str, words: Sequence[str], collection: str) -> TrialConfig | None:
    """How a published reranker or a system without training reads; None for an exported folder.
    Raises `BadInput` for a setting that the teacher does not read."""
    settings: dict[str, object] = {
        name: parse_setting(name, absolute(name, text))
        for name, text in typed_settings(words).items()
    }
    is_folder, published = Path(model).is_dir(), ("config.json", "modules.json")
    if Path(model, EXPORT_FILE).is_file():
        if settings:
            raise BadInput(f"{model} has its settings in {EXPORT_FILE}, got {', '.join(settings)}")
        return None
    if is_folder and not any(Path(model, name).is_file() for name in published):
        return None  # refused as an exported folder
    is_system = model in MODELS or is_reference(model)
    if is_system and trains(model_class(model)):
        raise BadInput(
            f"{model} is trained before it teaches: name the folder that `ranksweep export` wrote, "
            "or a published reranker"
        )
    named = {"model.name": model} if is_system else {"model.backbone": absolute_folder(model)}
    for name in settings:
        section = name.partition(".")[0]
        if name in named or (section not in SECTIONS and name not in READ):
            problem = f"is {model} here" if name in named else "is not a setting of a teacher"
            raise BadInput(f"{name} {problem}; settings: {', '.join(SECTIONS)}, {', '.join(READ)}")
    usual: dict[str, object] = {"model.name": "maxp", "training.num_epochs": 0}
    if is_system:  # none of them reads a stride
        usual = {"chunking.stride": settings.get("chunking.window", Chunking().stride)}
    config = with_encoder(TrialConfig(collection).override(usual | named | settings))
    for name in ignored_settings(config):
        if name in settings:
            raise BadInput(f"{name} has no effect on the teacher {model}: leave it out")
    return config


def candidates(collection: Collection, depth: int) -> Run:
    """The first `depth` training candidates of each query, then its relevant documents that are not
    among them: a teacher's losses and filters compare candidates with these."""
    split = collection.splits["train"]
    run: Run = {
        query_id: dict(list(split.candidates.get(query_id, {}).items())[:depth])
        for query_id in split.qrels
    }
    for query_id, missing in _missing(collection, run).items():
        lowest = min(run[query_id].values(), default=0.0)
        run[query_id] |= {doc_id: lowest - place for place, doc_id in enumerate(missing, start=1)}
    return run


def _rank_lists(config: TrialConfig, run: Run, out: Path, depth: int) -> None:
    """Writes the run of a system without training: over `run`, or the best `depth` documents of
    the whole collection, and all relevant ones."""
    kind = model_class(config.model.name)
    inputs = load_inputs(config.collection, config.model.backbone)
    assert issubclass(kind, ListRanker)
    longest = depth if kind.retrieves else max(map(len, run.values()))
    config = config.override({"evaluation.depth": longest})
    check_model(config, inputs.backbone)
    parts = Path(f"{out}.parts")
    ranker = kind(config, parts)
    ranker.inputs, ranker.language = inputs, inputs.collection.language
    queries = {query_id: inputs.collection.splits["train"].queries[query_id] for query_id in run}
    if isinstance(ranker, RankGPT):
        say(f"requests    {ranker.num_requests(run):,} at most; answers are cached")
    try:
        taught = dict(ranker.rank(queries, inputs.collection.documents, run))
    except NoAnswer as error:
        raise BadInput(f"{error}; the same command resumes: the responses are cached") from None
    if isinstance(ranker, DenseChunks):
        missing = _missing(inputs.collection, taught)
        taught = {q: taught[q] | scores for q, scores in ranker.scores_of(queries, missing)}
    write_run(out, require_finite(taught), tag=TAG)
    if (ledger := parts / LEDGER).exists():
        kept = ledger.rename(f"{out}.ledger.jsonl")
        total = Ledger(kept).total()
        asked = f"{total.asked:,} of {total.answers:,} answers were requested"
        asked += "; the rest came from the cache" if total.asked < total.answers else ""
        say(f"ledger      {kept}: {asked}; {total.tokens:,} tokens, cost {total.cost:.4g}")
    if parts.exists():
        parts.rmdir()
    say(f"wrote       the teacher's scores for {num_queries(len(taught))}: {out}")


def _missing(collection: Collection, run: Run) -> dict[str, list[str]]:
    """{query_id: the relevant documents with a text that a run of training queries has not}."""
    qrels, texts = collection.splits["train"].qrels, collection.documents
    return {
        query_id: [
            doc_id
            for doc_id, grade in qrels[query_id].items()
            if grade > 0 and doc_id in texts and doc_id not in ranked
        ]
        for query_id, ranked in run.items()
    }
