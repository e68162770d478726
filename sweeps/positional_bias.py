"""Where in its documents is a collection relevant: at their start, or anywhere?

Paper: Boytsov et al. 2022, section 3.3.3 (passages matched in documents); Boytsov et al. 2025,
section 3 and appendix C.4 (first relevant position, chunks graded by a chat model); Li et al.,
KeyB, section 3.2 (scores of blocks by position).
Size: no training; seconds for some hundred documents, about a minute per 1,000 long ones; with
--judge-url one call for each chunk, whose number is printed first.
Expected: most relevant text of web collections starts within the first 512 tokens, so a model that
reads no more loses little; FarRelevant and python-docs are built the other way, and a debiased
collection is flat.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import sweeps  # noqa: F401 - first: Ctrl-C is quiet while the others are imported
from rank_core.data.load import load_collection
from rank_core.lines import put
from rank_core.seeding import generator
from rank_core.settings.config import Chat
from sweeps.plan.flags import Flag
from sweeps.positions.analysis import (
    Settings,
    analyse,
    known_passages,
    read_passages,
    relevant_pairs,
    split_of,
)
from sweeps.positions.judged_chunks import JudgedChunk, judge_chunks
from sweeps.positions.rsv import ChunkScorer, RelevantPair, cosine_scorer, word_chunks
from sweeps.terminal.command_line import Need, Parser, check_writable, heed_interrupts, run_command

SMOKE_PAIRS = 20
JUDGE = (Need("judge_url"),)
FLAGS = (
    Flag("--split", "NAME", "train, dev or test; default: the first of them", default=""),
    Flag("--passages", "FILE", "JSON lines of {query_id, text}: relevant", Path),
    Flag("--least-grade", "N", "of a relevant document", int, 1, least=1, most=10**9),
    Flag(
        "--max-pairs",
        "N",
        "sampled relevant documents, 0: all",
        int,
        1000,
        most=10**9,
        needs=(Need("smoke_test", without=True),),
    ),
    Flag("--seed", "N", "of the samples", int, 1, least=-math.inf),
    Flag("--window", "N", "words of a chunk", int, 50, least=1, most=10**6),
    Flag("--bins", "N", "parts of a document in plots", int, 10, least=1, most=1000),
    Flag("--first", "N", "words of a first window, marked", int, 512, least=1, most=10**6),
    Flag("--backbone", "NAME|DIR", "score chunks by this encoder's mean vectors too"),
    Flag("--judge-url", "URL", "grade chunks by a chat model of this server"),
    Flag("--judge-model", "NAME", "the model's name on that server", default="", needs=JUDGE),
    Flag("--judge-key", "VARIABLE", "environment variable with the key", default="", needs=JUDGE),
    Flag(
        "--judge-pairs",
        "N",
        "relevant documents to grade",
        int,
        50,
        least=1,
        most=10**6,
        needs=JUDGE,
    ),
    Flag(
        "--judge-window", "N", "words of a graded chunk", int, 300, least=1, most=10**6, needs=JUDGE
    ),
    Flag("--smoke-test", "", f"take {SMOKE_PAIRS} relevant documents alone", bool),
    Flag("--storage", "DIR", "of results", default="results", needs=(Need("out", without=True),)),
    Flag("--out", "DIR", "default: STORAGE/positional_bias/COLLECTION-SPLIT", Path),
)


def main(argv: Sequence[str]) -> int:
    """Analyse a collection, print the path of the page, and return the exit code."""
    heed_interrupts()
    return run_command(lambda: _analyse(parser().parse_args(argv)))


def parser() -> Parser:
    """The arguments and flags of `ranksweep run positional_bias`."""
    parser = Parser("ranksweep run positional_bias", __doc__)
    named = "a name, a folder or an expression such as 'python-docs|debias(splits=all)'"
    parser.add_argument("--collection", required=True, metavar="NAME|DIR", help=named)
    for flag in FLAGS:
        flag.add_to(parser)
    return parser


def _analyse(args: argparse.Namespace) -> int:
    for flag in FLAGS:
        if flag.kind is int:
            flag.check(getattr(args, flag.name))
    check_writable("--storage", args.out or Path(args.storage))
    collection = load_collection(args.collection)
    split = split_of(collection, args.split)
    most = SMOKE_PAIRS if args.smoke_test else args.max_pairs
    pairs = relevant_pairs(
        collection, split, max_pairs=most, least_grade=args.least_grade, seed=args.seed
    )
    passages = (
        read_passages(args.passages)
        if args.passages
        else known_passages(args.collection, collection, split)
    )
    if not passages:
        put("No relevant passages are known (--passages): scores by position only.")
    home = Path(args.storage) / "positional_bias"
    folder = args.out or home / _file_name(f"{collection.name}-{split}")
    scorers: dict[str, ChunkScorer] = {}
    if args.backbone:
        from rank_core.encoders.backbones import resolve_backbone

        backbone = resolve_backbone(args.backbone)
        scorers = {f"cosine, {backbone.name}": cosine_scorer(backbone)}
    settings = Settings(window=args.window, num_bins=args.bins, first=args.first)
    result = analyse(
        collection,
        split,
        pairs,
        settings,
        passages=passages,
        scorers=scorers,
        judged=_judge(args, pairs, folder),
        facts={"judge": args.judge_model} if args.judge_url else {},
    )
    from sweeps.positions.page import write_analysis

    page = write_analysis(folder, result)
    for name, value in result.summary.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        put(f"{name:<62} {shown:>10}")
    put(result.answer)
    put(f"Page: {page}")
    return 0


def _judge(
    args: argparse.Namespace, pairs: Sequence[RelevantPair], folder: Path
) -> list[JudgedChunk]:
    if not args.judge_url:
        return []
    from rank_core.llm.chat import AnswerCache, ChatClient, Ledger

    order = generator(args.seed, "judged-pairs").permutation(len(pairs))[: args.judge_pairs]
    chosen = [pairs[number] for number in sorted(order.tolist())]
    calls = sum(len(word_chunks(pair.text, args.judge_window)) for pair in chosen)
    model = Chat("openai", args.judge_url, args.judge_model, args.judge_key)
    client = ChatClient(model, cache=AnswerCache(folder / "answers"))
    put(f"Grading {calls} chunks of {len(chosen)} documents with {model.model}.")
    ledger = Ledger(folder / "judge.jsonl")
    return list(judge_chunks(chosen, chat=client, window=args.judge_window, ledger=ledger))


def _file_name(name: str) -> str:
    """The name in characters that are valid in every file system and shell."""
    return "".join(c if c.isalnum() or c in "-_.=," else "_" for c in name).strip("_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
